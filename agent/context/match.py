"""A place where a pattern was found, by reference: its text and its line number are looked up when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.context.spans import Document

_LINE_CAP = 400


class Match:
    """A found byte range of a document; the number of its line, from 1, costs a count of the lines before it, once."""

    __slots__ = ("_line", "doc", "end", "start")

    def __init__(self, doc: Document, start: int, end: int) -> None:
        self.doc, self.start, self.end = doc, start, end
        self._line = 0

    @property
    def line(self) -> int:
        """Number of the line in the document, from 1."""
        if not self._line:
            self._line = self.doc.line_of(self.start)
        return self._line

    @property
    def text(self) -> str:
        """The line of the match, at most 400 characters of it, around the match when it is longer."""
        first, last = self.line_range()
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

    def line_range(self) -> tuple[int, int]:
        """Return where the line of the match starts and ends in its document, at most 1,600 bytes to each side."""
        head = self.doc.read(max(0, self.start - 4 * _LINE_CAP), self.start)
        tail = self.doc.read(self.start, self.start + 4 * _LINE_CAP)
        cut = tail.find(b"\n")
        return self.start - (len(head) - head.rfind(b"\n") - 1), self.start + (cut if cut >= 0 else len(tail))

    def __repr__(self) -> str:
        return f"<Match {self.doc.name}:{self.line}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Match) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Document, int, int]:
        return self.doc, self.start, self.end

    def __reduce__(self) -> tuple[Any, ...]:
        return Match, self._key()
