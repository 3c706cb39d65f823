"""Matches in whole lines, from the places where they can end: by arithmetic where the engine was exact, else by `re`.

`re` looks at lines in place: bytes read as Latin-1 have the offsets of bytes, and ASCII lines mean the same. A line with other
bytes is decoded, and offsets in it are counted back into bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.context.exact import Exact

Batch = tuple[list[int], list[int]]  # where matches start, and where they end


def in_lines(regex: re.Pattern[str], raw: bytes, ends: list[int], rest: bool, most: int) -> Batch:
    """Return the matches in the lines that hold the bytes before `ends`, and, with `rest`, in all that follows."""
    starts: list[int] = []
    stops: list[int] = []
    text, ascii_only, at = raw.decode("latin-1"), raw.isascii(), 0
    for end in ends:
        if end <= at:
            continue
        first = raw.rfind(b"\n", at, end - 1) + 1 or at
        at = raw.find(b"\n", end - 1) + 1 or len(raw)
        if ascii_only or raw[first:at].isascii():
            for match in regex.finditer(text, first, at):
                starts.append(match.start())
                stops.append(match.end())
        else:
            for start, stop in matches(regex, raw[first:at], 0):
                starts.append(first + start)
                stops.append(first + stop)
        if len(starts) >= most:
            return starts, stops
    for start, stop in matches(regex, raw[at:], 0) if rest else ():
        starts.append(at + start)
        stops.append(at + stop)
        if len(starts) >= most:
            break
    return starts, stops


def exactly(decided: Exact, regex: re.Pattern[str], raw: bytes, hits: list[int]) -> Batch:
    """Return the matches among the hits of an exact engine: ends, or `start << 8 | number` for several widths."""
    if len(decided.widths) == 1:
        width = decided.widths[0]
        found = [(end - width, end) for end in hits]
    else:
        widths = decided.widths
        found = [(hit >> 8, (hit >> 8) + widths[hit & 255]) for hit in hits]
    if not decided.checked or raw.isascii():
        return _apart(found)
    doubtful = [end for start, end in found if not raw[start - 1 if start > 0 else 0 : end + 1].isascii()]
    if not doubtful:
        return _apart(found)
    return _mixed(regex, raw, found, doubtful)


def _mixed(regex: re.Pattern[str], raw: bytes, found: list[tuple[int, int]], doubtful: list[int]) -> Batch:
    """Give the lines of doubtful hits to `re`, all of their hits included, and keep the other lines' hits."""
    starts, stops = in_lines(regex, raw, sorted(doubtful), False, len(raw) + 1)
    kept: list[tuple[int, int]] = []
    bounds = _lines(raw, sorted(doubtful))
    first, last = next(bounds, (len(raw) + 1, 0))
    for start, end in found:
        while end > last and last:
            first, last = next(bounds, (len(raw) + 1, 0))
        if end <= first:
            kept.append((start, end))
    sure = _apart(kept)
    both = sorted([*zip(starts, stops, strict=True), *zip(*sure, strict=True)])
    return [start for start, _ in both], [end for _, end in both]


def _lines(raw: bytes, ends: list[int]) -> Iterator[tuple[int, int]]:
    at = 0
    for end in ends:
        if end > at:
            first = raw.rfind(b"\n", at, end - 1) + 1 or at
            at = raw.find(b"\n", end - 1) + 1 or len(raw)
            yield first, at


def _apart(found: list[tuple[int, int]]) -> Batch:
    """Keep, of matches in order, those that do not begin inside the one before."""
    starts: list[int] = []
    stops: list[int] = []
    last = 0
    for start, end in found:
        if start >= last:
            starts.append(start)
            stops.append(end)
            last = end
    return starts, stops


def matches(regex: re.Pattern[str], data: bytes, own: int) -> Iterator[tuple[int, int]]:
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
