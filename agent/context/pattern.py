"""What is known of a pattern before any text is seen, so that most of the text need not be looked at by `re`.

A plan holds the compiled pattern, a string that each match contains, whether matches stay within their line, and a
superset: a simpler pattern over bytes that matches wherever the pattern can match in the decoded text, for an engine to find
the candidate lines with. When in doubt nothing is claimed: a plan changes the time of a search, never its result.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from agent.context.exact import Exact, exact
from agent.context.superset import Reading, superset

_NEWLINE = 10
_BOUNDARY_FIRST = re.compile(r"\A\\b(\[\^?\]?(?:\\.|[^\]\\])*\]|\\[dDwWsS]|[A-Za-z0-9_])(?![*+?{])", re.DOTALL)
_LEAST = 3  # a shorter string stands in so many lines that looking for it first does not pay


class Plan(NamedTuple):
    """How to search for one pattern; an empty `literal` or `superset` means there is none, `looks_far` that it looks around.

    `exact` is what an engine can decide alone, None for what `re` must look at.
    """

    regex: re.Pattern[str]
    literal: bytes
    lines_only: bool
    looks_far: bool
    superset: str
    exact: Exact | None


@lru_cache(maxsize=128)
def plan(pattern: str, ignore_case: bool = False) -> Plan:
    """Prepare a pattern (`re` syntax, `^` and `$` at lines ended by LF or CRLF); raise `re.error`."""
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    re.compile(pattern, flags)
    regex = re.compile(_swapped(_crlf(pattern)), flags)
    parsed = parser.parse(pattern, flags)
    items = list(parsed)
    folded, dotall = bool(parsed.state.flags & re.IGNORECASE), bool(parsed.state.flags & re.DOTALL)
    lines_only = not dotall and all(_in_line(item) for item in items)
    literal = "" if folded else max(_runs(items), key=len, default="")
    least = parsed.getwidth()[0]
    in_line = lines_only and least > 0
    return Plan(
        regex,
        literal.encode() if len(literal) >= _LEAST else b"",
        in_line,
        re.search(r"\(\?<?[=!]", pattern) is not None,
        superset(items, Reading(folded, dotall)) if least > 0 else "",
        exact(items, folded, dotall) if in_line else None,
    )


def _runs(items: list[Any]) -> list[str]:
    runs, current = [], ""
    for kind, value in items:
        if kind is op.LITERAL and not 0xD800 <= value < 0xE000:  # those stand for broken bytes
            current += chr(value)
            continue
        if kind is op.AT:  # takes no room, so the run goes on
            continue
        runs.append(current)
        current = ""
        if kind is op.SUBPATTERN and not value[1]:
            runs += _runs(list(value[3]))
    return [*runs, current]


def _in_line(item: Any) -> bool:
    """Say whether one part of a pattern can neither match a line end nor look beyond one."""
    kind, value = item
    if kind is op.LITERAL:
        return bool(value != _NEWLINE)
    if kind in (op.ANY, op.GROUPREF):
        return True
    if kind is op.AT:
        return value in (op.AT_BEGINNING, op.AT_END, op.AT_BOUNDARY, op.AT_NON_BOUNDARY)
    if kind is op.IN:
        return all(_is_inside(part) for part in value)
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return all(_in_line(part) for part in value[2])
    if kind is op.SUBPATTERN:
        return not value[1] & re.DOTALL and not value[2] & re.MULTILINE and all(_in_line(part) for part in value[3])
    if kind is op.ATOMIC_GROUP:
        return all(_in_line(part) for part in value)
    if kind in (op.ASSERT, op.ASSERT_NOT):
        return all(_in_line(part) for part in value[1])
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


def _crlf(pattern: str) -> str:
    """Let `$` match before CRLF as well."""
    pieces = re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL)
    return "".join(r"(?=\r?$)" if piece == "$" else piece for piece in pieces)


def _swapped(pattern: str) -> str:
    """Let a character before the `\\b` that it stands behind: `re` skips to a character fast, to a boundary slowly."""
    return _BOUNDARY_FIRST.sub(r"\1(?<=\\b\1)", pattern)
