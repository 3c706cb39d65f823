"""Files of the workspace that the run itself reads and writes, in folders where cells write as well.

The invariant: nothing is read or written through a link, and nothing that can block is opened. A cell may put a link to a
file that it must not see, or a pipe, where `.GCC/main.md` or a log is expected; whatever is of the wrong kind is moved
aside, never followed and never deleted.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def read_text(root: Path, path: str, max_bytes: int = 1 << 20) -> str | None:
    """Return the beginning of a file below `root`, or None when there is no ordinary file without a link on the way."""
    *folders, name = path.split("/")
    current = os.open(root, _FOLDER)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=current)
            os.close(current)
            current = inner
        with open(os.open(name, _READ, dir_fd=current), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            return file.read(max_bytes).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(current)


def make_folder(root: Path, path: str) -> Path:
    """Return a folder below `root`, made where missing; whatever else stands on the way is moved aside."""
    root.mkdir(parents=True, exist_ok=True)
    folder = root
    for part in path.split("/"):
        folder = folder / part
        if not keep_kind(folder, stat.S_IFDIR):
            folder.mkdir(exist_ok=True)
    return folder


def keep_kind(path: Path, kind: int) -> bool:
    """Say whether a file of this kind (`stat.S_IFREG`, `stat.S_IFDIR`) is there; anything else is moved aside."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    if stat.S_IFMT(found.st_mode) == kind:
        return True
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.aside-{number}")):
        number += 1
    path.rename(aside)
    return False
