"""The task's material as an environment: a sequence of documents that are looked at in place and passed on by reference.

Opening reads nothing, and whatever is taken from a context (a part, a slice, a match) is a reference until its text is asked
for. Standard library only, an engine for searches aside, since this runs inside the sandbox.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, overload

from agent.context.listing import Listing, columns
from agent.context.match import Match
from agent.context.matches import Matches
from agent.context.scan import Searcher
from agent.context.spans import Document, Ref, Slice, Span

__all__ = ["Context", "Document", "Match", "Matches", "Ref", "Slice", "Span", "open_context", "open_refs", "to_refs"]


class Context(Sequence[Document]):
    """All documents of a rollout, in manifest order."""

    def __init__(self, docs: Iterable[Document]) -> None:
        self._docs: Sequence[Document] = docs if isinstance(docs, Listing) else tuple(docs)

    @property
    def docs(self) -> tuple[Document, ...]:
        """All documents; iterating the context itself makes them one by one."""
        return self._docs if isinstance(self._docs, tuple) else tuple(self._docs)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names())}

    @overload
    def __getitem__(self, where: int | str) -> Document: ...
    @overload
    def __getitem__(self, where: slice) -> Context: ...
    def __getitem__(self, where: int | str | slice) -> Document | Context:
        """Return a document by number or name, or a smaller context; raise `KeyError` with the nearest names."""
        if isinstance(where, slice):
            return Context(self._docs[where])
        if isinstance(where, int):
            return self._docs[where]
        if where not in self._index:
            near = difflib.get_close_matches(where, self._index, n=3)
            raise KeyError(f"no document {where!r}" + (f"; near: {', '.join(near)}" if near else ""))
        return self._docs[self._index[where]]

    def __len__(self) -> int:
        return len(self._docs)

    def __iter__(self) -> Iterator[Document]:
        return iter(self._docs)

    def __contains__(self, item: object) -> bool:
        return item in self._index if isinstance(item, str) else item in self._docs

    def __repr__(self) -> str:
        return f"<Context of {len(self)} documents, {self.size} bytes>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Context, (self._docs,)

    @cached_property
    def size(self) -> int:
        """Bytes of all documents."""
        return self._docs.size if isinstance(self._docs, Listing) else sum(doc.size for doc in self._docs)

    def names(self) -> list[str]:
        """Return the documents' names, in order."""
        return self._docs.names() if isinstance(self._docs, Listing) else [doc.name for doc in self._docs]

    def peek(self, n: int = 1000) -> str:
        """Say in at most `n` characters what there is: the count, then names and sizes."""
        rows = [repr(self).strip("<>"), *(f"{doc.name}  {doc.size}" for doc in self._docs[: n // 4])]
        text = "\n".join(rows)
        return text if len(text) <= n else text[: text.rfind("\n", 0, n - 2) + 1] + "…"

    def search(
        self,
        pattern: str,
        ignore_case: bool = False,
        limit: int = 1000,
        docs: Iterable[Document | str] | None = None,
    ) -> Matches:
        """Find `pattern` in every text document, or in `docs`, in order; at most `limit` matches."""
        found = Matches()
        searcher = Searcher(pattern, ignore_case, self.size, limit)
        for doc in self._searched(docs):
            if len(found) >= limit:
                break
            doc.search_into(found, searcher, limit)
        return found

    def iter_search(
        self, pattern: str, ignore_case: bool = False, docs: Iterable[Document | str] | None = None
    ) -> Iterator[Match]:
        """Yield matches one by one as they are found; nothing is read beyond what was asked for."""
        searcher = Searcher(pattern, ignore_case, self.size)
        return itertools.chain.from_iterable(doc.iter_matches(searcher) for doc in self._searched(docs))

    def _searched(self, docs: Iterable[Document | str] | None) -> Iterator[Document]:
        if docs is None:
            return (doc for doc in self._docs if doc.kind == "text")
        return (self[item] if isinstance(item, str) else item for item in docs)

    def parts(self, n: int) -> list[Context]:
        """Cut into at most `n` contexts of about equal bytes, in order; a document is cut at a line end where one is near."""
        if n < 1:
            raise ValueError(f"a context has at least one part, not {n}")
        share = max(-(-self.size // n), 1)
        found: list[list[Document]] = [[]]
        room = share
        for doc in self._docs:
            at = 0
            while True:
                end = doc.cut(at, at + room) if doc.kind in ("text", "binary") and doc.size - at > room else doc.size
                found[-1].append(doc if end - at == doc.size else _range(doc, at, end))
                room, at = room - (end - at), end
                if room <= share // 16 and len(found) < n:
                    found, room = [*found, []], share
                if at >= doc.size:
                    break
        return [Context(docs) for docs in found if docs]


def _range(doc: Document, start: int, end: int) -> Document:
    _, _, inode, mtime_ns = doc.listed
    first, last = doc.start + start, doc.start + end
    name = doc.name if "[" not in doc.name else doc.name.rpartition("[")[0]
    return Document(doc.path, f"{name}[{first}:{last}]", first, last, doc.kind, inode, mtime_ns)


class _Manifest(Protocol):
    @property
    def docs(self) -> Sequence[Any]: ...


def open_context(manifest: _Manifest | Mapping[str, Any]) -> Context:
    """Open the documents of a manifest, given as a record, as plain mappings or with its `docs` as columns; reads nothing."""
    return Context(Listing(columns(manifest["docs"] if isinstance(manifest, Mapping) else manifest.docs)))


def to_refs(obj: object) -> list[Ref]:
    """Turn a document, slice, match, context, or a list of those into (path, start, end) in bytes; a match gives its line.

    Raises `TypeError` for anything else, plain text included: that is passed as it is.
    """
    if isinstance(obj, Span):
        return [obj.ref]
    if isinstance(obj, Match):
        first, last = obj.line_range()
        return [obj.doc[first:last].ref]
    if isinstance(obj, Context | Matches | list | tuple):
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
