"""What every match of a pattern must contain: a plain string that can be looked for much faster than the pattern.

`required` returns that string; with `lines_only` it is also certain that no match spans a line end, so the pattern needs to
run on lines that hold the string and nowhere else. When in doubt nothing is claimed: the result of a search never changes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

_NEWLINE = 10
_LEAST = 3  # a shorter string stands in so many lines that looking for it first does not pay


class Required(NamedTuple):
    """A string that each match contains (empty when there is none), and whether matches stay within their line."""

    text: bytes
    lines_only: bool


@lru_cache(maxsize=128)
def required(pattern: bytes) -> Required:
    """Return the longest string that every match of a case-sensitive pattern contains."""
    parsed = parser.parse(pattern, re.MULTILINE)
    if parsed.state.flags & (re.IGNORECASE | re.DOTALL):
        return Required(b"", False)
    best = max(_runs(list(parsed)), key=len, default=b"")
    if len(best) < _LEAST or b"\n" in best:
        return Required(b"", False)
    return Required(best, all(_in_line(item) for item in parsed))


def _runs(items: list[Any]) -> list[bytes]:
    runs, current = [], bytearray()
    for kind, value in items:
        if kind is op.LITERAL:
            current.append(value)
            continue
        if kind is op.AT:  # takes no room, so the run goes on
            continue
        runs.append(bytes(current))
        current = bytearray()
        if kind is op.SUBPATTERN and not value[1]:
            runs += _runs(list(value[3]))
    return [*runs, bytes(current)]


def _in_line(item: Any) -> bool:
    """Say whether one part of a pattern can neither match a line end nor look beyond one."""
    kind, value = item
    if kind is op.LITERAL:
        return bool(value != _NEWLINE)
    if kind is op.ANY:
        return True
    if kind is op.AT:
        return value in (op.AT_BEGINNING, op.AT_END, op.AT_BOUNDARY, op.AT_NON_BOUNDARY)
    if kind is op.IN:
        return all(_is_inside(part) for part in value)
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
        return all(_in_line(part) for part in value[2])
    if kind is op.SUBPATTERN:
        return not value[1] and not value[2] and all(_in_line(part) for part in value[3])
    if kind is op.BRANCH:
        return all(_in_line(part) for branch in value[1] for part in branch)
    return False


def _is_inside(part: Any) -> bool:
    kind, value = part
    if kind is op.LITERAL:
        return bool(value != _NEWLINE)
    if kind is op.RANGE:
        return not value[0] <= _NEWLINE <= value[1]
    return kind is op.CATEGORY and value in (
        op.CATEGORY_DIGIT,
        op.CATEGORY_WORD,
        op.CATEGORY_NOT_SPACE,
    )
