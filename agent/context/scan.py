"""A search of files' byte ranges: windows are sifted for possible matches, and what is in doubt is decided by `re`, in order.

Sifting (reading and the engine) runs outside of Python's lock; large ranges with few matches are sifted in two threads that keep
a few windows ahead. `re` sees decoded text, in which a broken byte is a character of its own. The result is that of `re.finditer`
over the whole text, whatever the engine. Nothing is held but the windows in flight.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter

from agent.context.confirm import Batch, exactly, in_lines
from agent.context.engine import Engine, engine
from agent.context.exact import Exact
from agent.context.pattern import plan
from agent.context.reading import Listed, read_once
from agent.context.stretches import Stretch, around, whole
from agent.context.windows import USUAL, Sizes, View, Window, view, windows

MANY = 1 << 62
_THREADS = 2
_AHEAD = 4
_GROUP = 8  # windows that a thread takes at once, since handing over costs 50 µs
_LARGE = 4 << 20
_HANDED = 4e-6  # seconds of work for each match, above which most of it is the engine's
_WORTH = 1 << 18  # bytes from which on compiling a pattern for the engine (1 ms, at worst 1 s) pays

Sifted = Batch | list[Stretch]
_NONE: Batch = ([], [])


def find(
    pattern: str, ignore_case: bool, listed: Listed, low: int, high: int, total: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each match, in bytes of the file; raise `re.error` or `FileChanged`.

    `total` is how many bytes are searched for the pattern in all, when this range is one of many.
    """
    for starts, ends in Searcher(pattern, ignore_case, max(total, high - low)).batches(listed, low, high):
        yield from zip(starts, ends, strict=True)


class Searcher:
    """One pattern, ready to be looked for in `total` bytes; `most` bounds what one batch of matches costs, `sizes` the windows.

    Raises `re.error` for a pattern that is none.
    """

    def __init__(self, pattern: str, ignore_case: bool, total: int, most: int = MANY, sizes: Sizes = USUAL) -> None:
        self._plan = ready = plan(pattern, ignore_case)
        self._most = most
        self._exact: Exact | None = None
        self._finder: Engine | None = None
        if total >= _WORTH:
            self._finder = engine(ready.exact.expressions) if ready.exact else None
            self._exact = ready.exact if self._finder else None
            self._finder = self._finder or engine((ready.superset,))
        self._sizes = sizes

    def batches(self, listed: Listed, low: int, high: int) -> Iterator[Batch]:
        """Yield the matches in a range of a file, in order; raise `FileChanged`."""
        if high - low <= self._sizes.smallest:
            sifted: Iterable[Sifted] = [self._sift_small(listed, low, high)]
        else:
            sifted = self._sift_all(listed, low, high)
        done = low
        for one in sifted:
            if isinstance(one, tuple):
                if one[0]:
                    yield one
                continue
            for stretch in one:
                found = itertools.islice(stretch.matches(self._plan.regex, done, high), self._most)
                while batch := list(itertools.islice(found, 1024)):
                    yield [start for start, _ in batch], [end for _, end in batch]
                    done = batch[-1][1]

    def _sift_small(self, listed: Listed, low: int, high: int) -> Sifted:
        data = read_once(listed, low, high)
        if data and self._finder is not None and not self._finder.any(data):  # most of many files
            return _NONE
        return self._sift(View(data, len(data), low, 0, len(data), True)) if data else [Stretch(low, b"", 0, 0)]

    def _sift_all(self, listed: Listed, low: int, high: int) -> Iterator[Sifted]:
        buffers: deque[bytearray] = deque(bytearray() for _ in range(_THREADS))

        def work(window: Window) -> Sifted:
            buffer = buffers.pop()
            try:
                return self._sift(view(listed, window, buffer, self._sizes, self._plan.lines_only))
            finally:
                buffers.append(buffer)

        rest, found, took = windows(low, high, self._sizes), 0, 0.0
        for window in rest:
            began = perf_counter()
            sifted = work(window)
            took += perf_counter() - began
            found += len(sifted[0]) if isinstance(sifted, tuple) else len(sifted)
            yield sifted
            if self._finder is not None and window.end - low >= _LARGE and took > found * _HANDED:
                break  # a second thread does not just wait for Python's lock
        yield from _ahead(work, rest)

    def _sift(self, seen: View) -> Sifted:
        if seen.own >= seen.stop:  # the line before took all of it, or the text is empty
            return _NONE
        ready, finder = self._plan, self._finder
        if ready.lines_only and seen.whole_lines:
            return self._sift_lines(seen)
        if finder is None:
            return [] if ready.literal and seen.data.find(ready.literal, 0, seen.size) < 0 else [whole(seen)]
        with memoryview(seen.data) as all_bytes, all_bytes[: seen.size] as part:
            if not finder.any(part):
                return []
            starter = None if ready.lines_only or ready.looks_far else engine((ready.superset,), True)
            if starter is None:
                return [whole(seen)]
            found, full = starter.spans(part)
        return [whole(seen)] if full else around(seen, found)

    def _sift_lines(self, seen: View) -> Batch:
        ready, finder = self._plan, self._finder
        if finder is None:
            found, rest = _literal_ends(ready.literal, seen), not ready.literal
        else:
            with memoryview(seen.data) as all_bytes, all_bytes[: seen.stop] as part:
                if self._exact is not None:
                    ends = finder.ends(part, seen.own)
                    return exactly(self._exact, ready.regex, seen, ends) if any(ends) else _NONE
                found, rest = finder.some_ends(part, seen.own)
        return in_lines(ready.regex, seen, found, rest, self._most) if found or rest else _NONE


def _literal_ends(literal: bytes, seen: View) -> list[int]:
    """Return where the literal ends first in each line; nothing for an empty one."""
    found = []
    at = seen.data.find(literal, seen.own, seen.stop) if literal else -1
    while at >= 0:
        found.append(at + len(literal))
        line_end = seen.data.find(b"\n", at, seen.stop)
        at = seen.data.find(literal, line_end, seen.stop) if line_end >= 0 else -1
    return found


def _ahead(work: Callable[[Window], Sifted], rest: Iterator[Window]) -> Iterator[Sifted]:
    groups = iter(lambda: list(itertools.islice(rest, _GROUP)), [])

    def together(group: list[Window]) -> list[Sifted]:
        return [work(window) for window in group]

    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="search")
    try:
        flying: deque[Future[list[Sifted]]] = deque(
            pool.submit(together, one) for one in itertools.islice(groups, _AHEAD)
        )
        while flying:
            yield from flying.popleft().result()
            flying.extend(pool.submit(together, one) for one in itertools.islice(groups, 1))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
