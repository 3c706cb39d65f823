"""Durations, counts and sizes as people write them: `1h30m`, `8k`, `2GiB`.

Each reader takes a number or a text and gives seconds (float), a whole number, or bytes; it refuses what is
ambiguous with a ValueError that shows an example, and never guesses a unit.
"""

from __future__ import annotations

import math
import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_NUMBER = r"\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?"


def seconds(value: object) -> float:
    """Read a duration, `30m`, `1h30m` or a number of seconds; raise ValueError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _finite(float(value))
    text = str(value).strip().replace(" ", "")
    if re.fullmatch(_NUMBER, text):
        return _finite(float(text.replace("_", "")))
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhdw])", text)
    units = [unit for _, unit in parts]
    if not parts or "".join(n + u for n, u in parts) != text or len(set(units)) != len(units):
        raise ValueError(f"{_shown(value)} is not a duration; write 30m, 120s or 1h30m (a bare number is seconds)")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def count(value: object) -> int:
    """Read a whole number, `200`, `8k` or `2M`; raise ValueError."""
    match = re.fullmatch(rf"({_NUMBER})\s*([kKmMgG]?)", str(value).strip())
    if isinstance(value, bool) or match is None:
        raise ValueError(f"{_shown(value)} is not a whole number above 0; write 200, 8k or 2M")
    number = _finite(float(match[1].replace("_", ""))) * _COUNTS[match[2].lower()]
    if abs(number - round(number)) > 1e-6:
        raise ValueError(f"{_shown(value)} is not a whole number")
    return round(number)


def size(value: object) -> int:
    """Read a size in bytes, `500MB` (1000s), `2GiB` or `2G` (1024s); raise ValueError."""
    match = re.fullmatch(rf"({_NUMBER})\s*(?:([kmgt])(i?b)?|b)?", str(value).strip().lower())
    if isinstance(value, bool) or match is None:
        raise ValueError(f"{_shown(value)} is not a size; write 2GiB or 500MB (a bare number is bytes)")
    power = " kmgt".index(match[2] or " ")
    unit: int = (1000 if match[3] == "b" else 1024) ** power
    return round(_finite(float(match[1].replace("_", ""))) * unit)


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("must be a finite number")
    return number


def _shown(value: object) -> str:
    text = repr(str(value))
    return text if len(text) <= 40 else text[:36] + "…'"
