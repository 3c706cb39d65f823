"""Lines of a byte range without reading it whole: marks count the line ends of each block once, when somebody asks.

Lines are ended by LF, a CR before it is left out; a CR alone ends nothing. Lines count from 1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

BLOCK = 1 << 16
LONGEST = 1 << 20
_WINDOW, _NEAR = 1 << 19, 1 << 22  # bytes that are read at once, and so far ahead that counting on beats the marks

Reader = Callable[[int, int], bytes]

_lock = threading.Lock()


class LineMarks:
    """How many line ends lie before each block of a range; grows as far as it was asked.

    Who asks for one match's line asks for the next one's too, so the latest window stays, with the count up to the latest offset.
    """

    __slots__ = ("_latest", "_marks")

    def __init__(self) -> None:
        self._marks = [0]
        self._latest: tuple[int, bytes, int, int] = (
            0,
            b"",
            0,
            0,
        )  # window's start, window, offset in it, ends before that

    def line_of(self, read: Reader, offset: int, size: int) -> int:
        """Return the number of the line that holds byte `offset`."""
        offset = min(max(offset, 0), size)
        start, window, at, ends = self._latest
        if not 0 <= offset - start - at <= _NEAR:
            block = offset // BLOCK
            self._grow(read, block)
            start, at, ends = block * BLOCK, 0, self._marks[block]
            window = read(start, min(start + BLOCK, size))
        while offset > start + len(window):
            ends += window.count(b"\n", at)
            start, at = start + len(window), 0
            window = read(start, min(start + _WINDOW, size))
            if not window:
                break
        ends += window.count(b"\n", at, offset - start)
        self._latest = (start, window, offset - start, ends)
        return 1 + ends

    def start_of(self, read: Reader, line: int, size: int) -> int:
        """Return the offset at which `line` begins, or the size when there are fewer lines."""
        block = 0
        while (block + 1) * BLOCK < size:
            self._grow(read, block + 1)
            if self._marks[block + 1] >= line - 1:
                break
            block += 1
        at, missing = block * BLOCK, line - 1 - self._marks[block]
        data = read(at, at + BLOCK)
        found = -1
        for _ in range(missing):
            found = data.find(b"\n", found + 1)
            if found < 0:
                return size
        return at + found + 1 if missing > 0 else at

    def _grow(self, read: Reader, block: int) -> None:
        while (known := len(self._marks)) <= block:
            count = self._marks[known - 1] + read((known - 1) * BLOCK, known * BLOCK).count(b"\n")
            with _lock:  # another thread may have come first
                if len(self._marks) == known:
                    self._marks.append(count)


def rows(read: Reader, start: int, size: int, longest: int = LONGEST) -> Iterator[bytes]:
    """Yield the lines from byte `start` on without their ends; one above `longest` bytes comes in pieces of that."""
    held: list[bytes] = []  # of a line whose end has not been seen
    length, at = 0, start
    while at < size:
        block = read(at, at + BLOCK)
        at += len(block)
        if b"\n" in block:
            *whole, block = b"".join([*held, block]).split(b"\n")
            for row in whole:
                yield row.removesuffix(b"\r")
            held, length = [], 0
        held.append(block)
        length += len(block)
        if length > longest:
            piece = b"".join(held)
            cut = _character(piece, longest)
            yield piece[:cut]
            held, length = [piece[cut:]], length - cut
    if length:
        yield b"".join(held).removesuffix(b"\r")


def _character(data: bytes, at: int) -> int:
    """Step back to the start of a character."""
    for back in range(4):
        if data[at - back] & 0xC0 != 0x80:
            return at - back
    return at
