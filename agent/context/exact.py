"""Patterns that an engine over bytes can decide alone, so that `re` need not look again.

Such a pattern is one or more alternatives of fixed width, of parts that bytes can express: literals, classes, counted repeats,
`^` and `\\b` beside word characters. Where hits have to be `checked`, a hit is a match when its bytes and the one to each side
are ASCII: the last `width` bytes of a hit that took a wide character hold some of it. What fails the check is for `re`.
"""

from __future__ import annotations

from itertools import pairwise
from re import _constants as op  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from agent.context.superset import Reading, Unknown, chars_of, is_word, superset, wordlike

_WIDEST = 250
_MOST = 64  # alternatives, and the repeats that are written out
_ONE = (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY)
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT)


class Exact(NamedTuple):
    """One expression for each alternative, in the order of the pattern, and how many bytes its matches have.

    Matches of a `disjoint` one never overlap, whatever the text.
    """

    expressions: tuple[str, ...]
    widths: tuple[int, ...]
    checked: bool
    disjoint: bool


class _Inexact(Exception):
    """A part that needs `re`."""


def exact(items: list[Any], folded: bool, dotall: bool) -> Exact | None:
    """Return what decides a parsed pattern that stays in its line, or None."""
    how = Reading(folded, dotall, counted=True)
    try:
        branches = [_unrolled(items)]
        widths = [_width(branches[0], how)]
    except (_Inexact, Unknown):
        branches = [_unrolled(branch) for branch in _alternatives(items)]
        try:
            widths = [_width(branch, how) for branch in branches]
        except (_Inexact, Unknown):
            return None
    expressions = tuple(superset(branch, how) for branch in branches)
    if not all(expressions) or not all(0 < width <= _WIDEST for width in widths) or len(widths) > _MOST:
        return None
    # An alternative that stands there twice would be found twice; the first of them decides.
    kept = [
        i
        for i, pair in enumerate(zip(expressions, widths, strict=True))
        if pair not in zip(expressions[:i], widths[:i], strict=True)
    ]
    branches, widths = [branches[i] for i in kept], [widths[i] for i in kept]
    expressions = tuple(expressions[i] for i in kept)
    plain = all(kind is op.LITERAL and not folded for branch in branches for kind, _ in branch)
    return Exact(expressions, tuple(widths), not plain, plain and _disjoint([_literal(branch) for branch in branches]))


def _literal(branch: list[Any]) -> str:
    return "".join(chr(value) for _, value in branch)


def _disjoint(words: list[str]) -> bool:
    """Say whether no end of a word begins another, or itself, and none holds another."""
    pairs = [(one, other, one is other) for one in words for other in words]
    return all(
        (same or one not in other) and not any(one.endswith(other[:size]) for size in range(1, len(other) + (not same)))
        for one, other, same in pairs
    )


def _alternatives(items: list[Any]) -> list[list[Any]]:
    """Write out the first alternation, with what stands before and behind it."""
    for number, (kind, value) in enumerate(items):
        inner = list(value[3]) if kind is op.SUBPATTERN and not value[1] and not value[2] else [(kind, value)]
        if len(inner) == 1 and inner[0][0] is op.BRANCH:
            return [[*items[:number], *branch, *items[number + 1 :]] for branch in inner[0][1][1]]
    return [items]


def _unrolled(items: list[Any]) -> list[Any]:
    """Write out short counted repeats of one character, so that a `\\b` beside them has a character to stand at."""
    out: list[Any] = []
    for kind, value in items:
        if kind in _REPEATS and value[0] == value[1] <= 16 and len(value[2]) == 1 and value[2][0][0] in _ONE:
            out += list(value[2]) * value[0]
        else:
            out.append((kind, value))
    return out


def _width(items: list[Any], how: Reading) -> int:
    """Add up the bytes of a sequence; raise `_Inexact`."""
    around = [None, *items, None]
    for before, (item, after) in zip(around, pairwise(around[1:]), strict=False):
        if item is not None and item[0] is op.AT:
            _check_place(before, item[1], after, how.folded)
    return sum(_part(kind, value, how) for kind, value in items)


def _check_place(before: Any, value: Any, after: Any, folded: bool) -> None:
    if value is op.AT_BOUNDARY:
        if is_word(before, folded, False) or is_word(after, folded, True):
            return
        if wordlike(before, folded) or wordlike(after, folded):
            return
    elif value is op.AT_BEGINNING:
        return
    raise _Inexact


def _part(kind: Any, value: Any, how: Reading) -> int:
    if kind is op.AT:
        return 0
    if how.folded and kind in (op.LITERAL, op.NOT_LITERAL, op.IN) and chars_of(kind, value, False).beyond:
        raise _Inexact  # the superset of what has relatives in ASCII is coarse
    if kind is op.LITERAL:
        return 1 if value < 128 or how.folded else len(chr(value).encode("utf-8", "surrogatepass"))
    if kind in _ONE:
        return 1
    if kind is op.BRANCH:
        widths = {_width(list(branch), how) for branch in value[1]}
    elif kind is op.SUBPATTERN:
        widths = {_width(list(value[3]), how.inside(value[1], value[2]))}
    elif kind in _REPEATS and value[0] == value[1] <= _MOST:
        widths = {value[0] * _width(list(value[2]), how)}
    else:
        raise _Inexact
    if len(widths) != 1:
        raise _Inexact
    return widths.pop()
