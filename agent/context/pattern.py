"""Regular expressions over bytes: a pattern written for text finds the byte ranges of its matches.

ASCII patterns run over the mapped bytes themselves, so nothing is decoded or copied; patterns with other characters run
over text whose every character maps back to its bytes. `^` and `$` mean lines, ended by LF or CRLF.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from agent.context.literal import Required, required
from agent.context.mapping import Buffer


def find(
    pattern: str, ignore_case: bool, buffer: Buffer, base: int, size: int, limit: int
) -> Iterator[tuple[int, int]]:
    """Yield (start, end), in bytes from `base`, of at most `limit` matches within `size` bytes; raise `re.error`."""
    if limit <= 0 or not size:
        return
    if pattern.isascii():
        compiled = _compile(pattern, ignore_case)
        found = _matches(compiled, buffer, base, base + size, not ignore_case)
        pairs: Iterator[tuple[int, int]] = ((match.start() - base, match.end() - base) for match in found)
    else:
        # Non-ASCII classes and case need characters; surrogateescape maps back to the very bytes.
        text = buffer[base : base + size].decode("utf-8", "surrogateescape")
        flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
        pairs = _byte_offsets(text, re.compile(_crlf(pattern), flags).finditer(text))
    for number, pair in enumerate(pairs, 1):
        yield pair
        if number >= limit:
            return


def _matches(
    compiled: re.Pattern[bytes], buffer: Buffer, start: int, end: int, exact: bool
) -> Iterator[re.Match[bytes]]:
    """Yield what `finditer` would, by way of a string that each match contains where there is one."""
    needed = required(compiled.pattern) if exact else Required(b"", False)
    hit = buffer.find(needed.text, start, end) if needed.text else start
    if hit < 0:
        return
    if not needed.lines_only:
        yield from compiled.finditer(buffer, start, end)
        return
    while hit >= 0:
        first = max(buffer.rfind(b"\n", start, hit) + 1, start)
        last = buffer.find(b"\n", hit, end)
        last = end if last < 0 else last
        # The line end is part of the view, so that `$` and CRLF look as they do in the whole.
        yield from compiled.finditer(buffer, first, min(last + 1, end))
        hit = buffer.find(needed.text, last, end)


def _byte_offsets(text: str, found: Iterable[re.Match[str]]) -> Iterator[tuple[int, int]]:
    at = offset = 0
    for match in found:
        offset += len(text[at : match.start()].encode("utf-8", "surrogateescape"))
        at = match.start()
        yield offset, offset + len(match.group().encode("utf-8", "surrogateescape"))


@lru_cache(maxsize=128)
def _compile(pattern: str, ignore_case: bool) -> re.Pattern[bytes]:
    return re.compile(_crlf(pattern).encode("ascii"), re.MULTILINE | (re.IGNORECASE if ignore_case else 0))


def _crlf(pattern: str) -> str:
    """Let `$` match before CRLF as well."""
    pieces = re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL)
    return "".join(r"(?=\r?$)" if piece == "$" else piece for piece in pieces)
