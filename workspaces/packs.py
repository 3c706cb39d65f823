"""Which objects are in packs, looked up in the packs' own indexes: asking git for each new object costs more than writing it.

An index is sorted by sha behind a table of 256 counts (gitformat-pack, version 2), so a look is a bisection over mapped memory.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress

_MAGIC = b"\xfftOc\0\0\0\x02"
_TABLE = 8 + 256 * 4


class PackIndexes:
    """The indexes of one objects folder, read again when its packs change."""

    def __init__(self, objects: str) -> None:
        self._folder = os.path.join(objects, "pack")
        self._mark: tuple[int, int] | None = None
        self._maps: dict[str, mmap.mmap] = {}

    def has(self, sha: str) -> bool:
        """Say whether a pack has this object."""
        self._refresh()
        wanted = bytes.fromhex(sha)
        return any(_is_in(found, wanted) for found in self._maps.values())

    def close(self) -> None:
        """Let go of the indexes."""
        for found in self._maps.values():
            found.close()
        self._maps, self._mark = {}, None

    def _refresh(self) -> None:
        try:
            found = os.stat(self._folder)
        except FileNotFoundError:
            self.close()
            return
        mark = (found.st_mtime_ns, found.st_ino)
        if mark == self._mark:
            return
        names = {name for name in os.listdir(self._folder) if name.endswith(".idx")}
        for gone in self._maps.keys() - names:
            self._maps.pop(gone).close()
        for name in names - self._maps.keys():
            with suppress(OSError, ValueError):  # it went away again, or is no index
                with open(os.path.join(self._folder, name), "rb") as file:
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                if mapped[:8] == _MAGIC:
                    self._maps[name] = mapped
                else:
                    mapped.close()
        self._mark = mark


def _is_in(index: mmap.mmap, wanted: bytes) -> bool:
    first = wanted[0]
    low = int.from_bytes(index[8 + 4 * (first - 1) : 8 + 4 * first], "big") if first else 0
    high = int.from_bytes(index[8 + 4 * first : 12 + 4 * first], "big")
    while low < high:
        middle = (low + high) // 2
        at = _TABLE + 20 * middle
        found = index[at : at + 20]
        if found == wanted:
            return True
        if found < wanted:
            low = middle + 1
        else:
            high = middle
    return False
