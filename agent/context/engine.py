"""Ends of possible matches at the speed of memory, by the automata engine Hyperscan where it is installed.

The engine finds, outside of Python's lock, every byte at which a match of its expressions can end, and where it can start. What
a match is, it decides only for patterns that are exact in bytes. Without it, or for patterns it can't take, `re` does it all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from operator import itemgetter
from typing import Any

_DENSE = 48  # bytes per candidate, below which asking `re` at once is faster than sorting out candidates


class Engine:
    """Compiled expressions; safe to use from several threads at once."""

    def __init__(self, database: Any, halted: type[Exception]) -> None:
        self._halted = halted
        self._database = database
        self._scratch: list[Any] = []

    def any(self, data: memoryview) -> bool:
        """Say whether there is a possible match."""
        return not self._scan(data, lambda _number, _start, _end, _flags, _context: True)

    def ends(self, data: memoryview) -> list[int]:
        """Return where matches of any expression end, in order."""
        found: list[int] = []
        add = found.append
        self._scan(data, lambda _number, _start, end, _flags, _context: add(end))
        found.sort()
        return found

    def some_ends(self, data: memoryview) -> tuple[list[int], bool]:
        """Return where possible matches end, in order, and whether there were too many to go on looking."""
        found: list[int] = []
        most = 64 + len(data) // _DENSE

        def hit(_number: int, _start: int, end: int, _flags: int, _context: object) -> bool:
            found.append(end)
            return len(found) >= most

        self._scan(data, hit)
        found.sort()
        return found, len(found) >= most

    def numbered(self, data: memoryview, widths: tuple[int, ...]) -> list[int]:
        """Return `start << 8 | number` of each match, in order, for expressions of the given widths."""
        found: list[int] = []
        add = found.append
        shifted = [(width << 8) - number for number, width in enumerate(widths)]
        self._scan(data, lambda number, _start, end, _flags, _context: add((end << 8) - shifted[number]))
        found.sort()
        return found

    def spans(self, data: memoryview) -> tuple[list[tuple[int, int]], bool]:
        """Return (leftmost start, end) of possible matches by their ends, and whether there were too many to go on looking."""
        found: list[tuple[int, int]] = []
        most = 64 + len(data) // _DENSE

        def hit(_number: int, start: int, end: int, _flags: int, _context: object) -> bool:
            found.append((start, end))
            return len(found) >= most

        self._scan(data, hit)
        found.sort(key=itemgetter(1))
        return found, len(found) >= most

    def _scan(self, data: memoryview, hit: Callable[[int, int, int, int, object], object]) -> bool:
        """Scan to the end, or until `hit` says so; say whether the end was reached."""
        scratch = self._scratch.pop() if self._scratch else self._database.scratch.clone()
        try:
            self._database.scan(data, hit, scratch=scratch)
        except self._halted:
            return False
        finally:
            self._scratch.append(scratch)
        return True


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
    return Engine(database, hyperscan.ScanTerminated)
