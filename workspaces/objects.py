"""Git objects: written in process, read through one long-lived `git cat-file`.

The writer's invariant: an object has its final name only when its bytes are on disk, and after `barrier()` so
are its name and the folders made for it. So a power cut leaves whole objects and temporary files, never an
empty object that git, and the writer itself, would take for a good one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

from workspaces.command import GitPipe
from workspaces.errors import WorkspaceError
from workspaces.packs import PackIndexes

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
TREE, FILE, EXECUTABLE, SYMLINK, GITLINK = 0o40000, 0o100644, 0o100755, 0o120000, 0o160000
_OPEN_TEMPORARIES = 64
_LEVEL = 1
_PARALLEL_FROM = 16
_ATTEMPTS = 20


class Entry(NamedTuple):
    """One name in a tree: its mode as git knows it, and the object's sha."""

    mode: int
    sha: str


def serialise_tree(entries: Mapping[bytes, Entry]) -> bytes:
    """Return a tree object's bytes; git sorts folders as if their names ended in a slash."""
    ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1].mode == TREE else item[0])
    return b"".join(b"%o %s\0%s" % (e.mode, name, bytes.fromhex(e.sha)) for name, e in ordered)


def parse_tree(data: bytes) -> dict[bytes, Entry]:
    """Return the entries of a tree object."""
    entries: dict[bytes, Entry] = {}
    at = 0
    while at < len(data):
        space = data.index(b" ", at)
        end = data.index(b"\0", space)
        entries[data[space + 1 : end]] = Entry(int(data[at:space], 8), data[end + 1 : end + 21].hex())
        at = end + 21
    return entries


class ObjectReader:
    """Reads objects, packed or loose, by name (`<sha>`, `HEAD^{tree}`, `main`)."""

    def __init__(self, work_tree: Path, git_dir: Path) -> None:
        self._contents = GitPipe(work_tree, git_dir, "cat-file", "--batch")
        self._checks = GitPipe(work_tree, git_dir, "cat-file", "--batch-check")

    def read(self, name: str) -> tuple[str, str, bytes] | None:
        """Return (sha, kind, content), or None when there is no such object."""
        header, stream = self._ask(self._contents, name)
        if header is None:
            return None
        sha, kind, size = header.split()
        content = stream.read(int(size) + 1)
        if len(content) != int(size) + 1:
            raise self._contents.failed()
        return sha.decode(), kind.decode(), content[:-1]

    def exists(self, name: str) -> bool:
        """Tell whether there is such an object."""
        return self._ask(self._checks, name)[0] is not None

    def close(self) -> None:
        """End both processes."""
        self._contents.close()
        self._checks.close()

    @staticmethod
    def _ask(pipe: GitPipe, name: str) -> tuple[bytes | None, IO[bytes]]:
        if not name or "\n" in name or "\0" in name:
            raise WorkspaceError(f"{name!r} is no name of a git object", "give a commit, branch or sha", "usage")
        for attempt in (1, 2):
            stream = pipe.request(os.fsencode(name) + b"\n")
            header = stream.readline()
            if header:
                lacks = header.rstrip(b"\n").endswith((b" missing", b" ambiguous"))
                return (None if lacks else header), stream
            if attempt == 1:
                pipe.close()
        raise pipe.failed()


class _Pending(NamedTuple):
    descriptor: int
    temporary: str
    final: str


