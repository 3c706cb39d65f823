"""The task's material as an environment: documents that are looked at in place and passed on by reference.

Nothing is read when a context is opened; a document is memory-mapped when it is first looked at, and only the latest few
stay mapped. A slice or a match is a document and a byte range, so it costs nothing until its text is asked for, and its
`repr` never shows content. Standard library only, since this runs inside the sandbox.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, overload

from agent.context.mapping import mapped
from agent.context.pattern import find

TEXT_LIMIT = 64 << 20
_BLOCK = 1 << 18
_LINE_CAP = 400

Ref = tuple[str, int, int]


class Span:
    """A byte range of one document; offsets in its methods are bytes from its own start, lines count from 1."""

    __slots__ = ("_marks", "doc", "end", "start")

    def __init__(self, doc: Document | None, start: int, end: int) -> None:
        self.doc: Document = doc if doc is not None else self  # type: ignore[assignment]
        self.start, self.end = start, end
        self._marks: list[int] = [0]

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
    def text(self) -> str:
        """Decode the range as UTF-8 with replacement; raise `ValueError` above `TEXT_LIMIT` bytes."""
        if self.size > TEXT_LIMIT:
            raise ValueError(f"{self!r} is too large for .text: use .search, .lines, .chunks or a slice")
        return self._bytes(0, self.size).decode("utf-8", "replace")

    def _origin(self) -> int:
        """Return the offset of this range in its file."""
        return self.start if self is self.doc else self.doc.start + self.start

    def _bytes(self, start: int, end: int) -> bytes:
        base = self._origin()
        return mapped(self.path)[base + max(start, 0) : base + min(end, self.size)]

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True  # an empty document is still a document

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Span) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> Ref:
        return self.path, self._origin(), self._origin() + self.size

    def __getitem__(self, where: slice) -> Slice:
        """Refer to bytes `a:b` of this range, without reading them."""
        if not isinstance(where, slice) or where.step not in (None, 1):
            raise TypeError("take a byte range, like doc[0:2000]; .text is the text itself")
        first, last, _ = where.indices(self.size)
        base = 0 if self is self.doc else self.start
        return Slice(self.doc, base + first, base + max(first, last))

    def peek(self, n: int = 500) -> str:
        """Return the first `n` characters."""
        return self._bytes(0, 4 * n).decode("utf-8", "replace")[:n]

    def line_of(self, offset: int) -> int:
        """Return the number of the line, from 1, that holds byte `offset`."""
        block = min(max(offset, 0), self.size) // _BLOCK
        while len(self._marks) <= block:
            at = (len(self._marks) - 1) * _BLOCK
            self._marks.append(self._marks[-1] + self._bytes(at, at + _BLOCK).count(b"\n"))
        return 1 + self._marks[block] + self._bytes(block * _BLOCK, offset).count(b"\n")

    def lines(self, first: int = 1, last: int | None = None) -> list[str]:
        """Return lines `first` to `last`, both included, without their line ends; `last` None means to the end."""
        start = self._line_start(max(first, 1))
        end = self.size if last is None else self._line_start(last + 1)
        block = self._bytes(start, end)
        rows = [row.removesuffix(b"\r") for row in block.split(b"\n")]
        if block.endswith(b"\n") or not block:
            rows.pop()
        return [row.decode("utf-8", "replace") for row in rows]

    def _line_start(self, line: int) -> int:
        """Return the offset at which `line` begins, or the size when there are fewer lines."""
        block = 0
        while True:
            self.line_of(min((block + 1) * _BLOCK, self.size))
            if block + 1 >= len(self._marks) or self._marks[block + 1] >= line - 1:
                break
            block += 1
        at, missing = block * _BLOCK, line - 1 - self._marks[block]
        data = self._bytes(at, at + _BLOCK)
        found = -1
        for _ in range(missing):
            found = data.find(b"\n", found + 1)
            if found < 0:
                return self.size
        return at + found + 1 if missing > 0 else at

    def search(self, pattern: str, ignore_case: bool = False, limit: int = 1000) -> list[Match]:
        """Find `pattern` (`re` syntax, `^` and `$` at lines); ASCII patterns see bytes, so `\\w` is ASCII there."""
        return list(self._search(pattern, ignore_case, limit))

    def _search(self, pattern: str, ignore_case: bool, limit: int) -> Iterator[Match]:
        counter = Span(self.doc, self.start, self.end) if self is not self.doc else self
        for start, end in find(pattern, ignore_case, mapped(self.path), self._origin(), self.size, limit):
            base = 0 if self is self.doc else self.start
            yield Match(
                self.doc,
                counter.line_of(start) + (0 if not base else self.doc.line_of(base) - 1),
                base + start,
                base + end,
            )

    def chunks(self, chars: int | None = None, tokens: int | None = None, overlap: int = 0) -> list[Slice]:
        """Cut into slices of at most `chars` bytes (`tokens` counts four each), at line ends where one is near."""
        width = chars or 4 * (tokens or 1000)
        if overlap >= width or width < 8:
            raise ValueError("chunks need at least 8 characters and an overlap smaller than themselves")
        found: list[Slice] = []
        at = 0
        while at < self.size:
            end = self._cut(at, min(at + width, self.size))
            found.append(self[at:end])
            if end >= self.size:
                break
            at = max(self._character(end - overlap), at + 1)
        return found

    def _cut(self, at: int, end: int) -> int:
        if end >= self.size:
            return end
        near = at + (end - at) * 3 // 4
        newline = self._bytes(near, end).rfind(b"\n")
        return near + newline + 1 if newline >= 0 else max(self._character(end), at + 1)

    def _character(self, at: int) -> int:
        """Step back to the start of a UTF-8 character."""
        for back in range(4):
            byte = self._bytes(at - back, at - back + 1)
            if not byte or byte[0] & 0xC0 != 0x80:
                return at - back
        return at


class Document(Span):
    """One file of the context, or a byte range of it that was passed by reference."""

    __slots__ = ("_name", "_path", "kind")

    def __init__(self, path: str, name: str, start: int, end: int, kind: str = "text") -> None:
        super().__init__(None, start, end)
        self._path, self._name, self.kind = path, name, kind

    @property
    def name(self) -> str:
        """Name in the context; citations use it."""
        return self._name

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._path

    def __repr__(self) -> str:
        note = "" if self.kind == "text" else f", {self.kind}"
        return f"<Document {self.name!r}, {self.size} bytes{note}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Document, (self._path, self._name, self.start, self.end, self.kind)


class Slice(Span):
    """Bytes `start` to `end` of a document, by reference; `str()` or `.text` reads them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Slice {self.name!r} bytes {self.start}-{self.end}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Slice, (self.doc, self.start, self.end)


