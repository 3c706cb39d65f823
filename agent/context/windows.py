"""A byte range cut into windows that can be looked at one by one, in any order, without losing a match at a cut.

Each window owns the matches that start in it. It ends after a line where a line end is near, so a pattern that stays in its line
sees whole lines; where none is near (a line of gigabytes) the cut is hard, and the window sees `overlap` bytes beyond it and
`margin` bytes before. A match longer than the overlap, across such a cut, ends where the overlap does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agent.context.reading import Listed, read_into

SMALLEST = 1 << 14


class Sizes(NamedTuple):
    """Bytes of windows and of what is seen beside them; the largest still lies in the processor's cache when it is scanned."""

    smallest: int = SMALLEST
    largest: int = 1 << 19
    near: int = 1 << 12
    overlap: int = 1 << 16
    margin: int = 1 << 10


USUAL = Sizes()


class Window(NamedTuple):
    """Nominal cuts of one window in a file's bytes, within the range `low` to `high`."""

    low: int
    high: int
    start: int
    end: int


class View(NamedTuple):
    """Bytes of a window: `data[:size]` lies at `offset` in the file, matches that start in `own` to `stop` are the window's."""

    data: bytearray | bytes
    size: int
    offset: int
    own: int
    stop: int
    whole_lines: bool


def windows(low: int, high: int, sizes: Sizes = USUAL) -> Iterator[Window]:
    """Cut `low` to `high`, small windows first so that the first matches come at once."""
    width, at = sizes.smallest, low
    while at < high:
        end = min(at + width, high)
        yield Window(low, high, at, end)
        at, width = end, min(2 * width, sizes.largest)


def view(listed: Listed, window: Window, buffer: bytearray, sizes: Sizes = USUAL, near: bool = False) -> View:
    """Read a window into `buffer`; raise `FileChanged` when the file does not hold it any more.

    With `near`, little is read behind the window at first, and all of the overlap only when no line ends in that.
    """
    first = max(window.low, window.start - sizes.margin)
    last = min(window.high, window.end + (sizes.near if near else sizes.overlap))
    size = last - first
    if len(buffer) < size:
        buffer.extend(bytes(size - len(buffer)))
    with memoryview(buffer) as room, room[:size] as part:
        read_into(listed, first, part)
    stop, soft_end = _cut(buffer, window.end - first, size, sizes.overlap, window.end == window.high)
    if not soft_end and near:
        return view(listed, window, buffer, sizes)
    own, soft_start = _cut(buffer, window.start - first, size, sizes.overlap, window.start == window.low)
    return View(buffer, size, first, own, stop, soft_start and soft_end)


def _cut(buffer: bytearray, at: int, size: int, overlap: int, edge: bool) -> tuple[int, bool]:
    """Move a cut behind the next line end, or to the start of a character; say whether it is at a line end."""
    if edge:
        return at, True
    newline = buffer.find(b"\n", at - 1, min(size, at - 1 + overlap))
    if newline >= 0:
        return newline + 1, True
    for _ in range(3):
        if at < size and buffer[at] & 0xC0 == 0x80:
            at += 1
    return at, False
