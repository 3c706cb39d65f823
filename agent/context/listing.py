"""Documents of a manifest, each made when it is first looked at, so that a hundred thousand cost nothing to open.

A listing is columns: a path, a name, a size, a kind, an inode and a time for each document, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

from agent.context.spans import Document


class Columns(NamedTuple):
    """What is known of each document, one sequence for each kind of fact, all of one length."""

    path: Sequence[str]
    name: Sequence[str]
    size: Sequence[int]
    kind: Sequence[str]
    inode: Sequence[int]
    mtime_ns: Sequence[int]


def columns(docs: Mapping[str, Any] | Iterable[Any]) -> Columns:
    """Return the columns of documents given as columns, as mappings or as records."""
    if isinstance(docs, Mapping):
        return Columns(*(docs[name] for name in Columns._fields))
    rows = list(docs)
    if rows and isinstance(rows[0], Mapping):
        optional = {"kind": "text", "inode": 0, "mtime_ns": 0}
        return Columns(*([row.get(name, optional.get(name)) for row in rows] for name in Columns._fields))
    return Columns(*([getattr(row, name) for row in rows] for name in Columns._fields))


class Listing(Sequence[Document]):
    """The documents of columns; the same object for the same number every time."""

    def __init__(self, facts: Columns) -> None:
        self._facts = facts
        self._made: list[Document | None] = [None] * len(facts.path)

    @overload
    def __getitem__(self, where: int) -> Document: ...
    @overload
    def __getitem__(self, where: slice) -> tuple[Document, ...]: ...
    def __getitem__(self, where: int | slice) -> Document | tuple[Document, ...]:
        """Return a document, or several; raise `IndexError`."""
        if isinstance(where, slice):
            return tuple(self[number] for number in range(len(self))[where])
        doc = self._made[where]
        if doc is None:
            path, name, size, kind, inode, mtime_ns = self._facts
            doc = self._made[where] = Document(
                path[where], name[where], 0, size[where], kind[where], inode[where], mtime_ns[where]
            )
        return doc

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[Document]:
        return map(self.__getitem__, range(len(self)))

    def names(self) -> list[str]:
        """Return the documents' names, in order."""
        return list(self._facts.name)

    @property
    def size(self) -> int:
        """Bytes of all documents."""
        return sum(self._facts.size)

    def __reduce__(self) -> tuple[Any, ...]:
        return Listing, (self._facts,)
