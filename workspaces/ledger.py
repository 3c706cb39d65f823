"""A Markdown file that only grows: numbered entries, rotated to `<stem>/0001.md` … before a file grows past
256 kB.

The invariant: the bytes are a function of the header and the entries alone. Each entry ends in a marker with
its number and where it began; when the last one on disk is the one that the records say, and ends the file,
only the new ones are rendered and written. Anything else (a torn write, a rewound run, an edit by hand) is
rewritten from the records.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from workspaces.shared import keep_kind

SEGMENT_BYTES = 256 * 1000
_TAIL_BYTES = 200
_END = re.compile(rb"<!-- end (\d+) @(\d+) -->\n\n\Z")
MARKER = re.compile(r"^<!-- end (\d+) @(\d+) -->\n\n?", re.MULTILINE)

Numbered = tuple[int, str]
EntriesAfter = Callable[[int], Iterable[Numbered]]


def write_ledger(folder: Path, stem: str, header: str, entries_after: EntriesAfter) -> bool:
    """Bring a ledger to what the records say; return whether it was only appended to.

    `entries_after(n)` yields the numbered entries behind number n, in order; the numbers grow.
    """
    current, head = folder / f"{stem}.md", header.encode()
    for path, kind in ((current, stat.S_IFREG), (folder / stem, stat.S_IFDIR)):
        keep_kind(path, kind)
    last = _last_entry(current, head)
    if last is not None:
        number, start, size = last
        new = iter(entries_after(number - 1))
        first = next(new, None)
        if first is not None and first[0] == number:
            expected = _ended(first, start)
            if start + len(expected) == size and _read(current, start) == expected:
                _append(folder, stem, head, size, new)
                return True
    _rewrite(folder, stem, head, entries_after(-1))
    return False


def segments(folder: Path, stem: str) -> list[Path]:
    """Return the files of a ledger, oldest first."""
    names = sorted((folder / stem).glob("[0-9][0-9][0-9][0-9].md")) if (folder / stem).is_dir() else []
    current = folder / f"{stem}.md"
    return [*names, current] if current.exists() else names


def split_entries(texts: Sequence[str]) -> list[tuple[int, str]]:
    """Return (number, text) of each entry in the texts of a ledger's files."""
    found = []
    for text in texts:
        at = 0
        for marker in MARKER.finditer(text):
            start = max(at, int_offset(text, int(marker[2])))
            found.append((int(marker[1]), text[start : marker.start()].strip("\n")))
            at = marker.end()
    return found


def int_offset(text: str, offset: int) -> int:
    """Return the character position of a byte offset in the text's UTF-8 form."""
    return len(text.encode()[:offset].decode("utf-8", "ignore"))


def _ended(entry: Numbered, start: int) -> bytes:
    number, text = entry
    return f"{text}\n<!-- end {number} @{start} -->\n\n".encode("utf-8", "replace")


def _last_entry(path: Path, head: bytes) -> tuple[int, int, int] | None:
    """Return (number, start, file size) of the last entry, or None when the file is not as we left it."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(len(head)) != head:
                return None
            file.seek(max(0, size - _TAIL_BYTES))
            marker = _END.search(file.read())
    except (FileNotFoundError, IsADirectoryError):
        return None
    if marker is None or not len(head) <= int(marker[2]) < size:
        return None
    return int(marker[1]), int(marker[2]), size


def _append(folder: Path, stem: str, head: bytes, size: int, entries: Iterator[Numbered]) -> None:
    current = folder / f"{stem}.md"
    out: list[bytes] = []
    for entry in entries:
        data = _ended(entry, size)
        if size + len(data) > SEGMENT_BYTES and size > len(head):
            _extend(current, out)
            earlier = len(segments(folder, stem)) - 1
            (folder / stem).mkdir(exist_ok=True)
            current.rename(folder / stem / f"{earlier + 1:04d}.md")
            data = _ended(entry, len(head))
            out, size = [head], len(head)
        out.append(data)
        size += len(data)
    _extend(current, out)


def _extend(path: Path, parts: list[bytes]) -> None:
    if parts:
        with path.open("ab") as file:
            file.write(b"".join(parts))


def _rewrite(folder: Path, stem: str, head: bytes, entries: Iterable[Numbered]) -> None:
    """Write every file of the ledger that is not as it should be, and remove the ones too many."""
    count = 0
    parts, size = [head], len(head)
    for entry in entries:
        data = _ended(entry, size)
        if size + len(data) > SEGMENT_BYTES and size > len(head):
            count += 1
            put(folder / stem / f"{count:04d}.md", b"".join(parts))
            parts, size = [head], len(head)
            data = _ended(entry, size)
        parts.append(data)
        size += len(data)
    put(folder / f"{stem}.md", b"".join(parts))
    for path in segments(folder, stem)[:-1]:
        if int(path.stem) > count:
            path.unlink()
    if not count and (folder / stem).is_dir() and not any((folder / stem).iterdir()):
        (folder / stem).rmdir()


def put(path: Path, content: bytes) -> None:
    """Write a file in one rename, unless it has this content already."""
    if keep_kind(path, stat.S_IFREG) and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    keep_kind(temporary, stat.S_IFREG)
    temporary.write_bytes(content)
    os.replace(temporary, path)


def _read(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read()
