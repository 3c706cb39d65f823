"""Candidate ends of matches at the speed of memory, by the automata engine Hyperscan where it is installed.

The engine finds, outside of Python's lock, every byte at which a match of the superset can end. It takes a plan's superset
alone and never decides what a match is. Without it, or for patterns it can't take, a search has no candidates and `re` does it all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_DENSE = 48  # bytes per candidate, below which asking `re` at once is faster than sorting out candidates


class Engine:
    """One compiled superset; safe to use from several threads at once."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self._scratch: list[Any] = []

    def ends(self, data: memoryview, first_only: bool = False) -> tuple[list[int], bool]:
        """Return the ends of possible matches in order, and whether there were too many to go on looking."""
        import hyperscan

        found: list[int] = []
        most = 1 if first_only else 64 + len(data) // _DENSE

        def hit(_number: int, _start: int, end: int, _flags: int, _context: object) -> bool:
            found.append(end)
            return len(found) >= most

        scratch = self._scratch.pop() if self._scratch else self._database.scratch.clone()
        try:
            self._database.scan(data, hit, scratch=scratch)
        except hyperscan.ScanTerminated:
            pass
        finally:
            self._scratch.append(scratch)
        found.sort()
        return found, len(found) >= most


@lru_cache(maxsize=64)
def engine(superset: str) -> Engine | None:
    """Return an engine for a superset, or None when there is none or it can't take it."""
    if not superset:
        return None
    try:
        import hyperscan
    except ImportError:
        return None
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(expressions=[superset.encode("ascii")], flags=hyperscan.HS_FLAG_MULTILINE)
    except hyperscan.error:
        return None
    return Engine(database)
