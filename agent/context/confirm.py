"""Matches in whole lines, from the places where they can end: by arithmetic where the engine was exact, else by `re`.

Offsets count in the data of a view until they leave; then they grow by where it lies in the file. `re` sees one line at a time,
decoded where it is not ASCII.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from agent.context.exact import Exact
from agent.context.windows import View

Batch = tuple[list[int], list[int]]  # where matches start, and where they end
Found = list[tuple[int, list[int]]]  # for each alternative: its width, and where matches end


def in_lines(regex: re.Pattern[str], seen: View, ends: list[int], rest: bool, most: int) -> Batch:
    """Return the matches in the lines that hold the bytes before `ends`, and, with `rest`, in all that follows.

    With `most` matches found, nothing more is looked at.
    """
    starts: list[int] = []
    stops: list[int] = []
    at, shift = seen.own, seen.offset
    for first, last in _lines(seen, ends):
        line, at = seen.data[first:last], last
        here = first + shift
        if line.isascii():
            for match in regex.finditer(line.decode("ascii")):
                starts.append(match.start() + here)
                stops.append(match.end() + here)
        else:
            _add(starts, stops, matches(regex, line, 0), here)
        if len(starts) >= most:
            return starts, stops
    if rest:
        _add(starts, stops, islice(matches(regex, seen.data[at : seen.stop], 0), most), at + shift)
    return starts, stops


def _add(starts: list[int], stops: list[int], found: Iterable[tuple[int, int]], shift: int) -> None:
    for start, stop in found:
        starts.append(start + shift)
        stops.append(stop + shift)


def _lines(seen: View, ends: list[int]) -> Iterator[tuple[int, int]]:
    """Yield where the lines that hold the bytes before `ends` begin and end."""
    data, at, stop = seen.data, seen.own, seen.stop
    for end in ends:
        if end > at:
            first = data.rfind(b"\n", at, end - 1) + 1 or at
            at = data.find(b"\n", end - 1, stop) + 1 or stop
            yield first, at


def exactly(decided: Exact, regex: re.Pattern[str], seen: View, ends: list[list[int]]) -> Batch:
    """Return the matches among the ends that an exact engine found for each alternative."""
    found = [(width, some) for width, some in zip(decided.widths, ends, strict=True) if some]
    if decided.checked:
        data = seen.data
        doubtful = [
            end for width, some in found for end in some if not data[max(end - width, 1) - 1 : end + 1].isascii()
        ]
        if doubtful:
            return _mixed(regex, seen, found, sorted(doubtful))
    return _disjoint(found, seen.offset) if decided.disjoint else _apart(found, seen.offset)


def _mixed(regex: re.Pattern[str], seen: View, found: Found, doubtful: list[int]) -> Batch:
    """Give the lines of doubtful ends to `re`, with all other ends in them, and keep the ends in other lines."""
    lines = list(_lines(seen, doubtful))
    firsts, lasts = [first for first, _ in lines], [last for _, last in lines]
    sure = []
    for width, ends in found:
        before = ((end, bisect_left(firsts, end) - 1) for end in ends)  # a match ends behind its line's first byte
        sure.append((width, [end for end, line in before if line < 0 or end > lasts[line]]))
    pairs = [*zip(*_apart(sure, seen.offset), strict=True)]
    pairs += zip(*in_lines(regex, seen, doubtful, False, seen.size + 1), strict=True)
    pairs.sort()
    return [start for start, _ in pairs], [end for _, end in pairs]


def _disjoint(found: Found, shift: int) -> Batch:
    """Put matches in order that can't overlap, so that starts and ends have the same order."""
    starts = [[end + less for end in ends] for width, ends in found for less in (shift - width,)]
    stops = [[end + shift for end in ends] for _, ends in found]
    if len(found) == 1:
        return starts[0], stops[0]
    return sorted(chain.from_iterable(starts)), sorted(chain.from_iterable(stops))


def _apart(found: Found, shift: int) -> Batch:
    """Keep the matches that do not begin inside the one before; at one place the first alternative counts."""
    starts: list[int] = []
    stops: list[int] = []
    last = 0
    if len(found) == 1:
        width, ends = found[0]
        for end in ends:
            if end - width >= last:
                last = end
                stops.append(end + shift)
        return [stop - width for stop in stops], stops
    coded = [end - width << 8 | number for number, (width, ends) in enumerate(found) for end in ends]
    coded.sort()
    widths = [width for width, _ in found]
    for code in coded:
        start = code >> 8
        if start >= last:
            last = start + widths[code & 255]
            starts.append(start + shift)
            stops.append(last + shift)
    return starts, stops


def matches(regex: re.Pattern[str], data: bytes | bytearray, own: int) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of matches in decoded text, from byte `own` on."""
    if data.isascii():
        for match in regex.finditer(data.decode("ascii"), own):
            yield match.span()
        return
    text = data.decode("utf-8", "surrogateescape")
    at = len(data[:own].decode("utf-8", "surrogateescape"))
    offset = own
    for match in regex.finditer(text, at):
        start, end = match.span()
        offset += _bytes(text[at:start])
        yield offset, offset + _bytes(text[start:end])
        at = start


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))
