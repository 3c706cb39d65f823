"""Moving one ref in process, by git's own protocol: `<ref>.lock` made exclusively, checked under it, synced,
renamed.

The invariant: git and every other program that keeps the protocol see the old value or the new one, and never
lose a move.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from workspaces.errors import WorkspaceError

_WAIT_S = 1.0  # git's own patience with a ref's lock is 0.1 s; ours may meet a `git gc` that packs refs


def swap_ref(git_dir: Path, ref: str, text: str, check: Callable[[], None]) -> None:
    """Write a ref's file after `check()` under its lock; `check` raises when the ref is not as expected.

    Raises WorkspaceError when another process holds the lock, or another ref's name is in the way.
    """
    path = git_dir / ref
    lock = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise WorkspaceError(f"{ref}: a part of its name is a ref already", "choose another name", "ref") from None
    descriptor = _lock(lock)
    try:
        try:
            check()
            os.write(descriptor, text.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if path.is_dir():
            with contextlib.suppress(OSError):
                path.rmdir()
        os.rename(lock, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(lock)
        if isinstance(error, IsADirectoryError):
            raise WorkspaceError(f"{ref}: other refs' names begin with it", "choose another name", "ref") from error
        raise


def _lock(lock: Path) -> int:
    until = time.monotonic() + _WAIT_S
    while True:
        try:
            return os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            if time.monotonic() > until:
                hint = "another git process works in this workspace; wait for it, or remove the file if there is none"
                raise WorkspaceError(f"{lock}: the ref is locked", hint, "locked") from None
            time.sleep(0.02)
