"""The working files as a git tree, at the cost of what changed: the kernel's marks say where to look, and that is hashed.

The invariant: the tree holds each file's bytes as they were at some moment of the scan. A full look, which comes first, now and
then, and in any doubt, costs one `lstat` a file: one is taken for unchanged only when size, mode, inode and both times are those
of the last look, and its change time was older than the clock's tick at that look: a rewrite within the tick (racy-clean) is
hashed again. Folders are walked by descriptor and never through a link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from workspaces.choosing import Choosing, Marked, Name
from workspaces.marks import Marks
from workspaces.objects import EMPTY_TREE, EXECUTABLE, FILE, GITLINK, SYMLINK, TREE
from workspaces.seen import (
    FOLDER,
    MAX_DEPTH,
    MAX_FILE_BYTES,
    File,
    Folder,
    Scope,
    Signature,
    Skipped,
    is_racy,
    matches,
    read_at,
    same,
    signature_of,
)
from workspaces.store import GitStore

_FULL_EVERY = 64  # scans, for what no mark tells of

Changed = Mapping[str, Mapping[str, bool]]


class TreeScanner:
    """Makes trees of one folder, remembering what it saw."""

    def __init__(self, root: Path, store: GitStore, scope: Scope, marked: bool = False) -> None:
        self._root, self._store, self._scope = root, store, scope
        self._top = Folder()
        self._choose = Choosing(scope)
        #: None until the first scan, so that who only reads has no descriptor open
        self._marks: Marks | None = None
        self._marked, self._since_full = marked, 0
        self._watched: dict[int, tuple[str, Folder]] = {}

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """What scans have left out and is still there, besides what the user's rules name."""
        found: list[Skipped] = []
        folders = [self._top]
        for folder in folders:
            found += folder.skipped
            folders += folder.folders.values()
        return tuple(found)

    def scan(self, full: bool | None = None) -> str:
        """Return the sha of the tree of the files as they are; its objects are durable after the store's `barrier()`.

        `full` asks for a full look, or with False for none that is not needed.
        """
        again = self._choose.refresh(lambda path: self.signature(path) is not None)
        try:
            changed = self._changed()
            due = self._since_full >= _FULL_EVERY if full is None else full
            top = os.open(self._root, FOLDER)
            try:
                if changed is None or again or due or not self._top.scanned:
                    self._since_full = 0
                    self._scan(top, "", self._top, again, False, 0)
                else:
                    self._since_full += 1
                    self._look(top, "", self._top, changed, _below(changed), 0)
            finally:
                os.close(top)
        except BaseException:
            self.forget()
            raise
        return self._top.sha.hex() if self._top.sha is not None else self._store.write_tree({})

    def forget(self) -> None:
        """Look at everything again: what was seen may point at objects that were never made durable."""
        self._top = Folder()
        self._watched = {}

    def close(self) -> None:
        """Let go of the marks."""
        if self._marks is not None:
            self._marks.close()

    def signature(self, path: str) -> Signature | None:
        """Return what the last scan saw of a file, or None when it saw none there."""
        folder = self._top
        *parents, name = path.split("/")
        for parent in parents:
            found = folder.folders.get(parent)
            if found is None:
                return None
            folder = found
        file = folder.files.get(name)
        return file.signature if file is not None else None

    def _scan(self, fd: int, prefix: str, node: Folder, again: bool, fresh: bool, depth: int) -> None:
        """Bring `node` up to date: `again` decides anew what is left out, `fresh` also asks git's rules anew."""
        self._watch(fd, prefix, node)
        with os.scandir(fd) as found:
            entries = list(found)
        if self._scope.rules is not None and self._choose.rules_changed(
            fd, node, any(e.name == ".gitignore" for e in entries)
        ):
            fresh = True
        if fresh:
            node.verdicts = {}
        again = again or fresh or not node.scanned
        files: dict[str, File] = {}
        folders: dict[str, Folder] = {}
        known, old_folders, changed = node.files, node.folders, not node.scanned
        new: list[Name] = []
        inside: list[Name] = []
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                (new if again or name not in old_folders else inside).append(entry)
                continue
            seen = known.get(name)
            if seen is None or again:
                new.append(entry)
            elif not seen.racy and matches(entry, seen.signature):
                files[name] = seen
            else:
                new.append(entry)
        skipped: list[Skipped] = []
        links: dict[str, str] = {} if again else dict(node.links)
        for kept in self._choose.kept(prefix, node, new, links, skipped):
            if kept.is_dir(follow_symlinks=False):
                inside.append(kept)
                continue
            file = self._file(fd, kept.name, prefix, known.get(kept.name), skipped)
            if file is not None:
                files[kept.name] = file
        for folder in inside:
            child = old_folders.get(folder.name) or Folder()
            before = child.sha
            if self._descend(fd, prefix, folder.name, child, again, fresh, depth, skipped):
                folders[folder.name] = child
                changed = changed or child.sha != before
        node.skipped = tuple(skipped)
        changed = changed or links != node.links or folders.keys() != old_folders.keys() or not same(files, known)
        node.files, node.folders, node.links, node.scanned = files, folders, links, True
        if changed:
            node.sha = self._write(node, bool(entries))

    def _changed(self) -> Changed | None:
        """Return the names that are marked, by folder; None for a full look."""
        if not self._marked:
            return None
        if self._marks is None:
            self._marks = Marks(self._root)
        marks = self._marks.take()
        if marks is None:
            return None
        changed: dict[str, dict[str, bool]] = {}
        for watch, names in marks.items():
            prefix, node = self._watched.get(watch, ("", None))
            if node is None or node.watch != watch:
                self._marks.drop(watch)
            elif not names and node is self._top:
                return None  # the root itself was moved or removed
            elif ".gitignore" in names and self._scope.rules is not None:
                return None
            else:  # a folder that was there before this one may have left notes, too
                known = changed.setdefault(prefix, {})
                known.update({name: replaced or known.get(name, False) for name, replaced in names.items()})
        return changed

    def _watch(self, fd: int, prefix: str, node: Folder) -> None:
        """Have what changes in a folder marked, before it is listed: nothing can come between."""
        if self._marks is None or not self._marks.works:
            return
        node.watch = self._marks.watch(fd)
        if node.watch is not None:
            self._watched[node.watch] = prefix, node

    def _look(
        self, fd: int, prefix: str, node: Folder, changed: Changed, below: Mapping[str, set[str]], depth: int
    ) -> None:
        """Bring `node` up to date by its marks and those below it."""
        dirty = prefix in changed and self._look_at(fd, prefix, node, changed[prefix], depth)
        for name in below.get(prefix, ()):
            child = node.folders.get(name)
            if child is None:
                continue  # gone, or left out
            try:
                inner = os.open(name, FOLDER, dir_fd=fd)
            except OSError:
                dirty = self._look_at(fd, prefix, node, {name: True}, depth) or dirty
                continue
            before = child.sha
            try:
                self._look(inner, f"{prefix}{name}/", child, changed, below, depth + 1)
            finally:
                os.close(inner)
            dirty = dirty or child.sha != before
        if not (node.files or node.folders or node.links):
            node.scanned = False  # empty, or only with what is left out: that makes a difference
            self._scan(fd, prefix, node, False, False, depth)
        elif dirty:
            node.sha = self._write(node, True)

    def _look_at(self, fd: int, prefix: str, node: Folder, names: Mapping[str, bool], depth: int) -> bool:
        """Look at some names of a folder; say whether its tree is another now."""
        dirty, skipped = False, [item for item in node.skipped if item.path.removeprefix(prefix) not in names]
        for name, replaced in names.items():
            try:
                mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
            except OSError:
                mode = 0
            if stat.S_ISDIR(mode) and name in node.folders and not replaced:
                continue  # its own attributes are in no tree
            old, folder = node.files.pop(name, None), node.folders.pop(name, None)
            dirty = dirty or folder is not None
            links: dict[str, str] = {}
            known = old is not None and not stat.S_ISDIR(mode) and not replaced
            there = mode and (known or self._choose.kept(prefix, node, [Marked(name, mode)], links, skipped))
            dirty = node.links.pop(name, None) != links.get(name) or dirty
            node.links.update(links)
            if there and stat.S_ISDIR(mode):
                child = Folder()
                if self._descend(fd, prefix, name, child, False, False, depth, skipped):
                    node.folders[name] = child
                    dirty = True
            elif there and (file := self._file(fd, name, prefix, None, skipped)) is not None:
                node.files[name] = file
                dirty = dirty or old is None or (old.sha, old.mode) != (file.sha, file.mode)
                continue
            dirty = dirty or old is not None
        node.skipped = tuple(skipped)
        return dirty

    def _descend(
        self,
        fd: int,
        prefix: str,
        name: str,
        child: Folder,
        again: bool,
        fresh: bool,
        depth: int,
        skipped: list[Skipped],
    ) -> bool:
        path = prefix + name
        if depth >= MAX_DEPTH:
            skipped.append(Skipped(path, "deep"))
            return False
        try:
            inner = os.open(name, FOLDER, dir_fd=fd)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            skipped.append(Skipped(path, "unreadable"))
            return False
        try:
            self._scan(inner, path + "/", child, again, fresh, depth + 1)
        finally:
            os.close(inner)
        return True

    def _file(self, fd: int, name: str, prefix: str, seen: File | None, skipped: list[Skipped]) -> File | None:
        """Hash one file or link; None when it is gone or left out."""
        path = prefix + name
        try:
            before = os.stat(name, dir_fd=fd, follow_symlinks=False)
            signature = signature_of(before)
            if seen is not None and not seen.racy and seen.signature == signature:
                return seen
            if stat.S_ISLNK(before.st_mode):
                content, mode = os.fsencode(os.readlink(name, dir_fd=fd)), SYMLINK
            elif not stat.S_ISREG(before.st_mode):
                skipped.append(Skipped(path, "special"))
                return None
            elif before.st_size > self._scope.max_bytes:
                skipped.append(Skipped(path, "oversized", before.st_size))
                return self._choose.last_tracked(path, signature)
            else:
                mode = EXECUTABLE if before.st_mode & 0o100 else FILE
                content = read_at(fd, name)
            after = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError:
            skipped.append(Skipped(path, "unreadable"))
            return self._choose.last_tracked(path, (0, 0, 0, 0, 0))
        racy = signature_of(after) != signature or is_racy(after.st_ctime_ns)
        return File(signature, racy, mode, bytes.fromhex(self._store.write_blob(content)))

    def _write(self, node: Folder, has_entries: bool) -> bytes | None:
        parts = [(os.fsencode(name), file.mode, file.sha) for name, file in node.files.items()]
        parts += [(os.fsencode(name), GITLINK, bytes.fromhex(sha)) for name, sha in node.links.items()]
        rows = [(name, b"%o %s\0%s" % (mode, name, sha)) for name, mode, sha in parts]
        for name, child in node.folders.items():
            if child.sha is not None:
                raw = os.fsencode(name)
                rows.append((raw + b"/", b"%o %s\0%s" % (TREE, raw, child.sha)))
        if not rows and has_entries:
            return None  # only things that are left out
        # A truly empty folder becomes an empty tree: a cell run again after a rollback finds the folders it relied on.
        rows.sort()
        return bytes.fromhex(self._store.write_tree_bytes(b"".join(row for _, row in rows)))


def _below(changed: Changed) -> dict[str, set[str]]:
    """Return for each folder on the way to a marked one the names to go on through."""
    below: dict[str, set[str]] = {}
    for prefix in changed:
        at = ""
        for name in prefix.split("/")[:-1]:
            below.setdefault(at, set()).add(name)
            at += f"{name}/"
    return below


__all__ = ["EMPTY_TREE", "MAX_FILE_BYTES", "Scope", "Skipped", "TreeScanner", "signature_of"]
