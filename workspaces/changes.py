"""What differs between two trees, at the cost of the differing folders alone: equal subtrees are never read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from workspaces.objects import EMPTY_TREE, SYMLINK, TREE, Entry
from workspaces.store import GitStore


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs: status A (added), D (deleted), M (modified) or T (another type)."""

    status: str
    path: str


Difference = tuple[bytes, Entry | None, Entry | None]


def differences(store: GitStore, old: str, new: str, prefix: bytes = b"") -> Iterator[Difference]:
    """Yield (path, entry in old, entry in new) for each file, link or empty folder that differs."""
    if old == new:
        return
    before, after = store.read_tree(old), store.read_tree(new)
    for name in sorted(before.keys() | after.keys()):
        a, b = before.get(name), after.get(name)
        if a == b:
            continue
        path = prefix + name
        a_tree, b_tree = (e is not None and e.mode == TREE and e.sha != EMPTY_TREE for e in (a, b))
        # A folder in the place of a file, or the other way round: the file first, then the folder's inside.
        if (a is not None and not a_tree) or (b is not None and not b_tree):
            yield path, None if a_tree else a, None if b_tree else b
        if a_tree or b_tree:
            inner_old = a.sha if a is not None and a_tree else EMPTY_TREE
            inner_new = b.sha if b is not None and b_tree else EMPTY_TREE
            yield from differences(store, inner_old, inner_new, path + b"/")


def changes(store: GitStore, old: str, new: str) -> tuple[Change, ...]:
    """Return what differs between two trees, empty folders left out."""
    found = []
    for path, a, b in differences(store, old, new):
        a, b = (None if e is not None and e.mode == TREE else e for e in (a, b))
        if a is None and b is None:
            continue
        if a is None or b is None:
            status = "A" if a is None else "D"
        else:
            status = "T" if (a.mode == SYMLINK) != (b.mode == SYMLINK) else "M"
        found.append(Change(status, os.fsdecode(path)))
    return tuple(found)
