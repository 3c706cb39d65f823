"""The working files as a git tree, at the cost of one `lstat` a file and of hashing what changed.

The invariant: the tree holds each file's bytes as they were at some moment of the scan. A file is taken for
unchanged only when size, mode, inode and both times are those of the last look, and its change time was older
than the clock's tick at that look: a rewrite within the tick (racy-clean) is hashed again. Folders are walked
by descriptor and never through a link.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path

from workspaces.objects import EMPTY_TREE, EXECUTABLE, FILE, GITLINK, SYMLINK, TREE
from workspaces.rules import IgnoreRules, Tracked, is_dot_git, is_secret
from workspaces.store import GitStore

MAX_FILE_BYTES = 50 * 1024 * 1024
MAX_DEPTH = 200
_TICK_NS = 30_000_000
_COARSE_TICK_NS = 2_500_000_000  # file systems that keep whole seconds
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Signature = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A path that a snapshot leaves out, and why: oversized, secret, git, special, unreadable, deep."""

    path: str
    reason: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class _File:
    signature: Signature
    racy: bool
    mode: int
    sha: bytes


@dataclass(slots=True)
class _Folder:
    """What the last scan saw in one folder."""

    files: dict[str, _File] = field(default_factory=dict)
    folders: dict[str, _Folder] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    verdicts: dict[str, bool] = field(default_factory=dict)
    rules: bytes | None = None
    skipped: tuple[Skipped, ...] = ()
    #: sha of the folder's tree; None when there is nothing in it that a snapshot holds
    sha: bytes | None = None
    scanned: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """What a scan covers: everything, or what a user's work tree holds."""

    rules: IgnoreRules | None = None
    tracked: Tracked | None = None
    #: paths, relative to the root, that are not looked at
    left_out: frozenset[str] = frozenset({".rlm-agent", ".GCC/branches"})
    max_bytes: int = MAX_FILE_BYTES


