"""Documents in other formats and encodings are text by copy: right, cached by content, refused when broken."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from agent.context import Context, open_context
from agent.context.convert import convertible
from agent.context.manifest import ContextSource, Manifest, build_manifest, check_refs

needs = {
    kind: pytest.mark.skipif(not convertible(kind), reason="needs the extra `documents`")
    for kind in ("pdf", "docx", "html")
}


def pdf(*pages: str) -> bytes:
    kids = " ".join(f"{3 + 2 * n} 0 R" for n in range(len(pages)))
    objects = ["<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>"]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET"
        font = "<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>"
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents {4 + 2 * number} 0 R/Resources<</Font{font}>>>>"
        )
        objects.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
    body = "%PDF-1.4\n" + "".join(f"{n} 0 obj\n{o}\nendobj\n" for n, o in enumerate(objects, 1))
    return (body + f"trailer<</Root 1 0 R/Size {len(objects) + 1}>>\n%%EOF\n").encode()


def docx(path: Path, *paragraphs: str) -> None:
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Override PartName="/word/document.xml" ContentType="{kind}"/></Types>',
        )
        file.writestr(
            "_rels/.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>',
        )
        file.writestr("word/document.xml", f"<w:document {space}><w:body>{body}</w:body></w:document>")


def listed(root: Path) -> tuple[Manifest, Context]:
    manifest = build_manifest([ContextSource(str(root / "in"))], root / "cache")
    return manifest, open_context(manifest)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_an_encoding_with_a_mark_is_text(root: Path, encoding: str) -> None:
    text = "Größe 漢字\r\nneedle 🦊\nend"
    (root / "in/a.txt").write_bytes(text.encode(encoding))
    manifest, context = listed(root)
    doc = context["a.txt"]
    assert (doc.text, doc.peek(5), doc.lines(2, 2)) == (text, "Größe", ["needle 🦊"])
    assert [(m.line, m.matched) for m in context.search("NEEDLE \\S", ignore_case=True)] == [(2, "needle 🦊")]
    assert manifest.docs[0].source == str(root / "in/a.txt")
    check_refs(manifest, [(doc.path, 0, doc.size)])


def test_without_a_cache_a_document_says_what_it_is(root: Path) -> None:
    (root / "in/a.txt").write_bytes("text".encode("utf-16"))
    (root / "in/b.pdf").write_bytes(pdf("text"))
    context = open_context(build_manifest([ContextSource(str(root / "in"))]))
    assert [doc.kind for doc in context] == ["utf-16", "pdf"]
    assert context.search("text") == []
    for act in (
        lambda d: d.text,
        lambda d: d.search("t"),
        lambda d: d[0:2].text,
        lambda d: d.peek(),
        lambda d: d.lines(),
    ):
        with pytest.raises(ValueError, match=r"b\.pdf.*documents"):
            act(context["b.pdf"])


@needs["pdf"]
def test_a_pdf_becomes_text_once(root: Path) -> None:
    (root / "in/a.pdf").write_bytes(pdf("First page here", "Second needle"))
    first, context = listed(root)
    assert context["a.pdf"].text == "First page here\n\f\nSecond needle\n\f\n"
    assert [m.doc.name for m in context.search("needle")] == ["a.pdf"]
    made = os.stat(context["a.pdf"].path).st_mtime_ns
    os.utime(root / "in/a.pdf")
    assert listed(root)[0].docs[0].mtime_ns == made
    (root / "in/a.pdf").write_bytes(pdf("Other"))
    assert listed(root)[1]["a.pdf"].text.startswith("Other")
    assert first.docs[0].name == "a.pdf"
    assert not [name for name in os.listdir(root / "cache") if name.startswith(".")]


@needs["docx"]
def test_a_docx_becomes_text(root: Path) -> None:
    docx(root / "in/a.docx", "A paragraph", "Größe &amp; more")
    assert listed(root)[1]["a.docx"].text == "A paragraph\n\nGröße & more\n"


@needs["html"]
def test_html_becomes_markdown(root: Path) -> None:
    (root / "in/a.html").write_text("<html><script>var x</script><h1>Title</h1><p>A <b>bold</b> word</p></html>")
    assert listed(root)[1]["a.html"].text == "# Title\n\nA **bold** word\n"


@needs["pdf"]
@needs["docx"]
def test_what_is_broken_is_refused_with_the_reason(root: Path) -> None:
    (root / "in/a.pdf").write_bytes(b"%PDF-1.7\nnothing of the kind")
    (root / "in/b.docx").write_bytes(b"PK\x03\x04 no archive")
    (root / "in/c.txt").write_text("fine")
    manifest, context = listed(root)
    assert context.names() == ["c.txt"]
    assert [Path(r.path).name for r in manifest.refused] == ["a.pdf", "b.docx"]
    assert all("without readable text: " in r.reason for r in manifest.refused)
