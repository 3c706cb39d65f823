"""A search of one file's byte range: windows are sifted for candidates, and `re` decides on those, in order.

Sifting (reading and the engine) runs outside of Python's lock, for large ranges in two threads that keep a few windows ahead;
`re` sees decoded text, in which a broken byte is a character of its own. The result is that of `re.finditer` over the whole
text, whatever the engine. Nothing is held but the windows in flight, and a search that is not gone on with costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from agent.context.engine import Engine, engine
from agent.context.pattern import Plan, plan
from agent.context.reading import Listed
from agent.context.windows import View, Window, view, windows

_THREADS = 2
_AHEAD = 4
_LARGE = 4 << 20


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


Sifted = Lines | Stretch | None


def find(pattern: str, ignore_case: bool, listed: Listed, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each match, in bytes of the file; raise `re.error` or `FileChanged`."""
    ready = plan(pattern, ignore_case)
    done = low
    for sifted in _sift_all(ready, listed, low, high):
        if isinstance(sifted, Lines):
            yield from _in_lines(ready, sifted)
        elif sifted is not None:
            for start, end in _in_stretch(ready, sifted, done, high):
                yield start, end
                done = end


def _sift_all(ready: Plan, listed: Listed, low: int, high: int) -> Iterator[Sifted]:
    finder = engine(ready.superset)
    if high <= low:
        if not high - low:  # an empty text can still hold an empty match
            yield Stretch(low, b"", 0, 0)
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


def _ahead(work: object, low: int, high: int) -> Iterator[Sifted]:
    rest = windows(low, high)
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="search")
    try:
        flying: deque[Future[Sifted]] = deque(pool.submit(work, one) for one in islice(rest, _AHEAD))  # type: ignore[arg-type]
        while flying:
            yield flying.popleft().result()
            flying.extend(pool.submit(work, one) for one in islice(rest, 1))  # type: ignore[arg-type]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _sift(ready: Plan, finder: Engine | None, seen: View) -> Sifted:
    if seen.own >= seen.stop:  # the line before took all of it
        return None
    if ready.lines_only and seen.whole_lines:
        return _sift_lines(ready, finder, seen)
    if finder is not None:
        with memoryview(seen.data) as whole, whole[: seen.size] as part:
            if not finder.ends(part, first_only=True)[0]:
                return None
    elif ready.literal and seen.data.find(ready.literal, 0, seen.size) < 0:
        return None
    return Stretch(seen.offset, bytes(seen.data[: seen.size]), seen.own, seen.stop)


def _sift_lines(ready: Plan, finder: Engine | None, seen: View) -> Sifted:
    data, own, stop = seen.data, seen.own, seen.stop
    found = Lines([], [])
    at, rest = own, False
    if finder is not None:
        with memoryview(data) as whole, whole[own:stop] as part:
            ends, rest = finder.ends(part)
        for end in ends:
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
    return found if found.lines else None


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
