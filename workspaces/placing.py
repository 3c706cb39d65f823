"""Changing one path of a folder by descriptor, never through a link that stands where a folder was expected.

The invariant: a file is replaced in one rename, so that whoever looks sees the old or the new one; and what
stands in the way of a folder or a file, and is not ours to delete, is moved aside, never dropped.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

_numbers = itertools.count(1)  # worktrees share a scratch folder
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Placing:
    """Writes and removes paths below `root`; `scratch` and `aside` are folders on the same file system."""

    def __init__(self, root: Path, scratch: Path, aside: Path) -> None:
        self._scratch, self._aside = scratch, aside
        self._root = os.open(root, _FOLDER)

    def close(self) -> None:
        """Let go of the root folder."""
        os.close(self._root)

    def look(self, path: bytes) -> os.stat_result | None:
        """Return the `lstat` of a path, or None when nothing is there or a parent is no folder."""
        parent = self._parent(path, make=False)
        if parent is None:
            return None
        try:
            return os.stat(os.path.basename(path), dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        finally:
            os.close(parent)

    def read(self, path: bytes) -> bytes:
        """Return a file's content, or what a link says."""
        parent = self._parent(path, make=False)
        if parent is None:
            raise FileNotFoundError(2, "a parent is no folder", os.fsdecode(path))
        name = os.path.basename(path)
        try:
            if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                return os.fsencode(os.readlink(name, dir_fd=parent))
            with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent), "rb") as file:
                return file.read()
        finally:
            os.close(parent)

    def write(self, path: bytes, content: bytes, executable: bool, link: bool, last_look: Callable[[], None]) -> None:
        """Put a file or a link at a path, over whatever file is there; `last_look` may raise just before it happens."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        temporary = os.path.join(self._scratch, f"{os.getpid()}-{next(_numbers)}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if link:
            os.symlink(content, os.fsencode(temporary))
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o777 if executable else 0o666), "wb") as file:
                file.write(content)
        parent = self._parent(path, make=True)
        assert parent is not None
        try:
            with self._writable(parent):
                self._clear(parent, path, folder=False)
                last_look()
                os.rename(os.fsencode(temporary), os.path.basename(path), dst_dir_fd=parent)
        finally:
            os.close(parent)

    def make_folder(self, path: bytes) -> None:
        """See to it that a folder is there."""
        parent = self._parent(path + b"/.", make=True)
        assert parent is not None
        os.close(parent)

    def remove(self, path: bytes) -> None:
        """Remove a file, link or empty folder, and the folders that it leaves empty."""
        parent = self._parent(path, make=False)
        if parent is None:
            return
        name = os.path.basename(path)
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            with self._writable(parent):
                if not stat.S_ISDIR(found.st_mode):
                    os.unlink(name, dir_fd=parent)
                elif not _try_rmdir(name, parent):
                    return  # something that the scan leaves out is in it
        except FileNotFoundError:
            pass
        finally:
            os.close(parent)

    def remove_if_empty(self, path: bytes, keep: set[bytes]) -> None:
        """Remove a folder when nothing is in it, and then its parents likewise, up to one that is to be kept."""
        while path and path not in keep:
            parent = self._parent(path, make=False)
            if parent is None:
                return
            try:
                with self._writable(parent):
                    if not _try_rmdir(os.path.basename(path), parent):
                        return
            finally:
                os.close(parent)
            path = os.path.dirname(path)

    def _parent(self, path: bytes, make: bool) -> int | None:
        """Return a descriptor of the folder a path is in; with `make`, made where missing, else None then."""
        current = os.dup(self._root)
        done = b""
        for name in path.split(b"/")[:-1]:
            done = os.path.join(done, name)
            try:
                if make:
                    with self._writable(current):
                        self._clear(current, done, folder=True)
                        with contextlib.suppress(FileExistsError):
                            os.mkdir(name, dir_fd=current)
                inner = os.open(name, _FOLDER, dir_fd=current)
            except (FileNotFoundError, NotADirectoryError):
                os.close(current)
                return None
            except BaseException as error:
                os.close(current)
                if isinstance(error, OSError) and error.errno == errno.ELOOP and not make:
                    return None
                raise
            os.close(current)
            current = inner
        return current

    def _clear(self, parent: int, path: bytes, folder: bool) -> None:
        """Move aside what is at a path and is of the other kind: a non-folder for a folder, and the reverse."""
        name = os.path.basename(path)
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(found.st_mode) == folder and (folder or stat.S_ISREG(found.st_mode)):
            return
        if not folder and stat.S_ISLNK(found.st_mode):
            return
        if stat.S_ISDIR(found.st_mode) and _try_rmdir(name, parent):
            return
        target = os.path.join(os.fsencode(self._aside), path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        number = 0
        while os.path.lexists(target + (b".%d" % number if number else b"")):
            number += 1
        os.rename(name, target + (b".%d" % number if number else b""), src_dir_fd=parent)

    @contextlib.contextmanager
    def _writable(self, folder: int) -> Iterator[None]:
        """Let a folder that a cell made read-only be written for a moment."""
        mode = stat.S_IMODE(os.fstat(folder).st_mode)
        if mode & 0o300 == 0o300:
            yield
            return
        os.fchmod(folder, mode | 0o300)
        try:
            yield
        finally:
            os.fchmod(folder, mode)


def _try_rmdir(name: bytes, parent: int) -> bool:
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True