class LooseObjects:
    """Writes loose objects; nothing has its final name before its bytes are on disk."""

    def __init__(self, objects: Path, reader: ObjectReader) -> None:
        self._root = os.fspath(objects)
        self._reader = reader
        self._pending: dict[str, _Pending] = {}
        self._dirty: set[str] = set()
        self._durable: set[str] = set()
        self._trusted_before = 0.0
        self._pool: ThreadPoolExecutor | None = None
        self._packs = PackIndexes(self._root)

    def write(self, kind: str, content: bytes) -> str:
        """Write an object that is not there yet and return its sha; it is readable and durable after `barrier()`."""
        data = b"%s %d\0%s" % (kind.encode(), len(content), content)
        sha = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        if sha in self._durable or sha in self._pending or self._is_there(sha):
            return sha
        folder = os.path.join(self._root, sha[:2])
        descriptor, temporary = self._temporary(folder)
        self._pending[sha] = _Pending(descriptor, temporary, os.path.join(folder, sha[2:]))
        rest = memoryview(zlib.compress(data, _LEVEL))
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fchmod(descriptor, 0o444)
        if len(self._pending) >= _OPEN_TEMPORARIES:
            self._settle()
        return sha

    def forget(self) -> None:
        """Look at the disk again for what was written: it may be gone."""
        self._durable.clear()

    def pending(self, sha: str) -> tuple[str, bytes] | None:
        """Return (kind, content) of an object that is written and has not got its name yet."""
        found = self._pending.get(sha)
        if found is None:
            return None
        with open(found.temporary, "rb") as file:
            head, _, content = zlib.decompress(file.read()).partition(b"\0")
        return head.split()[0].decode(), content

    def barrier(self) -> None:
        """Make every object written so far, its name and its folder durable."""
        self._trust_what_was_there()
        self._settle()
        self._each(_sync_path, list(self._dirty))
        self._dirty.clear()

    def close(self) -> None:
        """Drop what no barrier made durable."""
        for item in self._pending.values():
            os.close(item.descriptor)
            os.unlink(item.temporary)
        self._pending.clear()
        self._packs.close()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _temporary(self, folder: str) -> tuple[int, str]:
        """Open a new file in a folder, made where missing: a packing takes folders away that it has emptied."""
        for attempt in range(_ATTEMPTS):
            if not os.path.isdir(folder):
                os.makedirs(folder, exist_ok=True)
                self._dirty.add(self._root)
            try:
                return tempfile.mkstemp(prefix="tmp_obj_", dir=folder)
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _settle(self) -> None:
        items = self._pending
        self._pending = {}
        try:
            self._each(os.fsync, [item.descriptor for item in items.values()])
            for item in items.values():
                os.rename(item.temporary, item.final)
                self._dirty.add(os.path.dirname(item.final))
        except OSError:
            for item in items.values():
                if os.path.exists(item.temporary):
                    os.unlink(item.temporary)
            raise
        finally:
            for item in items.values():
                os.close(item.descriptor)
        self._durable.update(items)

    def _is_there(self, sha: str) -> bool:
        """Tell whether the object exists, and see to it that the barrier covers one that others wrote lately."""
        path = os.path.join(self._root, sha[:2], sha[2:])
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return self._packs.has(sha) or (self._borrows() and self._reader.exists(sha))
        if found.st_size == 0:
            return False  # what a power cut left of somebody's unsynced write: our own copy replaces it
        self._trust_what_was_there()
        if found.st_ctime >= self._trusted_before:
            self._dirty.update((path, os.path.dirname(path), self._root))
        return True

    def _borrows(self) -> bool:
        """Say whether another repository's objects are used, too."""
        return os.path.exists(os.path.join(self._root, "info", "alternates"))

    def _trust_what_was_there(self) -> None:
        """Sync the file system once: a process killed before its barrier may have left names that are not on disk."""
        if self._trusted_before:
            return
        before = time.time() - 2.0
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
                os.sync()
        except AttributeError:
            os.sync()
        finally:
            os.close(descriptor)
        self._trusted_before = before

    def _each(self, sync: Callable[[Any], None], things: Sequence[Any]) -> None:
        """Sync things: many in parallel, a few one by one.

        A few from one thread are faster: ext4 lets a sync wait for company when another thread made the last one.
        """
        if len(things) < _PARALLEL_FROM:
            for thing in things:
                sync(thing)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(4, thread_name_prefix="fsync")
        for _ in self._pool.map(sync, things):
            pass


def _sync_path(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # packed meanwhile, and git has synced the pack before it took the loose object away
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str | Path) -> None:
    """Make the names in a folder durable."""
    _sync_path(os.fspath(path))
