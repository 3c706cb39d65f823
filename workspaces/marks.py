"""Which files have changed since the last look: the kernel's own notes (inotify), read at the moment of the scan.

The kernel queues a note before the write that caused it returns, so whatever happened before a scan is in the queue when it is
read; a thread that hands notes on would be late. What has no note (a write through a memory map or another hard link) is found
by the full look that a scanner takes now and then. Any doubt means a full look.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_ELSEWHERE = ("nfs", "cifs", "smb", "9p", "fuse", "vboxsf", "ceph", "glusterfs", "afs", "lustre")


class Marks:
    """The notes about one folder and all watched below it; none, where the system cannot give them."""

    def __init__(self, root: Path) -> None:
        self._root, self._inotify = root, _open(root)

    @property
    def works(self) -> bool:
        """Say whether changes are noted."""
        return self._inotify is not None

    def watch(self, folder: int) -> int | None:
        """Note from now on what changes in an open folder; returns the watch, or None when that is not possible."""
        if self._inotify is None:
            return None
        try:
            return int(self._inotify.add_watch(f"/proc/self/fd/{folder}", _mask()))
        except OSError:  # no watches left, or a folder that cannot be watched
            self.close()
            return None

    def take(self) -> Mapping[int, Mapping[str, bool]] | None:
        """Return for each watch the names that changed since the last time, and whether they came, went or were replaced.

        None means that anything may have changed.
        """
        if self._inotify is None:
            return None
        from inotify_simple import flags

        came_or_went = flags.CREATE | flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO
        found: dict[int, dict[str, bool]] = {}
        try:
            events = list(self._inotify.read(timeout=0))
        except OSError:
            self.close()
            return None
        for wd, mask, _, name in events:
            if mask & (flags.Q_OVERFLOW | flags.UNMOUNT):
                return None
            if name:
                names = found.setdefault(wd, {})
                names[name] = names.get(name, False) or bool(mask & came_or_went)
            elif mask & (flags.DELETE_SELF | flags.MOVE_SELF):
                found.setdefault(wd, {})
        return found

    def drop(self, watch: int) -> None:
        """Note no more what changes in a folder that is not looked at any more."""
        if self._inotify is not None:
            with suppress(OSError):  # else the folder is gone, and its watch with it
                self._inotify.rm_watch(watch)

    def close(self) -> None:
        """Note nothing any more."""
        inotify, self._inotify = self._inotify, None
        if inotify is not None:
            inotify.close()


def _mask() -> int:
    from inotify_simple import flags

    return int(
        flags.CREATE | flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO | flags.MODIFY | flags.ATTRIB | flags.CLOSE_WRITE
        | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR
    )  # fmt: skip


def _open(root: Path) -> Any:
    """Return an inotify descriptor, or None where there is none, or others may write without the kernel's knowledge."""
    if not _is_local(root):
        return None
    try:
        from inotify_simple import INotify

        return INotify()
    except (ImportError, OSError, AttributeError):
        return None


def _is_local(root: Path) -> bool:
    """Say whether a folder is on a file system that only this kernel writes."""
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    real, best, kind = os.path.realpath(root), "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return bool(best) and not kind.startswith(_ELSEWHERE)
