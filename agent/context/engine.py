"""Candidate ends of matches at the speed of memory, by the automata engine Hyperscan where it is installed.

The engine finds, outside of Python's lock, every byte at which a match of the superset can end, and where it can start. It
takes a plan's superset alone and never decides what a match is. Without it, or for patterns it can't take, `re` does it all.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from operator import itemgetter
from typing import Any

_DENSE = 48  # bytes per candidate, below which asking `re` at once is faster than sorting out candidates


class Engine:
    """One compiled superset; safe to use from several threads at once."""

    def __init__(self, database: Any, halted: type[Exception]) -> None:
        self._halted = halted
        self._database = database
        self._scratch: list[Any] = []

    def spans(self, data: memoryview) -> tuple[list[tuple[int, int]], bool]:
        """Return (start, end) of possible matches by their ends, and whether there were too many to go on looking.

        The start is the leftmost one for its end, or 0 in an engine that was made without starts.
        """
        found: list[tuple[int, int]] = []
        most = 64 + len(data) // _DENSE

        def hit(_number: int, start: int, end: int, _flags: int, _context: object) -> bool:
            found.append((start, end))
            return len(found) >= most

        scratch = self._scratch.pop() if self._scratch else self._database.scratch.clone()
        try:
            self._database.scan(data, hit, scratch=scratch)
        except self._halted:
            pass
        finally:
            self._scratch.append(scratch)
        found.sort(key=_end)
        return found, len(found) >= most


_end = itemgetter(1)


@lru_cache(maxsize=64)
def engine(superset: str, starts: bool = False) -> Engine | None:
    """Return an engine for a superset, or None when there is none or it can't take it."""
    if not superset:
        return None
    try:
        hyperscan: Any = import_module("hyperscan")
    except ImportError:
        return None
    flags = hyperscan.HS_FLAG_MULTILINE | (hyperscan.HS_FLAG_SOM_LEFTMOST if starts else 0)
    mode = hyperscan.HS_MODE_BLOCK
    database = hyperscan.Database(mode=mode)
    try:
        database.compile(expressions=[superset.encode("ascii")], flags=flags)
    except hyperscan.error:
        return None
    return Engine(database, hyperscan.ScanTerminated)