class Match:
    """A place where a pattern was found: document, line from 1, byte range, and the text of its line (capped)."""

    __slots__ = ("doc", "end", "line", "start")

    def __init__(self, doc: Document, line: int, start: int, end: int) -> None:
        self.doc, self.line, self.start, self.end = doc, line, start, end

    @property
    def text(self) -> str:
        """The line of the match, at most 400 characters of it, around the match when it is longer."""
        first, last = self._line_range()
        if last - first > _LINE_CAP:
            first = max(first, self.start - _LINE_CAP // 4)
            last = min(last, first + _LINE_CAP)
        return self.doc[first:last].text.rstrip("\r")

    @property
    def matched(self) -> str:
        """The matched text itself."""
        return self.doc[self.start : self.end].text

    def around(self, before: int = 2, after: int = 2) -> str:
        """Return the lines around the match."""
        return "\n".join(self.doc.lines(self.line - before, self.line + after))

    def _line_range(self) -> tuple[int, int]:
        head = self.doc._bytes(max(0, self.start - 4 * _LINE_CAP), self.start)
        tail = self.doc._bytes(self.start, self.start + 4 * _LINE_CAP)
        cut = tail.find(b"\n")
        return self.start - (len(head) - head.rfind(b"\n") - 1), self.start + (cut if cut >= 0 else len(tail))

    def __repr__(self) -> str:
        return f"<Match {self.doc.name}:{self.line}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Match) and (self.doc, self.start, self.end) == (
            other.doc,
            other.start,
            other.end,
        )

    def __hash__(self) -> int:
        return hash((self.doc, self.start, self.end))

    def __reduce__(self) -> tuple[Any, ...]:
        return Match, (self.doc, self.line, self.start, self.end)


