"""Documents and slices: a file and a byte range, which cost nothing until their text is asked for.

Offsets are bytes, lines count from 1, text is UTF-8 with replacement. A `repr` never shows content, and a slice of a slice, a
match or a chunk is again a range of its document.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from agent.context.confirm import Batch
from agent.context.lines import LineMarks, rows
from agent.context.match import Match
from agent.context.matches import Matches
from agent.context.reading import Listed, read
from agent.context.scan import Searcher

TEXT_LIMIT = 64 << 20

Ref = tuple[str, int, int]

#: What a kind is that has no text of its own, and the way to its text.
UNREAD = "its text was not taken out: `pip install 'rlm-agent-daemon[documents]'` where the run is, then resume it"


class Span:
    """A byte range of one document; offsets in its methods are bytes from its own start."""

    __slots__ = ("_marks", "doc", "end", "start")

    def __init__(self, doc: Document | None, start: int, end: int) -> None:
        self.doc: Document = doc if doc is not None else self  # type: ignore[assignment]
        self.start, self.end = start, end
        self._marks: LineMarks | None = None

    @property
    def size(self) -> int:
        """Bytes in this range."""
        return self.end - self.start

    @property
    def name(self) -> str:
        """Name of the document this range belongs to."""
        return self.doc.name

    @property
    def path(self) -> str:
        """Path of the file this range belongs to."""
        return self.doc.path

    @property
    def origin(self) -> int:
        """Offset of this range in its file."""
        return self.start if self is self.doc else self.doc.start + self.start

    @property
    def ref(self) -> Ref:
        """This range as (path, start, end) in bytes of its file."""
        return self.path, self.origin, self.origin + self.size

    @property
    def text(self) -> str:
        """Decode the range; raise `ValueError` above `TEXT_LIMIT` bytes, `OSError` when the file has changed."""
        if self.size > TEXT_LIMIT:
            raise ValueError(f"{self!r} is too large for .text: use .search, .iter_lines, .chunks or a slice")
        return self.read(0, self.size).decode("utf-8", "replace")

    def read(self, start: int, end: int) -> bytes:
        """Return bytes `start` to `end` of this range, as far as it reaches; raise `OSError` when the file has changed."""
        self.doc.check_readable()
        base = self.origin
        return read(self.doc.listed, base + max(start, 0), base + min(end, self.size))

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True  # an empty document is still a document

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Span) and self.ref == other.ref

    def __hash__(self) -> int:
        return hash(self.ref)

    def __getitem__(self, where: slice) -> Slice:
        """Refer to bytes `a:b` of this range, without reading them."""
        if not isinstance(where, slice) or where.step not in (None, 1):
            raise TypeError("take a byte range, like doc[0:2000]; .text is the text itself, .lines(a, b) are lines")
        first, last, _ = where.indices(self.size)
        base = 0 if self is self.doc else self.start
        return Slice(self.doc, base + first, base + max(first, last))

    def __iter__(self) -> Iterator[str]:
        return self.iter_lines()

    def __contains__(self, text: object) -> bool:
        """Say whether a string stands in this range, without reading more than it must."""
        if not isinstance(text, str):
            raise TypeError(f"look for a string in {self!r}, not for {type(text).__name__}")
        literal = "".join(f"\\{c}" if c in r"\.^$*+?{}[]|()" else c for c in text)
        return not text or next(self.iter_search(literal), None) is not None

    def peek(self, n: int = 500) -> str:
        """Return the first `n` characters."""
        return self.read(0, 4 * n).decode("utf-8", "replace")[:n]

    def line_of(self, offset: int) -> int:
        """Return the number of the line, from 1, that holds byte `offset`."""
        return self._lines().line_of(self.read, offset, self.size)

    def lines(self, first: int = 1, last: int | None = None) -> list[str]:
        """Return lines `first` to `last`, both included, without their ends; `last` None means to the end.

        Raises `ValueError` above `TEXT_LIMIT` bytes; `iter_lines` has no limit.
        """
        first = max(first, 1)
        count = None if last is None else max(last - first + 1, 0)
        found, size = [], 0
        for row in itertools.islice(rows(self.read, self._line_start(first), self.size, TEXT_LIMIT), count):
            size += len(row) + 1
            if size > TEXT_LIMIT - 4:  # a longer line came cut to the limit, or to the character before
                raise ValueError(f"these lines of {self!r} are too large for a list: use .iter_lines() or a slice")
            found.append(row.decode("utf-8", "replace"))
        return found

    def iter_lines(self, first: int = 1) -> Iterator[str]:
        """Yield the lines from `first` on, without their ends; a line above 1 MB comes in pieces of 1 MB."""
        return (row.decode("utf-8", "replace") for row in rows(self.read, self._line_start(first), self.size))

    def _line_start(self, line: int) -> int:
        return 0 if line <= 1 else self._lines().start_of(self.read, line, self.size)

    def _lines(self) -> LineMarks:
        if self._marks is None:
            self._marks = LineMarks()
        return self._marks

    def search(self, pattern: str, ignore_case: bool = False, limit: int = 1000) -> Matches:
        """Find `pattern` (`re` syntax, `^` and `$` at lines) in the decoded text; at most `limit` matches."""
        found = Matches()
        if limit > 0:
            self.search_into(found, Searcher(pattern, ignore_case, self.size, limit), limit)
        return found

    def search_into(self, found: Matches, searcher: Searcher, limit: int) -> None:
        """Add the matches of a prepared search until `found` holds `limit` of them."""
        doc = self.doc
        for starts, ends in self._batches(searcher):
            room = limit - len(found)
            found.add(doc, starts[:room], ends[:room])
            if len(found) >= limit:
                return

    def iter_search(self, pattern: str, ignore_case: bool = False, total: int = 0) -> Iterator[Match]:
        """Yield the matches of `pattern` one by one, as they are found; stop when you have enough."""
        searcher = Searcher(pattern, ignore_case, max(total, self.size))
        return self.iter_matches(searcher)

    def iter_matches(self, searcher: Searcher) -> Iterator[Match]:
        """Yield the matches of a prepared search one by one."""
        doc = self.doc
        for starts, ends in self._batches(searcher):
            yield from map(Match, itertools.repeat(doc), starts, ends)

    def _batches(self, searcher: Searcher) -> Iterator[Batch]:
        doc = self.doc
        doc.check_readable()
        base, low = doc.start, self.origin
        for starts, ends in searcher.batches(doc.listed, low, low + self.size):
            if base:
                yield [start - base for start in starts], [end - base for end in ends]
            else:
                yield starts, ends

    def chunks(self, chars: int | None = None, tokens: int | None = None, overlap: int = 0) -> list[Slice]:
        """Cut into slices of at most `chars` bytes (`tokens` counts four each), at line ends where one is near."""
        width = chars or 4 * (tokens or 1000)
        if overlap >= width or width < 8:
            raise ValueError("chunks need at least 8 characters and an overlap smaller than themselves")
        found: list[Slice] = []
        at = 0
        while at < self.size:
            end = self.cut(at, min(at + width, self.size))
            found.append(self[at:end])
            if end >= self.size:
                break
            at = max(self._character(end - overlap), at + 1)
        return found

    def cut(self, at: int, end: int) -> int:
        """Return a good place to cut before `end`: a line end in the last quarter from `at`, else a character's start."""
        if end >= self.size:
            return self.size
        near = max(at + (end - at) * 3 // 4, end - (1 << 16))
        newline = self.read(near, end).rfind(b"\n")
        return near + newline + 1 if newline >= 0 else max(self._character(end), at + 1)

    def _character(self, at: int) -> int:
        """Step back to the start of a UTF-8 character."""
        for back in range(4):
            byte = self.read(at - back, at - back + 1)
            if not byte or byte[0] & 0xC0 != 0x80:
                return at - back
        return at


class Document(Span):
    """One file of the context, or a byte range of it that was passed by reference."""

    __slots__ = ("_name", "kind", "listed")

    def __init__(
        self, path: str, name: str, start: int, end: int, kind: str = "text", inode: int = 0, mtime_ns: int = 0
    ) -> None:
        super().__init__(None, start, end)
        self._name, self.kind, self.listed = name, kind, Listed(path, end, inode, mtime_ns)

    @property
    def name(self) -> str:
        """Name in the context; citations use it."""
        return self._name

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.listed.path

    def check_readable(self) -> None:
        """Raise `ValueError` for a document whose text was not taken out of its format."""
        if self.kind not in ("text", "binary"):
            raise ValueError(f"{self!r}: {UNREAD}")

    def __repr__(self) -> str:
        note = "" if self.kind == "text" else f", {self.kind}"
        return f"<Document {self.name!r}, {self.size} bytes{note}>"

    def __reduce__(self) -> tuple[Any, ...]:
        path, _, inode, mtime_ns = self.listed
        return Document, (path, self._name, self.start, self.end, self.kind, inode, mtime_ns)


class Slice(Span):
    """Bytes `start` to `end` of a document, by reference; `str()` or `.text` reads them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Slice {self.name!r} bytes {self.start}-{self.end}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Slice, (self.doc, self.start, self.end)
