"""What a killed git process leaves behind, and making whole folders durable.

A lock file of a dead process blocks every later commit. Whether its process is dead can't be seen from the
file: only the holder of the run's own lock, under which all our git work happens, may remove it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def clear(git_dir: Path, common_dir: Path) -> tuple[str, ...]:
    """Remove lock files and temporary objects; return their paths relative to the git folder."""
    removed: list[str] = []
    for root in {git_dir, common_dir}:
        for folder, inner, names in os.walk(root):
            at_objects = folder == os.path.join(root, "objects") or f"{os.sep}objects{os.sep}" in folder + os.sep
            if folder == str(root) and "worktrees" in inner:
                inner.remove("worktrees")  # each has its own owner
            for name in names:
                stale = name.startswith("tmp_") if at_objects else name.endswith(".lock")
                if stale:
                    path = os.path.join(folder, name)
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
                        removed.append(os.path.relpath(path, root))
    return tuple(sorted(removed))


def sync_path(path: Path) -> None:
    """Make one file's content, or one folder's names, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(root: Path) -> None:
    """Make a folder and everything below it durable."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                sync_path(path)
        sync_path(Path(folder))
