"""Files seen through memory maps: only the latest few stay mapped, and no map is closed under someone's eyes."""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict

_KEPT = 64

Buffer = mmap.mmap | bytes


class _Maps:
    """The latest mapped files. A map that falls out is dropped, not closed: a match may still look into it."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._maps: OrderedDict[str, Buffer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> Buffer:
        with self._lock:
            if path in self._maps:
                self._maps.move_to_end(path)
                return self._maps[path]
        found = _map(path)
        with self._lock:
            self._maps[path] = found
            while len(self._maps) > self._keep:
                self._maps.popitem(last=False)
        return found


def _map(path: str) -> Buffer:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size == 0:
            return b""  # an empty file can't be mapped
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)


_maps = _Maps(_KEPT)


def mapped(path: str) -> Buffer:
    """Return the content of a file, mapped read-only; raise `OSError` when it can't be opened."""
    return _maps.get(path)