class Context(Sequence[Document]):
    """All documents of a rollout, in manifest order."""

    def __init__(self, docs: Iterable[Document]) -> None:
        self.docs: tuple[Document, ...] = tuple(docs)
        self._index = {doc.name: doc for doc in self.docs}

    @overload
    def __getitem__(self, where: int | str) -> Document: ...
    @overload
    def __getitem__(self, where: slice) -> Context: ...
    def __getitem__(self, where: int | str | slice) -> Document | Context:
        """Return a document by number or name, or a smaller context; raise `KeyError` with the nearest names."""
        if isinstance(where, slice):
            return Context(self.docs[where])
        if isinstance(where, int):
            return self.docs[where]
        if where not in self._index:
            near = difflib.get_close_matches(where, self._index, n=3)
            raise KeyError(f"no document {where!r}" + (f"; near: {', '.join(near)}" if near else ""))
        return self._index[where]

    def __len__(self) -> int:
        return len(self.docs)

    def __contains__(self, item: object) -> bool:
        return item in self._index if isinstance(item, str) else item in self.docs

    def __repr__(self) -> str:
        return f"<Context of {len(self)} documents, {self.size} bytes>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Context, (self.docs,)

    @property
    def size(self) -> int:
        """Bytes of all documents."""
        return sum(doc.size for doc in self.docs)

    def names(self) -> list[str]:
        """Return the documents' names, in order."""
        return [doc.name for doc in self.docs]

    def peek(self, n: int = 1000) -> str:
        """Say in at most `n` characters what there is: the count, then names and sizes."""
        rows = [repr(self).strip("<>"), *(f"{doc.name}  {doc.size}" for doc in self.docs[: n // 4])]
        text = "\n".join(rows)
        return text if len(text) <= n else text[: text.rfind("\n", 0, n - 2) + 1] + "…"

    def search(
        self,
        pattern: str,
        ignore_case: bool = False,
        limit: int = 1000,
        docs: Iterable[Document | str] | None = None,
    ) -> list[Match]:
        """Find `pattern` in every text document, or in `docs`, in order; at most `limit` matches."""
        found: list[Match] = []
        for item in self.docs if docs is None else docs:
            doc = self[item] if isinstance(item, str) else item
            if doc.kind == "text" or docs is not None:
                found.extend(doc._search(pattern, ignore_case, limit - len(found)))
            if len(found) >= limit:
                break
        return found


class _Entry(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def kind(self) -> str: ...


class _Manifest(Protocol):
    @property
    def docs(self) -> Sequence[_Entry]: ...


def open_context(manifest: _Manifest | Mapping[str, Any]) -> Context:
    """Open the documents of a manifest, given as a record or as plain mappings; reads nothing."""
    if isinstance(manifest, Mapping):
        return Context(
            Document(doc["path"], doc["name"], 0, doc["size"], doc.get("kind", "text")) for doc in manifest["docs"]
        )
    return Context(Document(doc.path, doc.name, 0, doc.size, doc.kind) for doc in manifest.docs)


def to_refs(obj: object) -> list[Ref]:
    """Turn a document, slice, match, context, or a list of those into (path, start, end) in bytes; a match gives its line.

    Raises `TypeError` for anything else, plain text included: that is passed as it is.
    """
    if isinstance(obj, Span):
        return [obj._key()]
    if isinstance(obj, Match):
        first, last = obj._line_range()
        return [obj.doc[first:last]._key()]
    if isinstance(obj, Context | list | tuple):
        return [ref for item in obj for ref in to_refs(item)]
    raise TypeError(f"{type(obj).__name__} is not a document, slice or match, so it can't be passed by reference")


def open_refs(refs: Iterable[Ref], names: Mapping[str, str] | None = None) -> Context:
    """Open byte ranges as a context of their own; `names` maps paths to document names, a part says its byte range."""
    docs = []
    for path, start, end in refs:
        name = (names or {}).get(path, os.path.basename(path))
        whole = start == 0 and end == os.path.getsize(path)
        docs.append(Document(path, name if whole else f"{name}[{start}:{end}]", start, end))
    return Context(docs)
