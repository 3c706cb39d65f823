"""Documents looked at in place: lines, slices, searches, chunks and references agree with the text."""

from __future__ import annotations

import itertools
import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.context import Context, Document, open_context, open_refs, to_refs
from agent.context.manifest import ContextSource, build_manifest

POEM = "one\ntwo größer\n\nfour\r\nfive end"


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "a.txt").write_bytes(POEM.encode())
    (tmp_path / "b.txt").write_bytes(b"")
    (tmp_path / "c.txt").write_bytes(b"bad \xff\xfe bytes\nand \x00 NUL two\n")
    (tmp_path / "d.bin").write_bytes(bytes(range(256)) + b"two")
    return open_context(build_manifest([ContextSource(str(tmp_path))]))


def test_a_context_is_a_sequence_with_names(context: Context) -> None:
    assert len(context) == 4
    assert context.names() == [doc.name for doc in context.docs] == ["a.txt", "b.txt", "c.txt", "d.bin"]
    assert context["a.txt"] is context[0] is context[-4]
    assert context[1:3].names() == ["b.txt", "c.txt"]
    assert "a.txt" in context
    assert context.size == sum(doc.size for doc in context)
    with pytest.raises(KeyError, match=r"near: .*a\.txt"):
        context["aa.txt"]


def test_text_lines_and_peeks(context: Context) -> None:
    doc = context["a.txt"]
    assert doc.text == str(doc) == POEM
    assert doc.lines() == ["one", "two größer", "", "four", "five end"]
    assert doc.lines(2, 3) == ["two größer", ""]
    assert doc.lines(4, 99) == ["four", "five end"]
    assert doc.lines(9, 12) == doc.lines(3, 2) == []
    assert doc.lines(-3, 1) == ["one"]
    assert doc.peek(9) == "one\ntwo g"
    assert doc.line_of(0) == 1
    assert doc.line_of(POEM.encode().index(b"five")) == 5
    assert context["b.txt"].text == context["b.txt"].peek() == ""
    assert context["b.txt"].lines() == context["b.txt"].search(".") == context["b.txt"].chunks(chars=10) == []
    assert context["c.txt"].lines() == ["bad \ufffd\ufffd bytes", "and \x00 NUL two"]


def test_search_gives_places(context: Context) -> None:
    found = context.search("two")
    assert [(m.doc.name, m.line, m.text) for m in found] == [
        ("a.txt", 2, "two größer"),
        ("c.txt", 2, "and \x00 NUL two"),
    ]
    assert found[0].around(1, 1) == "one\ntwo größer\n"
    assert found[0].matched == "two"
    assert context.search("TWO") == []
    assert len(context.search("TWO", ignore_case=True)) == 2
    assert len(context.search("[a-z]", limit=7)) == 7
    assert [m.doc.name for m in context.search("two", docs=["d.bin"])] == ["d.bin"]
    assert [m.line for m in context["a.txt"].search(r"^f\w+$")] == [4]
    assert [m.line for m in context["a.txt"].search(r"(?:e|d)$")] == [1, 5]
    assert [m.line for m in context["a.txt"].search("r$")] == [2, 4]
    with pytest.raises(re.error):
        context.search("(")


def test_patterns_beyond_ascii_find_bytes(context: Context) -> None:
    (match,) = context["a.txt"].search("GRÖßER", ignore_case=True)
    assert (match.line, match.matched, match.text) == (2, "größer", "two größer")
    (other,) = context["a.txt"].search("[äöü]")
    assert context["a.txt"].text.encode()[other.start : other.end].decode() == "ö"


def test_slices_are_references(context: Context) -> None:
    doc = context["a.txt"]
    part = doc[4:14]
    assert (part.size, len(part), part.text, str(part[0:3])) == (10, 10, "two größ", "two")
    assert [(m.line, m.matched) for m in part.search("r|w")] == [(2, "w"), (2, "r")]
    assert part[4:].text == "größ"
    assert doc[-3:].text == "end"
    with pytest.raises(TypeError, match="byte range"):
        doc[3]


def test_names_show_and_content_does_not(context: Context) -> None:
    for thing in (context, context[0], context[0][1:5], context.search("two")[0]):
        assert "two" not in repr(thing)
        assert len(repr(thing)) < 100
    assert "binary" in repr(context["d.bin"])
    assert len(context.peek(60)) <= 60


