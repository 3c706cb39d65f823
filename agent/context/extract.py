"""The text of one file that is not UTF-8 text, as a program of its own: `python extract.py KIND SOURCE TARGET`.

It runs apart from the host, under limits on memory, time and output, since a document from anywhere may be broken or made to
hurt. Its libraries are the extra `documents`. Pages of a PDF are ended by a form feed; DOCX and HTML become Markdown.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from importlib import import_module

MEMORY, SECONDS, OUTPUT = 2 << 30, 60, 1 << 30
#: What must be installed for each kind; an encoding needs nothing.
NEEDS = {"pdf": ("pypdfium2",), "docx": ("mammoth", "markdownify"), "html": ("markdownify",)}


def _pdf(source: str) -> Iterator[str]:
    document = import_module("pypdfium2").PdfDocument(source)
    for page in document:
        yield page.get_textpage().get_text_range().replace("\r\n", "\n") + "\n\f\n"


def _docx(source: str) -> Iterator[str]:
    mammoth = import_module("mammoth")
    with open(source, "rb") as file:
        yield _markdown(mammoth.convert_to_html(file, convert_image=mammoth.images.img_element(lambda _: {})).value)


def _html(source: str) -> Iterator[str]:
    with open(source, "rb") as file:
        yield _markdown(file.read().decode("utf-8", "replace"))


def _markdown(html: str) -> str:
    soup = import_module("bs4").BeautifulSoup(html, "html.parser")
    for hidden in soup(["script", "style", "noscript", "template"]):
        hidden.decompose()
    text: str = import_module("markdownify").MarkdownConverter(heading_style="ATX").convert_soup(soup)
    return text.strip() + "\n"


def _decoded(source: str, encoding: str) -> Iterator[str]:
    with open(source, encoding=encoding, errors="replace", newline="") as file:
        while block := file.read(1 << 20):
            yield block


def main(kind: str, source: str, target: str) -> None:
    """Write the text of `source` to `target` as UTF-8; raise whatever its library does."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT, OUTPUT))
    ways = {"pdf": _pdf, "docx": _docx, "html": _html}
    pieces = ways[kind](source) if kind in ways else _decoded(source, kind)
    with open(target, "w", encoding="utf-8", errors="replace", newline="") as out:
        for piece in pieces:
            out.write(piece)


if __name__ == "__main__":
    main(*sys.argv[1:])
