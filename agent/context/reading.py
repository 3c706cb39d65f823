"""Files of the context read in place: positioned reads into plain memory, and every change of a file noticed.

Nothing is mapped, so a file that is cut can't end the process (SIGBUS), and what was read is not counted as ours. A file
keeps its listed size for good: one that grew is read up to it; one that was cut, replaced or removed is an error.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from typing import NamedTuple

_KEPT = 64
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY


class FileChanged(OSError):
    """A file of the context is not what it was when it was listed."""


class Listed(NamedTuple):
    """What is known of a file since it was listed; an `inode` or `size` of 0 means unknown."""

    path: str
    size: int = 0
    inode: int = 0
    mtime_ns: int = 0


class _Open:
    """An open descriptor, closed when nobody looks at it any more."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, _FLAGS)
        self.inode = os.fstat(self.descriptor).st_ino

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self.descriptor)


_open: OrderedDict[str, _Open] = OrderedDict()
_lock = threading.Lock()


def opened(listed: Listed) -> _Open:
    """Return an open file, as it was listed; raise `FileChanged` when it is not that file any more."""
    try:
        facts = os.stat(listed.path)
    except FileNotFoundError as error:
        raise _changed(listed, "is gone") from error
    _compare(listed, facts)
    with _lock:
        found = _open.get(listed.path)
        if found is not None and found.inode == facts.st_ino:
            _open.move_to_end(listed.path)
            return found
    found = _Open(listed.path)
    with _lock:
        _open[listed.path] = found
        while len(_open) > _KEPT:
            _open.popitem(last=False)
    return found


def _compare(listed: Listed, facts: os.stat_result) -> None:
    if listed.inode and facts.st_ino != listed.inode:  # a copy that kept size and time is the same text
        if (facts.st_size, facts.st_mtime_ns) != (listed.size, listed.mtime_ns):
            raise _changed(listed, "was replaced by another file")
    if facts.st_size < listed.size:
        raise _changed(listed, f"was cut from {listed.size} bytes to {facts.st_size}")


def read_once(listed: Listed, start: int, end: int) -> bytes:
    """Return bytes `start` to `end` of a small file that is not kept open; raise `FileChanged` like `read`."""
    try:
        descriptor = os.open(listed.path, _FLAGS)
    except FileNotFoundError as error:
        raise _changed(listed, "is gone") from error
    try:
        _compare(listed, os.fstat(descriptor))
        data = os.pread(descriptor, end - start, start)
    finally:
        os.close(descriptor)
    if len(data) < end - start:
        raise _changed(listed, f"ends at byte {start + len(data)}, before byte {end}")
    return data


def read(listed: Listed, start: int, end: int) -> bytes:
    """Return bytes `start` to `end` of a file; raise `FileChanged` when it does not hold them any more."""
    if end <= start:
        return b""
    file = opened(listed)
    data = os.pread(file.descriptor, end - start, start)
    while len(data) < end - start:  # one call gives at most 2 GB
        more = os.pread(file.descriptor, end - start - len(data), start + len(data))
        if not more:
            raise _changed(listed, f"ends at byte {start + len(data)}, before byte {end}")
        data += more
    return data


def read_into(listed: Listed, start: int, view: memoryview) -> None:
    """Fill `view` with the bytes from `start` on; raise `FileChanged` when there are fewer."""
    file = opened(listed)
    at = 0
    while at < len(view):
        got = os.preadv(file.descriptor, [view[at:]], start + at)
        if not got:
            raise _changed(listed, f"ends at byte {start + at}, before byte {start + len(view)}")
        at += got


def _changed(listed: Listed, what: str) -> FileChanged:
    return FileChanged(
        f"{listed.path} {what} since the context was listed: work with what was read before, "
        "or stop and resume the run, which lists its context again"
    )
