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

from agent.context.confirm import Batch, exactly, in_lines
from agent.context.engine import Engine, engine
from agent.context.exact import Exact
from agent.context.pattern import plan
from agent.context.reading import Listed, read_once
from agent.context.stretches import Stretch, around, whole
from agent.context.windows import NEAR, OVERLAP, SMALLEST, View, Window, view, windows

MANY = 1 << 62
_THREADS = 2
_AHEAD = 4
_GROUP = 8  # windows that a thread takes at once, since handing over costs 50 µs
_LARGE = 4 << 20
_SPARSE = 1 << 12  # bytes for each match, from which on a second thread does not just wait for Python's lock
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
    """One pattern, ready to be looked for in `total` bytes; `most` bounds what one batch of matches costs.

    Raises `re.error` for a pattern that is none.
    """

    def __init__(self, pattern: str, ignore_case: bool, total: int, most: int = MANY) -> None:
        self._plan = ready = plan(pattern, ignore_case)
        self._most = most
        self._exact: Exact | None = None
        self._finder: Engine | None = None
        if total >= _WORTH:
            self._finder = engine(ready.exact.expressions) if ready.exact else None
            self._exact = ready.exact if self._finder else None
            self._finder = self._finder or engine((ready.superset,))
        self._beyond = NEAR if ready.lines_only else OVERLAP

    def batches(self, listed: Listed, low: int, high: int) -> Iterator[Batch]:
        """Yield the matches in a range of a file, in order; raise `FileChanged`."""
        if high - low <= SMALLEST:
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
        return self._sift(View(data, len(data), low, 0, len(data), True)) if data else [Stretch(low, b"", 0, 0)]

    def _sift_all(self, listed: Listed, low: int, high: int) -> Iterator[Sifted]:
        buffers: deque[bytearray] = deque(bytearray() for _ in range(_THREADS))

        def work(window: Window) -> Sifted:
            buffer = buffers.pop()
            try:
                return self._sift(view(listed, window, buffer, self._beyond))
            finally:
                buffers.append(buffer)

        rest, found = windows(low, high), 0
        for window in rest:
            sifted = work(window)
            found += len(sifted[0]) if isinstance(sifted, tuple) else len(sifted)
            yield sifted
            seen = window.end - low
            if self._finder is not None and seen >= _LARGE and found * _SPARSE < seen:
                break
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
        hits, rest = self._hits(seen)
        if not hits and not rest:
            return _NONE
        raw = bytes(memoryview(seen.data)[seen.own : seen.stop])
        regex, shift = self._plan.regex, seen.offset + seen.own
        if self._exact is not None:
            starts, ends = exactly(self._exact, regex, raw, hits)
        else:
            starts, ends = in_lines(regex, raw, hits, rest, self._most)
        return [start + shift for start in starts], [end + shift for end in ends]

    def _hits(self, seen: View) -> tuple[list[int], bool]:
        """Return what the engine (or the literal) found, from `own` on, and whether all behind the last is to be looked at."""
        own, stop, literal = seen.own, seen.stop, self._plan.literal
        if self._finder is not None:
            with memoryview(seen.data) as all_bytes, all_bytes[own:stop] as part:
                if self._exact is None:
                    return self._finder.some_ends(part)
                if len(self._exact.widths) == 1:
                    return self._finder.ends(part), False
                return self._finder.numbered(part, self._exact.widths), False
        found = []
        at = seen.data.find(literal, own, stop) if literal else -1
        while at >= 0:
            found.append(at + len(literal) - own)
            line_end = seen.data.find(b"\n", at, stop)
            at = seen.data.find(literal, line_end, stop) if line_end >= 0 else -1
        return found, not literal


def _ahead(work: Callable[[Window], Sifted], rest: Iterator[Window]) -> Iterator[Sifted]:
    groups = iter(lambda: list(itertools.islice(rest, _GROUP)), [])

    def together(group: list[Window]) -> list[Sifted]:
        return [work(window) for window in group]

    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="search")
    try:
        flying: deque[Future[list[Sifted]]] = deque(pool.submit(together, one) for one in itertools.islice(groups, _AHEAD))
        while flying:
            yield from flying.popleft().result()
            flying.extend(pool.submit(together, one) for one in itertools.islice(groups, 1))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
