"""A search of one file's byte range: windows are sifted for candidates, and `re` decides on those, in order.

Sifting (reading and the engine) runs outside of Python's lock, for large ranges in two threads that keep a few windows ahead;
`re` sees decoded text, in which a broken byte is a character of its own. The result is that of `re.finditer` over the whole
text, whatever the engine. Nothing is held but the windows in flight, and a search that is not gone on with costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from agent.context.engine import Engine, engine
from agent.context.pattern import Plan, plan
from agent.context.reading import Listed
from agent.context.windows import LARGEST, View, Window, view, windows

_THREADS = 2
_AHEAD = 4
_LARGE = 4 << 20
_BESIDE = 16  # bytes
_WORTH = 1 << 18  # bytes from which on compiling a pattern for the engine (1 ms, at worst 1 s) pays


class Lines(NamedTuple):
    """Whole lines that may hold matches, with their offsets in the file."""

    offsets: list[int]
    lines: list[bytes]


class Stretch(NamedTuple):
    """Bytes at `offset` in which matches that start from `own` on, before `stop`, are wanted."""

    offset: int
    data: bytes
    own: int
    stop: int


Sifted = Lines | list[Stretch]


def find(
    pattern: str, ignore_case: bool, listed: Listed, low: int, high: int, total: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each match, in bytes of the file; raise `re.error` or `FileChanged`.

    `total` is how many bytes are searched for the pattern in all, when this range is one of many.
    """
    ready = plan(pattern, ignore_case)
    finder = engine(ready.superset, not ready.lines_only) if max(total, high - low) >= _WORTH else None
    done = low
    for sifted in _sift_all(ready, finder, listed, low, high):
        if isinstance(sifted, Lines):
            yield from _in_lines(ready, sifted)
            continue
        for stretch in sifted:
            for start, end in _in_stretch(ready, stretch, done, high):
                yield start, end
                done = end


def _sift_all(ready: Plan, finder: Engine | None, listed: Listed, low: int, high: int) -> Iterator[Sifted]:
    if high == low:  # an empty text can still hold an empty match
        yield [Stretch(low, b"", 0, 0)]
        return
    buffers: deque[bytearray] = deque(bytearray() for _ in range(_THREADS))

    def work(window: Window) -> Sifted:
        buffer = buffers.pop()
        try:
            return _sift(ready, finder, view(listed, window, buffer))
        finally:
            buffers.append(buffer)

    if high - low < _LARGE or finder is None:  # without the engine there is nothing that could run beside
        yield from map(work, windows(low, high))
    else:
        yield from _ahead(work, low, high)


def _ahead(work: Callable[[Window], Sifted], low: int, high: int) -> Iterator[Sifted]:
    rest = windows(low, high)
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="search")
    try:
        flying: deque[Future[Sifted]] = deque(pool.submit(work, one) for one in islice(rest, _AHEAD))
        while flying:
            yield flying.popleft().result()
            flying.extend(pool.submit(work, one) for one in islice(rest, 1))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _sift(ready: Plan, finder: Engine | None, seen: View) -> Sifted:
    if seen.own >= seen.stop:  # the line before took all of it
        return []
    if ready.lines_only and seen.whole_lines:
        return _sift_lines(ready, finder, seen)
    whole = Stretch(seen.offset, b"", seen.own, seen.stop)
    if finder is not None and ready.lines_only and not _ends(finder, seen, 0, seen.size)[0]:
        return []
    if finder is not None and not ready.lines_only:
        found, rest = _ends(finder, seen, 0, seen.size)
        if not found:
            return []
        if not (rest or ready.looks_far):
            return _stretches(found, seen)
    elif ready.literal and seen.data.find(ready.literal, 0, seen.size) < 0:
        return []
    return [whole._replace(data=bytes(seen.data[: seen.size]))]


def _ends(finder: Engine, seen: View, low: int, high: int) -> tuple[list[tuple[int, int]], bool]:
    with memoryview(seen.data) as whole, whole[low:high] as part:
        return finder.spans(part)


def _stretches(found: list[tuple[int, int]], seen: View) -> list[Stretch]:
    """Cut out the lines around the possible matches, those that touch each other as one."""
    merged: list[list[int]] = []
    for start, end in sorted(found):
        if end <= seen.own or start >= seen.stop:
            continue
        first = seen.data.rfind(b"\n", max(start - LARGEST, 0), start) + 1
        last = seen.data.find(b"\n", max(end - 1, 0), seen.size) + 1 or seen.size
        if merged and first <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return [_around(seen, first, last) for first, last in merged]


def _around(seen: View, first: int, last: int) -> Stretch:
    """Cut out lines with a little of what stands before and behind them, at characters, for `\\b` to look at."""
    low, high = max(first - _BESIDE, 0), min(last + _BESIDE, seen.size)
    while 0 < low < first and seen.data[low] & 0xC0 == 0x80:
        low += 1
    own = max(seen.own, first) - low
    return Stretch(seen.offset + low, bytes(seen.data[low:high]), own, min(seen.stop, last) - low)


def _sift_lines(ready: Plan, finder: Engine | None, seen: View) -> Sifted:
    data, own, stop = seen.data, seen.own, seen.stop
    found = Lines([], [])
    at, rest = own, False
    if finder is not None:
        found_ends, rest = _ends(finder, seen, own, stop)
        for _, end in found_ends:
            if own + end > at:
                at = _take(found, seen, at, own + end - 1)
    elif ready.literal:
        hit = data.find(ready.literal, at, stop)
        while hit >= 0:
            at = _take(found, seen, at, hit)
            hit = data.find(ready.literal, at, stop)
    else:
        rest = True
    if rest:
        found.offsets.append(seen.offset + at)
        found.lines.append(bytes(data[at:stop]))
    return found if found.lines else []


def _take(found: Lines, seen: View, at: int, inside: int) -> int:
    """Add the line that holds byte `inside`, and return where the next one begins."""
    first = seen.data.rfind(b"\n", at, inside) + 1 or at
    last = seen.data.find(b"\n", inside, seen.stop) + 1 or seen.stop
    found.offsets.append(seen.offset + first)
    found.lines.append(bytes(seen.data[first:last]))
    return last


def _in_lines(ready: Plan, found: Lines) -> Iterator[tuple[int, int]]:
    """Yield the matches in lines that stand next to each other as one text."""
    number, shift, stop = 0, found.offsets[0], len(found.lines[0])
    for start, end in _matches(ready, b"".join(found.lines), 0):
        while start >= stop and number + 1 < len(found.lines):
            number += 1
            shift = found.offsets[number] - stop
            stop += len(found.lines[number])
        yield start + shift, end + shift


def _in_stretch(ready: Plan, found: Stretch, done: int, high: int) -> Iterator[tuple[int, int]]:
    last = found.offset + found.stop == high
    for start, end in _matches(ready, found.data, max(found.own, done - found.offset)):
        if start >= found.stop and not (last and start == found.stop):
            return
        yield found.offset + start, found.offset + end


def _matches(ready: Plan, data: bytes, own: int) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of matches in decoded text, from byte `own` on."""
    if data.isascii():
        for match in ready.regex.finditer(data.decode("ascii"), own):
            yield match.span()
        return
    text = data.decode("utf-8", "surrogateescape")
    at = len(data[:own].decode("utf-8", "surrogateescape"))
    offset = own
    for match in ready.regex.finditer(text, at):
        start, end = match.span()
        offset += _width(text[at:start])
        yield offset, offset + _width(text[start:end])
        at = start


def _width(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))