def test_references_cross_to_a_child(context: Context) -> None:
    doc, match = context["a.txt"], context.search("four")[0]
    refs = to_refs([doc, doc[4:7], match, [doc[0:3]]])
    child = open_refs([tuple(ref) for ref in refs])
    assert [part.text.rstrip("\r") for part in child] == [POEM, "two", "four", "one"]
    assert child.names()[:2] == ["a.txt", "a.txt[4:7]"]
    assert child[1].search("w")[0].line == 1
    assert to_refs(child[1:2]) == [refs[1]]
    assert child[2][1:3].text == "ou"
    with pytest.raises(TypeError, match="str"):
        to_refs("plain text")


def test_everything_survives_a_snapshot(context: Context) -> None:
    things = (context, context[0], context[0][1:5], context.search("two"))
    again = pickle.loads(pickle.dumps(things))
    assert again[1:] == things[1:]
    assert again[0].names() == context.names()
    assert again[3][0].text == "two größer"
    assert {context[0], again[1]} == {context[0]}


def test_chunks_cut_at_line_ends_and_overlap(tmp_path: Path) -> None:
    text = "".join(f"line {n} ü\n" for n in range(500))
    (tmp_path / "a").write_text(text)
    doc = open_context(build_manifest([ContextSource(str(tmp_path))]))[0]
    parts = doc.chunks(chars=300)
    assert "".join(part.text for part in parts) == text
    assert all(part.size <= 300 and part.text.endswith("\n") for part in parts)
    lapped = doc.chunks(tokens=50, overlap=40)
    assert all(a.end - b.start in range(40, 42) for a, b in itertools.pairwise(lapped))
    with pytest.raises(ValueError, match="overlap"):
        doc.chunks(chars=100, overlap=100)


def test_thousands_of_documents_hold_few_descriptors(tmp_path: Path) -> None:
    for number in range(1500):
        (tmp_path / f"{number:04}.txt").write_text(f"needle {number}\n")
    context = open_context(build_manifest([ContextSource(str(tmp_path))]))
    before = len(os.listdir("/proc/self/fd"))
    found = context.search("needle", limit=5000)
    assert len(found) == 1500
    assert len(os.listdir("/proc/self/fd")) - before <= 70
    with ThreadPoolExecutor(4) as pool:
        assert [m.text for m in found] == list(pool.map(lambda m: m.text, found))


def test_long_lines_and_far_lines_are_cheap_and_right(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(
        "x" * 100_000 + "needle" + "y" * 1_000_000 + "\n" + "filler\n" * 200_000 + "last needle\n"
    )
    doc = open_context(build_manifest([ContextSource(str(tmp_path))]))[0]
    first, last = doc.search("needle")
    assert first.line == 1
    assert "needle" in first.text
    assert len(first.text) <= 400
    assert (last.line, last.text) == (200_002, "last needle")
    assert doc.lines(200_001) == ["filler", "last needle"]


def test_opening_needs_the_standard_library_only() -> None:
    code = "import agent.context, sys; print([m for m in ('msgspec', 'pydantic', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


PATTERNS = [
    "ab",
    "b",
    "a.b",
    r"^a",
    r"b$",
    r"\bab\b",
    "a|bb",
    r"a+b",
    r"ab\s",
    r"[^a]b",
    r"(a)(b)?",
    r"ab.*b",
    r"a(?=b)",
    "bab$",
    "^aab?",
    r"aba|bab",
    r"(?:bab)+a",
    "a{2}bab",
    r"bba\b",
    "(?i)bab",
    r"\Babb",
    r"\S+bab",
    r"\Sbab\s",
]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text("ab \n", max_size=60), st.sampled_from(PATTERNS), st.integers(0, 20), st.integers(0, 60))
def test_search_and_lines_agree_with_re(tmp_path: Path, text: str, pattern: str, start: int, end: int) -> None:
    path = tmp_path / "t"
    path.write_text(text)
    doc = Document(str(path), "t", 0, len(text))
    expected = [(m.start(), m.end()) for m in re.finditer(pattern, text, re.MULTILINE)]
    found = doc.search(pattern)
    assert [(m.start, m.end) for m in found] == expected
    assert [m.line for m in found] == [1 + text.count("\n", 0, s) for s, _ in expected]
    assert [m.text for m in found if m.start < len(text)] == [
        text.split("\n")[m.line - 1] for m in found if m.start < len(text)
    ]
    rows = text.split("\n")
    if not rows[-1]:
        rows.pop()
    assert doc.lines() == rows
    assert doc.lines(start, end) == rows[max(start, 1) - 1 : end]
    assert doc[start:end].text == text[start:end]
