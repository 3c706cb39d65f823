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
_BOUNDARY = (op.AT, op.AT_BOUNDARY)
_HIGH = r"[\x80-\xff]{1,4}"
_MOST = 64  # a longer repeat would make the engine's automaton large
_LENGTH = 4000


class Reading(NamedTuple):
    """How a part of a pattern is read: its flags, and whether each of its characters is to be counted."""

    folded: bool
    dotall: bool
    counted: bool = False

    def inside(self, added: int, removed: int) -> Reading:
        """Return how a group with flags of its own is read."""
        return self._replace(
            folded=(self.folded or bool(added & re.IGNORECASE)) and not removed & re.IGNORECASE,
            dotall=(self.dotall or bool(added & re.DOTALL)) and not removed & re.DOTALL,
        )


class Unknown(Exception):
    """A part that has no superset worth having."""


class Chars(NamedTuple):
    """One character of a pattern: which ASCII codes it can be, and whether it can be others."""

    codes: frozenset[int]
    beyond: bool

    def pattern(self) -> str:
        """Return it as a pattern over bytes."""
        inside = "".join(f"\\x{code:02x}" for code in sorted(self.codes))
        plain = "" if not inside else inside if len(self.codes) == 1 else f"[{inside}]"
        if not self.beyond:
            return plain or "[^\\x00-\\xff]"
        return f"(?:{plain}|{_HIGH})" if plain else f"(?:{_HIGH})"


def superset(items: list[Any], how: Reading) -> str:
    """Return the superset of a parsed pattern, or an empty string when it has none worth trying."""
    try:
        body = _sequence(items, how, last=True)
    except Unknown:
        return ""
    return body if len(body) <= _LENGTH else ""


def _sequence(items: list[Any], how: Reading, last: bool = False) -> str:
    out = []
    for number, (kind, value) in enumerate(items):
        before = items[number - 1] if number else None
        after = items[number + 1] if number + 1 < len(items) else None
        if kind is op.AT:
            out.append(_place(value, before, after, how.folded, last))
        elif _BOUNDARY in (before, after) and wordlike(items[number], how.folded):
            inside = chars_of(kind, value, how.folded)._replace(beyond=False).pattern()
            lead, trail = (r"\b" if item == _BOUNDARY else "" for item in (before, after))
            out.append(f"(?:{lead}{inside}{trail}|{_HIGH})")
        else:
            out.append(_item(kind, value, how))
    return "".join(out)


def wordlike(item: Any, folded: bool) -> bool:
    """Say whether a part is one character that is a word character, or one beyond ASCII."""
    if item is None or item[0] not in (op.LITERAL, op.IN):
        return False
    chars = chars_of(item[0], item[1], folded)
    return chars.beyond and bool(chars.codes) and chars.codes <= _WORD


def _place(value: Any, before: Any, after: Any, folded: bool, last: bool) -> str:
    if value is op.AT_BEGINNING:
        return "^"
    if value is op.AT_END and last and after is None:
        return r"\r?$"
    if value is op.AT_BOUNDARY and (is_word(before, folded, False) or is_word(after, folded, True)):
        return r"\b"  # one side is an ASCII word character, so the bytes tell as much as the characters
    return ""


def is_word(item: Any, folded: bool, first: bool) -> bool:
    """Say whether a part begins (`first`) or ends with a word character of ASCII for certain."""
    if item is None:
        return False
    kind, value = item
    if kind in (op.LITERAL, op.IN):
        chars = chars_of(kind, value, folded)
        return not chars.beyond and chars.codes <= _WORD
    if kind is op.SUBPATTERN and not value[1] and len(value[3]):
        return is_word(value[3][0 if first else -1], folded, first)
    if kind is op.BRANCH:
        return all(len(branch) and is_word(branch[0 if first else -1], folded, first) for branch in value[1])
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT) and value[0] > 0 and len(value[2]):
        return is_word(value[2][0 if first else -1], folded, first)
    return False


def _item(kind: Any, value: Any, how: Reading) -> str:
    if kind is op.LITERAL and value >= 128 and not how.folded:
        return "".join(f"\\x{byte:02x}" for byte in _encoded(value))
    if kind in (op.LITERAL, op.NOT_LITERAL, op.IN):
        return chars_of(kind, value, how.folded).pattern()
    if kind is op.ANY:
        return _any(how).pattern()
    if kind is op.BRANCH:
        return "(?:" + "|".join(_sequence(list(branch), how) for branch in value[1]) + ")"
    if kind is op.SUBPATTERN:
        return "(?:" + _sequence(list(value[3]), how.inside(value[1], value[2])) + ")"
    if kind is op.ATOMIC_GROUP:
        return "(?:" + _sequence(list(value), how) + ")"
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return _repeat(value, how)
    if kind in (op.ASSERT, op.ASSERT_NOT):
        return ""
    raise Unknown(kind)


def _encoded(code: int) -> bytes:
    if 0xD800 <= code < 0xE000:  # stands for a broken byte in decoded text, so it has no bytes of its own
        raise Unknown(code)
    return chr(code).encode()


def _any(how: Reading) -> Chars:
    return Chars(_ASCII if how.dotall else _ASCII - {10}, True)


def _repeat(value: Any, how: Reading) -> str:
    least, most, inner = value[0], value[1], list(value[2])
    least, most = min(least, _MOST), 0 if most is op.MAXREPEAT or most > _MOST else most
    if not how.counted and len(inner) == 1 and inner[0][0] in (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY):
        kind, one = inner[0]
        chars = _any(how) if kind is op.ANY else chars_of(kind, one, how.folded)
        if chars.beyond and chars.codes:  # bytes, up to four for a character: a counter instead of many states
            some = "".join(f"\\x{code:02x}" for code in sorted(chars.codes))
            return f"[{some}\\x80-\\xff]{{{least},{4 * most or ''}}}"
    return "(?:" + _sequence(inner, how) + f"){{{least},{most or ''}}}"


def chars_of(kind: Any, value: Any, folded: bool) -> Chars:
    """Return what a part of one character can be; raise `Unknown`."""
    if kind is op.LITERAL:
        return _fold(Chars(frozenset({value}) & _ASCII, value >= 128), folded)
    if kind is op.NOT_LITERAL:
        return Chars(_ASCII - {value}, True)
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
            raise Unknown(part)
    if negated:
        return Chars(_ASCII - codes, True)
    return _fold(Chars(codes, beyond), folded)


def _fold(chars: Chars, folded: bool) -> Chars:
    if not folded:
        return chars
    codes = frozenset(ord(c) for code in chars.codes for c in (chr(code).lower(), chr(code).upper()) if ord(c) < 128)
    beyond = chars.beyond or bool(codes & _FOLDED)
    return Chars(codes | (_FOLDED if chars.beyond else frozenset()), beyond)
