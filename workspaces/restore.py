"""Making the working files equal to a tree, after saving what they were.

The invariant: no byte that a snapshot could hold is overwritten or deleted before it is durable under
`refs/rlm-agent/rescue/<id>`; and a file that changed after it was saved is saved again first. What a snapshot
leaves out (ignored, oversized, secret) is left alone, or moved to `.rlm-agent/rescue/<id>/` when it stands in
the way.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from workspaces.changes import Difference, differences
from workspaces.checkpoint import TreeScanner, signature_of
from workspaces.errors import WorkspaceError
from workspaces.objects import EMPTY_TREE, EXECUTABLE, FILE, GITLINK, SYMLINK, TREE, Entry
from workspaces.placing import Placing
from workspaces.rules import is_dot_git
from workspaces.store import GitStore

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Restored:
    """The paths that a restore changed, and the ref that holds what was there before (None when nothing differed)."""

    changed: tuple[str, ...]
    rescue: str | None


class _ChangedMeanwhile(Exception):
    """A file is no longer what was saved."""


class Restorer:
    """Restores the work tree of one scanner."""

    def __init__(self, root: Path, private: Path, store: GitStore, scanner: TreeScanner, max_bytes: int) -> None:
        self._root, self._private = root, private
        self._store, self._scanner, self._max_bytes = store, scanner, max_bytes

    def restore(self, tree: str, rescue_id: str, saved: Collection[str] = ()) -> Restored:
        """Make the working files equal to `tree`, saving them first when they differ, unless they are one of the trees `saved`.

        Raises WorkspaceError when they keep changing meanwhile.
        """
        placing = Placing(self._root, self._private / "tmp", self._private / "rescue" / rescue_id)
        changed: dict[str, None] = {}
        rescue = None
        try:
            for _ in range(_ATTEMPTS):
                found = self._scanner.scan()
                differing = list(differences(self._store, found, tree))
                items = [item for item in differing if self._concerns(item, placing)]
                if not items:
                    self._store.barrier()
                    return Restored(tuple(changed), rescue)
                rescue = self._save(found, items, placing, rescue_id, found in saved) or rescue
                try:
                    self._apply(items, placing, changed, _empty_folders(differing))
                except _ChangedMeanwhile:
                    continue
        finally:
            placing.close()
        hint = "stop the programs that write in the workspace, then run `rlm-agent resume`"
        raise WorkspaceError(f"{self._root}: files keep changing while they are restored", hint, "restore")

    def _concerns(self, item: Difference, placing: Placing) -> bool:
        """Tell whether a difference is one to act on."""
        path, old, new = item
        parts = os.fsdecode(path).split("/")
        if parts[0] == ".rlm-agent" or parts[:2] == [".GCC", "branches"]:
            return False
        if any(is_dot_git(part) or part in ("", ".", "..") for part in parts):
            return False
        found = placing.look(path)
        if found is None:
            return new is not None
        if stat.S_ISREG(found.st_mode) and found.st_size > self._max_bytes:
            return new is not None and new.mode == TREE  # in the way of a folder; else left alone
        if old is not None or new is None:
            return True
        # Nothing that a snapshot holds is there: a file that is left out, or a folder.
        if new.mode in (TREE, GITLINK):
            return not stat.S_ISDIR(found.st_mode)
        if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
            return self._entry(path, found, placing) != new
        return True

    def _save(
        self, found: str, items: list[Difference], placing: Placing, rescue_id: str, is_saved: bool
    ) -> str | None:
        """Commit the working files, and the left-out ones that are to be overwritten, to the rescue ref."""
        extra: dict[bytes, Entry] = {}
        for path, old, new in items:
            there = placing.look(path)
            if old is None and new is not None and there is not None:
                if stat.S_ISREG(there.st_mode) or stat.S_ISLNK(there.st_mode):
                    extra[path] = self._entry(path, there, placing)
        tree = self._with(found, extra) if extra else found
        if tree == EMPTY_TREE or (is_saved and not extra):
            return None
        ref = f"refs/rlm-agent/rescue/{rescue_id}"
        earlier, head = self._store.read_ref(ref), self._store.read_ref("HEAD")
        if earlier is not None and self._store.read_object(earlier)[1][5:45].decode() == tree:
            self._store.barrier()
            return ref
        parents = [earlier] if earlier else [head] if head else []
        message = f"Working files before a restore\n\nRlm-Rescue: {rescue_id}\n"
        commit = self._store.write_commit(tree, parents, message, int(time.time()))
        self._store.barrier()
        self._store.move_ref(ref, commit, earlier)
        return ref

    def _apply(self, items: list[Difference], placing: Placing, changed: dict[str, None], keep: set[bytes]) -> None:
        for path, old, new in reversed(items):  # the inside of a folder before the folder
            if old is not None and (new is None or _is_folder(old) != _is_folder(new)):
                self._unchanged(path, old, placing)
                placing.remove(path)
                changed[os.fsdecode(path)] = None
        for path, old, new in items:
            if new is None:
                continue
            if new.mode in (TREE, GITLINK):
                self._unchanged(path, old, placing)
                placing.make_folder(path)
            else:
                _, content = self._store.read_object(new.sha)
                look = partial(self._unchanged, path, old, placing)  # a writer's window is as short as can be
                placing.write(path, content, new.mode == EXECUTABLE, new.mode == SYMLINK, look)
            changed[os.fsdecode(path)] = None
        for folder in sorted({os.path.dirname(path) for path, _, new in items if new is None}, reverse=True):
            placing.remove_if_empty(folder, keep)

    def _unchanged(self, path: bytes, old: Entry | None, placing: Placing) -> None:
        """Raise _ChangedMeanwhile when a file is not what the scan saw."""
        if old is None or old.mode in (TREE, GITLINK):
            return
        there = placing.look(path)
        if there is not None and signature_of(there) != self._scanner.signature(os.fsdecode(path)):
            raise _ChangedMeanwhile

    def _entry(self, path: bytes, found: os.stat_result, placing: Placing) -> Entry:
        mode = SYMLINK if stat.S_ISLNK(found.st_mode) else EXECUTABLE if found.st_mode & 0o100 else FILE
        return Entry(mode, self._store.write_blob(placing.read(path)))

    def _with(self, tree: str, extra: dict[bytes, Entry]) -> str:
        """Return the tree with further files in it."""
        entries = self._store.read_tree(tree)
        inner: dict[bytes, dict[bytes, Entry]] = {}
        for path, entry in extra.items():
            name, _, rest = path.partition(b"/")
            if rest:
                inner.setdefault(name, {})[rest] = entry
            else:
                entries[name] = entry
        for name, files in inner.items():
            there = entries.get(name)
            below = there.sha if there is not None and there.mode == TREE else EMPTY_TREE
            entries[name] = Entry(TREE, self._with(below, files))
        return self._store.write_tree(entries)


def _is_folder(entry: Entry) -> bool:
    return entry.mode in (TREE, GITLINK)


def _empty_folders(items: list[Difference]) -> set[bytes]:
    """Return the folders that stay although nothing is in them."""
    return {path for path, _, new in items if new is not None and _is_folder(new)}