class TreeScanner:
    """Makes trees of one folder, remembering what it saw."""

    def __init__(self, root: Path, store: GitStore, scope: Scope) -> None:
        self._root, self._store, self._scope = root, store, scope
        self._top = _Folder()
        self._skipped: list[Skipped] = []
        self._rules_read_again = False

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """What the last scan left out, besides what the user's rules name."""
        return tuple(self._skipped)

    def scan(self) -> str:
        """Return the sha of the tree of the files as they are; its objects are durable after the store's `barrier()`."""
        self._skipped, self._rules_read_again = [], False
        tracked = self._scope.tracked
        again = tracked.refresh() if tracked is not None else False
        try:
            top = os.open(self._root, _FOLDER)
            try:
                self._scan(top, "", self._top, again, False, 0)
            finally:
                os.close(top)
        except BaseException:
            self.forget()
            raise
        return self._top.sha.hex() if self._top.sha is not None else self._store.write_tree({})

    def forget(self) -> None:
        """Look at everything again: what was seen may point at objects that were never made durable."""
        self._top = _Folder()

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

    def _scan(self, fd: int, prefix: str, node: _Folder, again: bool, fresh: bool, depth: int) -> None:
        """Bring `node` up to date: `again` decides anew what is left out, `fresh` also asks git's rules anew."""
        with os.scandir(fd) as found:
            entries = list(found)
        if self._scope.rules is not None and self._rules_changed(
            fd, node, any(e.name == ".gitignore" for e in entries)
        ):
            fresh = True
        if fresh:
            node.verdicts = {}
        again = again or fresh or not node.scanned
        files: dict[str, _File] = {}
        folders: dict[str, _Folder] = {}
        known, old_folders, changed = node.files, node.folders, not node.scanned
        new: list[os.DirEntry[str]] = []
        inside: list[os.DirEntry[str]] = []
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                (new if again or name not in old_folders else inside).append(entry)
                continue
            seen = known.get(name)
            if seen is None or again:
                new.append(entry)
            elif not seen.racy and _matches(entry, seen.signature):
                files[name] = seen
            else:
                new.append(entry)
        skipped: list[Skipped] = []
        links: dict[str, str] = {} if again else dict(node.links)
        for entry in self._kept(prefix, node, new, links, skipped):
            if entry.is_dir(follow_symlinks=False):
                inside.append(entry)
                continue
            file = self._file(fd, entry.name, prefix, known.get(entry.name), skipped)
            if file is not None:
                files[entry.name] = file
        for entry in inside:
            child = old_folders.get(entry.name) or _Folder()
            before = child.sha
            if self._descend(fd, prefix, entry.name, child, again, fresh, depth, skipped):
                folders[entry.name] = child
                changed = changed or child.sha != before
        self._skipped += skipped
        changed = changed or links != node.links or folders.keys() != old_folders.keys() or not _same(files, known)
        node.files, node.folders, node.links, node.scanned = files, folders, links, True
        if changed:
            node.sha = self._write(node, bool(entries))

    def _descend(
        self,
        fd: int,
        prefix: str,
        name: str,
        child: _Folder,
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
            inner = os.open(name, _FOLDER, dir_fd=fd)
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

    def _kept(
        self,
        prefix: str,
        node: _Folder,
        entries: list[os.DirEntry[str]],
        links: dict[str, str],
        skipped: list[Skipped],
    ) -> list[os.DirEntry[str]]:
        """Return those of the entries that a snapshot holds."""
        scope = self._scope
        kept: list[os.DirEntry[str]] = []
        open_questions: list[os.DirEntry[str]] = []
        for entry in entries:
            name, path = entry.name, prefix + entry.name
            if path in scope.left_out or (name == ".git" and scope.rules is not None):
                continue
            if is_dot_git(name) or (name.lower() == ".gitmodules" and entry.is_symlink()):
                skipped.append(Skipped(path, "git"))
                continue
            link = self._gitlink(path)
            if link is not None and entry.is_dir(follow_symlinks=False):
                links[name] = link
                continue
            if scope.rules is None or self._is_tracked(path):
                kept.append(entry)
            elif is_secret(name):
                skipped.append(Skipped(path, "secret"))
            else:
                open_questions.append(entry)
        if open_questions and scope.rules is not None:
            unknown = [entry.name for entry in open_questions if entry.name not in node.verdicts]
            answers = scope.rules.ignored([prefix + name for name in unknown])
            node.verdicts.update(zip(unknown, answers, strict=True))
            kept += [entry for entry in open_questions if not node.verdicts[entry.name]]
        return kept

    def _gitlink(self, path: str) -> str | None:
        tracked = self._scope.tracked
        found = tracked.files.get(path) if tracked is not None else None
        return found[1] if found is not None and found[0] == GITLINK else None

    def _is_tracked(self, path: str) -> bool:
        tracked = self._scope.tracked
        return tracked is not None and (path in tracked.files or path in tracked.folders)

    def _rules_changed(self, fd: int, node: _Folder, present: bool) -> bool:
        """Tell whether this folder's `.gitignore` is another than at the last scan, and have git read it again."""
        content = None
        if present:
            try:
                content = _read_at(fd, ".gitignore")
            except OSError:
                content = None
        if content == node.rules:
            return False
        node.rules = content
        if self._scope.rules is not None and not self._rules_read_again:
            # Once a scan is enough: git reads a folder's rules when it is first asked about something inside.
            self._scope.rules.forget()
            self._rules_read_again = True
        return True

    def _file(self, fd: int, name: str, prefix: str, seen: _File | None, skipped: list[Skipped]) -> _File | None:
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
                return self._last_tracked(path, signature)
            else:
                mode = EXECUTABLE if before.st_mode & 0o100 else FILE
                content = _read_at(fd, name)
            after = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError:
            skipped.append(Skipped(path, "unreadable"))
            return self._last_tracked(path, (0, 0, 0, 0, 0))
        racy = signature_of(after) != signature or _is_racy(after.st_ctime_ns)
        return _File(signature, racy, mode, bytes.fromhex(self._store.write_blob(content)))

    def _last_tracked(self, path: str, signature: Signature) -> _File | None:
        """Keep what git has of a file that can't be taken in now: leaving it out would delete it from the branch."""
        tracked = self._scope.tracked
        found = tracked.files.get(path) if tracked is not None else None
        return _File(signature, True, found[0], bytes.fromhex(found[1])) if found is not None else None

    def _write(self, node: _Folder, has_entries: bool) -> bytes | None:
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


def signature_of(found: os.stat_result) -> Signature:
    """Return what must stay the same for a file to count as unchanged."""
    return found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


def _matches(entry: os.DirEntry[str], signature: Signature) -> bool:
    try:
        return signature_of(entry.stat(follow_symlinks=False)) == signature
    except OSError:
        return False


def _is_racy(changed_ns: int) -> bool:
    tick = _COARSE_TICK_NS if changed_ns % 1_000_000_000 == 0 else _TICK_NS
    return changed_ns > time.time_ns() - tick


def _same(files: dict[str, _File], known: dict[str, _File]) -> bool:
    if len(files) != len(known):
        return False
    for name, file in files.items():
        before = known.get(name)
        if before is None or (before is not file and (before.sha != file.sha or before.mode != file.mode)):
            return False
    return True


def _read_at(fd: int, name: str) -> bytes:
    descriptor = os.open(name, _READ, dir_fd=fd)
    with open(descriptor, "rb") as file:
        return file.read()


__all__ = ["EMPTY_TREE", "MAX_FILE_BYTES", "Scope", "Skipped", "TreeScanner", "signature_of"]
