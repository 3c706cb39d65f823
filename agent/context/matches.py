"""The result of a search: a list of matches of which only the offsets are held until one is looked at.

A match takes 16 bytes instead of an object. It reads like a list of `Match`: length, index, slice, iteration, equality with a
list; what changes a list (`+`, `sorted`) gives a plain one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, overload

from agent.context.match import Match

if TYPE_CHECKING:
    from agent.context.spans import Document

_SHOWN = 20


class Matches(Sequence[Match]):
    """Matches in order; grows by `add` while it is made, and never after."""

    __slots__ = ("_docs", "_ends", "_firsts", "_starts")

    def __init__(self) -> None:
        self._docs: list[Document] = []
        self._firsts: list[int] = []  # where the matches of each document begin
        self._starts, self._ends = array("Q"), array("Q")

    def add(self, doc: Document, starts: Sequence[int], ends: Sequence[int]) -> None:
        """Append matches of a document at these offsets, as many of each."""
        if not self._docs or self._docs[-1] is not doc:
            self._docs.append(doc)
            self._firsts.append(len(self._starts))
        self._starts.extend(starts)
        self._ends.extend(ends)

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, where: int) -> Match: ...
    @overload
    def __getitem__(self, where: slice) -> Matches: ...
    def __getitem__(self, where: int | slice) -> Match | Matches:
        """Return a match by number, or some of them; raise `IndexError`."""
        if isinstance(where, slice):
            return self._some(range(len(self))[where])
        start, end = self._starts[where], self._ends[where]
        return Match(self._docs[bisect_right(self._firsts, where % len(self)) - 1], start, end)

    def _some(self, numbers: range) -> Matches:
        found = Matches()
        if numbers.step != 1:
            for number in numbers:
                match = self[number]
                found.add(match.doc, [match.start], [match.end])
            return found
        for doc, first, last in self._runs():
            if first >= numbers.stop:
                break
            here = slice(max(first, numbers.start), max(min(last, numbers.stop), first))
            if here.start < here.stop:
                found.add(doc, self._starts[here], self._ends[here])
        return found

    def _runs(self) -> Iterator[tuple[Document, int, int]]:
        """Yield each document with the numbers of its first match and of the next document's."""
        return zip(self._docs, self._firsts, [*self._firsts[1:], len(self)], strict=False)

    def __iter__(self) -> Iterator[Match]:
        for doc, first, last in self._runs():
            yield from map(Match, repeat(doc), self._starts[first:last], self._ends[first:last])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Matches, list)) and len(self) == len(other) and all(map(Match.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Sequence[Match]) -> list[Match]:
        return [*self, *other]

    def __radd__(self, other: Sequence[Match]) -> list[Match]:
        return [*other, *self]

    def __repr__(self) -> str:
        rest = f", … {len(self)} in all" if len(self) > _SHOWN else ""
        return f"[{', '.join(map(repr, self[:_SHOWN]))}{rest}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._docs, self._firsts, self._starts, self._ends)


def _restored(docs: list[Document], firsts: list[int], starts: array[int], ends: array[int]) -> Matches:
    found = Matches()
    found._docs, found._firsts, found._starts, found._ends = docs, firsts, starts, ends
    return found
