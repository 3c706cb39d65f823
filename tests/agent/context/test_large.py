"""Files that are larger than memory, cut, replaced or grown: nothing is read whole, and every change is named."""

from __future__ import annotations

import os
import pickle
import resource
from pathlib import Path

import pytest

from agent.context import Context, Document, open_context, open_refs, to_refs
from agent.context.manifest import ContextSource, build_manifest, check_refs
from agent.context.reading import FileChanged


def sparse(path: Path, size: int, *parts: tuple[int, bytes]) -> Document:
    with open(path, "wb") as file:
        file.truncate(size)
        for at, data in parts:
            file.seek(at)
            file.write(data)
    return open_context(build_manifest([ContextSource(str(path))]))[0]


def test_ten_gigabytes_are_looked_at_from_both_ends(tmp_path: Path) -> None:
    size = 10 << 30
    doc = sparse(tmp_path / "big", size, (0, b"head of it\nsecond\n"), (size - 20, b"\nthe very end"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert doc.size == size
    assert doc.peek(12) == "head of it\ns"
    assert doc.lines(1, 2) == ["head of it", "second"]
    assert doc[-20:].text.rstrip("\0") == "\nthe very end"
    assert doc[size - 16 :][-4:][1:3].size == 2
    assert [m.start for m in doc.search("head", limit=1)] == [0]
    assert [m.text.rstrip("\0") for m in doc[size - 1000 :].search("very")] == ["the very end"]
    (part,) = open_refs(to_refs(doc[size - 19 : size - 7]))
    assert part.text == "the very end"
    assert [p.size for p in Context([doc]).parts(4)] == [size // 4] * 4
    with pytest.raises(ValueError, match="too large"):
        doc.text  # noqa: B018
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_a_line_of_two_gigabytes(tmp_path: Path) -> None:
    size = 2 << 30
    doc = sparse(tmp_path / "line", size, (0, b"start needle"), (size - 100, b"needle too"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (first,) = doc.search("needle", limit=1)
    assert (first.line, first.matched, first.text[:12]) == (1, "needle", "start needle")
    assert len(first.text) <= 400
    assert doc.peek(5) == "start"
    with pytest.raises(ValueError, match="iter_lines"):
        doc.lines(1, 1)
    piece = next(iter(doc))
    assert (len(piece), piece[:12]) == (1 << 20, "start needle")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_a_file_that_is_cut_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"word here\n" * 1_000_000)
    doc = open_context(build_manifest([ContextSource(str(path))]))[0]
    running = doc.iter_search("word")
    assert next(running).line == 1
    os.truncate(path, 100_000)
    for act in (lambda: sum(1 for _ in running), lambda: doc.lines(-1), lambda: doc[0:5].text, lambda: doc.search("x")):
        with pytest.raises(FileChanged, match=r"log\.txt was cut from 10000000 bytes to 100000"):
            act()


def test_a_file_that_is_replaced_or_removed_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("the first text")
    doc = open_context(build_manifest([ContextSource(str(path))]))[0]
    assert doc.text == "the first text"
    again = pickle.loads(pickle.dumps(doc))
    (tmp_path / "new").write_text("quite another text")
    os.replace(tmp_path / "new", path)
    for one in (doc, again, again[0:3]):
        with pytest.raises(OSError, match=r"a\.txt was replaced"):
            one.peek()
    path.unlink()
    with pytest.raises(FileChanged, match=r"a\.txt is gone"):
        doc.peek()


def test_a_copy_with_the_same_time_is_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("restored")
    doc = open_context(build_manifest([ContextSource(str(path))]))[0]
    facts = path.stat()
    (tmp_path / "copy").write_text("restored")
    os.utime(tmp_path / "copy", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    os.replace(tmp_path / "copy", path)
    assert doc.text == "restored"


def test_a_file_that_grew_keeps_its_listed_size(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    manifest = build_manifest([ContextSource(str(path))])
    doc = open_context(manifest)[0]
    with open(path, "a") as file:
        file.write("two more\n")
    assert doc.lines() == ["one", "two"]
    assert len(doc.search("two")) == 1
    check_refs(manifest, to_refs(doc))


def test_lines_stream_and_iteration_is_lines(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"one\r\ntwo\rstill\n\nlast")
    doc = open_context(build_manifest([ContextSource(str(path))]))[0]
    assert list(doc) == list(doc.iter_lines()) == ["one", "two\rstill", "", "last"]
    assert list(doc.iter_lines(3)) == ["", "last"]
    assert "two" in doc
    assert "three" not in doc
    assert "o.e" not in doc


def test_parts_are_equal_and_whole(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"{number}.txt").write_text(f"line of {number} ü\n" * (50 if number else 4000))
    context = open_context(build_manifest([ContextSource(str(tmp_path))]))
    for n in (1, 2, 5, 100):
        parts = context.parts(n)
        assert len(parts) <= n
        assert "".join(doc.text for part in parts for doc in part) == "".join(doc.text for doc in context)
        assert max(part.size for part in parts) <= -(-context.size // n) + 64 + context.size // n // 16 * n // (n + 1)
        for part in parts:
            assert "".join(d.text for d in open_refs(to_refs(part))) == "".join(d.text for d in part)
    with pytest.raises(ValueError, match="at least one"):
        context.parts(0)
