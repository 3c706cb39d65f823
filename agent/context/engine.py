"""Ends of possible matches at the speed of memory, by the automata engine Hyperscan where it is installed.

The engine finds, outside of Python's lock, every byte at which a match of its expressions can end, and where it can start. What
a match is, it decides only for patterns that are exact in bytes. Without it, or for patterns it can't take, `re` does it all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from operator import itemgetter
from typing import Any

_DENSE = 48  # bytes per candidate, below which asking `re` at once is faster than sorting out candidates


class Engine:
    """Compiled expressions; safe to use from several threads at once."""

    def __init__(self, database: Any, expressions: int, halted: type[Exception]) -> None:
        self._expressions = expressions
        self._halted = halted
        self._database = database
        self._scratch: list[Any] = []

    def any(self, data: memoryview | bytes) -> bool:
        """Say whether there is a possible match."""
        return not self._scan(data, _at_once)

    def ends(self, data: memoryview, own: int) -> list[list[int]]:
        """Return where matches of each expression end, in order, behind `own`."""
        found: list[list[int]] = [[] for _ in range(self._expressions)]
        adds = [ends.append for ends in found]
        if len(adds) == 1:
            add = adds[0]
            self._scan(data, lambda _number, _start, end, _flags, _context: add(end))
        else:
            self._scan(data, lambda number, _start, end, _flags, _context: adds[number](end))
        return [_behind(own, ends) for ends in found]

    def some_ends(self, data: memoryview, own: int) -> tuple[list[int], bool]:
        """Return where possible matches end, in order, behind `own`, and whether there were too many to go on looking."""
        found: list[int] = []
        most = 64 + len(data) // _DENSE

        def hit(_number: int, _start: int, end: int, _flags: int, _context: object) -> bool:
            found.append(end)
            return len(found) >= most

        reached = self._scan(data, hit)
        return _behind(own, found), not reached

    def spans(self, data: memoryview) -> tuple[list[tuple[int, int]], bool]:
        """Return (leftmost start, end) of possible matches by their ends, and whether there were too many to go on looking."""
        found: list[tuple[int, int]] = []
        most = 64 + len(data) // _DENSE

        def hit(_number: int, start: int, end: int, _flags: int, _context: object) -> bool:
            found.append((start, end))
            return len(found) >= most

        reached = self._scan(data, hit)
        found.sort(key=itemgetter(1))
        return found, not reached

    def _scan(self, data: memoryview | bytes, hit: Callable[[int, int, int, int, object], object]) -> bool:
        """Scan to the end, or until `hit` says so; say whether the end was reached."""
        scratch = self._scratch.pop() if self._scratch else self._database.scratch.clone()
        try:
            self._database.scan(data, hit, scratch=scratch)
        except self._halted:
            return False
        finally:
            self._scratch.append(scratch)
        return True


def _at_once(_number: int, _start: int, _end: int, _flags: int, _context: object) -> bool:
    return True


def _behind(own: int, ends: list[int]) -> list[int]:
    ends.sort()
    return ends[bisect_right(ends, own) :] if ends and ends[0] <= own else ends


@lru_cache(maxsize=64)
def engine(expressions: tuple[str, ...], starts: bool = False) -> Engine | None:
    """Return an engine for expressions, or None when there is none or it can't take them; `spans` needs `starts`."""
    if not all(expressions):
        return None
    try:
        hyperscan: Any = import_module("hyperscan")
    except ImportError:
        return None
    flags = hyperscan.HS_FLAG_MULTILINE | (hyperscan.HS_FLAG_SOM_LEFTMOST if starts else 0)
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(
            expressions=[expression.encode("ascii") for expression in expressions],
            ids=list(range(len(expressions))),
            flags=[flags] * len(expressions),
        )
    except hyperscan.error:
        return None
    return Engine(database, len(expressions), hyperscan.ScanTerminated)
