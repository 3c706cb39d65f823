"""Pieces of a window in which `re` is to look for matches that may cross line ends.

Such matches depend on where the one before ended, so pieces are looked at in order, by the one who searches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from agent.context.confirm import matches
from agent.context.windows import View

_FAR = 1 << 20
_BESIDE = 16  # bytes


class Stretch(NamedTuple):
    """Bytes at `offset` in which matches that start from `own` on, before `stop`, are wanted."""

    offset: int
    data: bytes
    own: int
    stop: int

    def matches(self, regex: re.Pattern[str], done: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield (start, end) in the file from `done` on; at its end `high` an empty match may stand."""
        last = self.offset + self.stop == high
        for start, end in matches(regex, self.data, max(self.own, done - self.offset)):
            if start >= self.stop and not (last and start == self.stop):
                return
            yield self.offset + start, self.offset + end


def whole(seen: View) -> Stretch:
    """Return all of a window."""
    return Stretch(seen.offset, bytes(seen.data[: seen.size]), seen.own, seen.stop)


def around(seen: View, found: list[tuple[int, int]]) -> list[Stretch]:
    """Cut out the lines around the possible matches, those that touch each other as one."""
    merged: list[list[int]] = []
    for start, end in sorted(found):
        if end <= seen.own or start >= seen.stop:
            continue
        first = seen.data.rfind(b"\n", max(start - _FAR, 0), start) + 1
        last = seen.data.find(b"\n", max(end - 1, 0), seen.size) + 1 or seen.size
        if merged and first <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return [_piece(seen, first, last) for first, last in merged]


def _piece(seen: View, first: int, last: int) -> Stretch:
    """Cut out lines with a little of what stands before and behind them, at characters, for `\\b` to look at."""
    low, high = max(first - _BESIDE, 0), min(last + _BESIDE, seen.size)
    while 0 < low < first and seen.data[low] & 0xC0 == 0x80:
        low += 1
    own = max(seen.own, first) - low
    return Stretch(seen.offset + low, bytes(seen.data[low:high]), own, min(seen.stop, last) - low)
