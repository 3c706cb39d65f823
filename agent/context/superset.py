"""A pattern over characters as a simpler pattern over UTF-8 bytes, which matches wherever the first one can.

What bytes can't say (Unicode classes and case, lookaround, back references) is widened, never narrowed: a line without a match
of the superset has none of the pattern. The result uses only what automata engines know. A byte from 128 on may belong to
any character, and a character takes one (when it is broken) to four bytes.
"""

from __future__ import annotations

import re
import string
from re import _constants as op  # type: ignore[attr-defined]
from typing import Any, NamedTuple

_WORD = frozenset(map(ord, string.ascii_letters + string.digits + "_"))
_ASCII = frozenset(range(128))
_SPACE = frozenset(map(ord, " \t\n\r\f\v\x1c\x1d\x1e\x1f"))
_DIGIT = frozenset(map(ord, string.digits))
_CATEGORY = {op.CATEGORY_WORD: _WORD, op.CATEGORY_SPACE: _SPACE, op.CATEGORY_DIGIT: _DIGIT,
             op.CATEGORY_NOT_WORD: _ASCII - _WORD, op.CATEGORY_NOT_SPACE: _ASCII - _SPACE,
             op.CATEGORY_NOT_DIGIT: _ASCII - _DIGIT}  # fmt: skip
_FOLDED = frozenset(map(ord, "iIkKsS"))  # letters that have a relative beyond ASCII
_HIGH = r"[\x80-\xff]{1,4}"
_MOST = 64  # a longer repeat would make the engine's automaton large
_LENGTH = 4000


class _Unknown(Exception):
    """A part that has no superset worth having."""


class _Chars(NamedTuple):
    """One character of a pattern: which ASCII codes it can be, and whether it can be others."""

    codes: frozenset[int]
    beyond: bool

    def pattern(self) -> str:
        inside = "".join(f"\\x{code:02x}" for code in sorted(self.codes))
        plain = "" if not inside else inside if len(self.codes) == 1 else f"[{inside}]"
        if not self.beyond:
            return plain or "[^\\x00-\\xff]"
        return f"(?:{plain}|{_HIGH})" if plain else f"(?:{_HIGH})"


def superset(items: list[Any], folded: bool, dotall: bool) -> str:
    """Return the superset of a parsed pattern, or an empty string when it has none worth trying."""
    try:
        body = _sequence(items, folded, dotall, last=True)
    except _Unknown:
        return ""
    return body if len(body) <= _LENGTH else ""


def _sequence(items: list[Any], folded: bool, dotall: bool, last: bool = False) -> str:
    out = []
    for number, (kind, value) in enumerate(items):
        if kind is op.AT:
            before = items[number - 1] if number else None
            after = items[number + 1] if number + 1 < len(items) else None
            out.append(_place(value, before, after, folded, last))
        else:
            out.append(_item(kind, value, folded, dotall))
    return "".join(out)


def _place(value: Any, before: Any, after: Any, folded: bool, last: bool) -> str:
    if value is op.AT_BEGINNING:
        return "^"
    if value is op.AT_END and last and after is None:
        return r"\r?$"
    if value is op.AT_BOUNDARY and (_is_word(before, folded, False) or _is_word(after, folded, True)):
        return r"\b"  # one side is an ASCII word character, so the bytes tell as much as the characters
    return ""


def _is_word(item: Any, folded: bool, first: bool) -> bool:
    """Say whether a part begins (`first`) or ends with a word character of ASCII for certain."""
    if item is None:
        return False
    kind, value = item
    if kind in (op.LITERAL, op.IN):
        chars = _chars(kind, value, folded)
        return not chars.beyond and chars.codes <= _WORD
    if kind is op.SUBPATTERN and not value[1] and len(value[3]):
        return _is_word(value[3][0 if first else -1], folded, first)
    if kind is op.BRANCH:
        return all(len(branch) and _is_word(branch[0 if first else -1], folded, first) for branch in value[1])
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT) and value[0] > 0 and len(value[2]):
        return _is_word(value[2][0 if first else -1], folded, first)
    return False


def _item(kind: Any, value: Any, folded: bool, dotall: bool) -> str:
    if kind is op.LITERAL and value >= 128 and not folded:
        return "".join(f"\\x{byte:02x}" for byte in chr(value).encode("utf-8", "surrogatepass"))
    if kind in (op.LITERAL, op.NOT_LITERAL, op.IN):
        return _chars(kind, value, folded).pattern()
    if kind is op.ANY:
        return _Chars(_ASCII if dotall else _ASCII - {10}, True).pattern()
    if kind is op.BRANCH:
        return "(?:" + "|".join(_sequence(list(branch), folded, dotall) for branch in value[1]) + ")"
    if kind is op.SUBPATTERN:
        _, added, removed, inner = value
        folded = (folded or bool(added & re.IGNORECASE)) and not removed & re.IGNORECASE
        dotall = (dotall or bool(added & re.DOTALL)) and not removed & re.DOTALL
        return "(?:" + _sequence(list(inner), folded, dotall) + ")"
    if kind is op.ATOMIC_GROUP:
        return "(?:" + _sequence(list(value), folded, dotall) + ")"
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return _repeat(value, folded, dotall)
    if kind in (op.ASSERT, op.ASSERT_NOT):
        return ""
    raise _Unknown(kind)


def _repeat(value: Any, folded: bool, dotall: bool) -> str:
    least, most, inner = value[0], value[1], list(value[2])
    least, most = min(least, _MOST), "" if most is op.MAXREPEAT or most > _MOST else most
    count = f"{{{least},{most}}}"
    if not most and len(inner) == 1 and inner[0][0] in (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY):
        kind, one = inner[0]
        chars = _Chars(_ASCII if dotall else _ASCII - {10}, True) if kind is op.ANY else _chars(kind, one, folded)
        if chars.beyond and chars.codes:  # any number of them: bytes need not be counted as characters
            return "[" + "".join(f"\\x{code:02x}" for code in sorted(chars.codes)) + r"\x80-\xff]" + count
    return "(?:" + _sequence(inner, folded, dotall) + ")" + count


def _chars(kind: Any, value: Any, folded: bool) -> _Chars:
    if kind is op.LITERAL:
        return _fold(_Chars(frozenset({value}) & _ASCII, value >= 128), folded)
    if kind is op.NOT_LITERAL:
        return _Chars(_ASCII - {value}, True)
    negated = bool(value) and value[0][0] is op.NEGATE
    codes: frozenset[int] = frozenset()
    beyond = False
    for part, what in value[1:] if negated else value:
        if part is op.LITERAL:
            codes, beyond = codes | ({what} & _ASCII), beyond or what >= 128
        elif part is op.RANGE:
            codes, beyond = codes | (frozenset(range(what[0], min(what[1], 127) + 1))), beyond or what[1] >= 128
        elif part is op.CATEGORY and what in _CATEGORY:
            codes, beyond = codes | _CATEGORY[what], True
        else:
            raise _Unknown(part)
    if negated:
        return _Chars(_ASCII - codes, True)
    return _fold(_Chars(codes, beyond), folded)


def _fold(chars: _Chars, folded: bool) -> _Chars:
    if not folded:
        return chars
    codes = frozenset(ord(c) for code in chars.codes for c in (chr(code).lower(), chr(code).upper()) if ord(c) < 128)
    beyond = chars.beyond or bool(codes & _FOLDED)
    return _Chars(codes | (_FOLDED if chars.beyond else frozenset()), beyond)
