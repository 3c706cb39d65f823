"""How long a provider asks us to wait, from its headers or its words, in seconds from now.

Everything unreadable is None: a wrong guess here would either hammer a provider or stop a run for a day.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

_LONGEST = 366 * 86400.0
_EPOCH = 1e9  # a number of seconds this large is a date, not a pause
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WORDS = re.compile(
    r"(?:try again in|retry in|retry after|retryDelay\W{1,8})\s*((?:\d+(?:\.\d+)?(?:ms|s|m|h|d)\s?)+)", re.IGNORECASE
)
_RESETS = re.compile(r"^(?:x-|anthropic-)?ratelimit-(?:reset(?:-(?P<after>[\w-]+))?|(?P<before>[\w-]+)-reset)$")


def pause_from(headers: Mapping[str, str], now: float, limited: bool = True) -> float | None:
    """Return the seconds to wait that HTTP headers ask for, or None.

    `now` is in seconds since 1970; `limited` says that the answer was a 429, for only then do rate-limit resets count.
    """
    plain = {name.lower().removeprefix("llm_provider-"): str(value).strip() for name, value in headers.items()}
    if (milliseconds := _number(plain.get("retry-after-ms"))) is not None:
        return _sane(milliseconds / 1000)
    if "retry-after" in plain:
        return _seconds(plain["retry-after"], now)
    return _longest_reset(plain, now) if limited else None


def pause_from_text(text: str) -> float | None:
    """Return the seconds that a message like "please try again in 6m0s" names, or None."""
    found = [_duration(part) for part in _WORDS.findall(text)]
    return max((f for f in found if f is not None), default=None)


def _longest_reset(headers: Mapping[str, str], now: float) -> float | None:
    """Return the reset of the limit that is used up; of all limits when none says so."""
    resets: dict[str, float] = {}
    for name, value in headers.items():
        match = _RESETS.match(name)
        if match and (seconds := _seconds(value, now)) is not None:
            resets[match["after"] or match["before"] or ""] = seconds
    used_up = {what: s for what, s in resets.items() if _remaining(headers, what) == 0}
    return max((used_up or resets).values(), default=None)


def _remaining(headers: Mapping[str, str], what: str) -> float | None:
    tail = f"-{what}" if what else ""
    for name in (f"x-ratelimit-remaining{tail}", f"ratelimit-remaining{tail}", f"anthropic-ratelimit{tail}-remaining"):
        if name in headers:
            return _number(headers[name])
    return None


def _seconds(value: str, now: float) -> float | None:
    number = _number(value)
    if number is not None:
        if number >= _EPOCH * 1000:
            number /= 1000
        return _sane(number - now if number >= _EPOCH else number)
    duration = _duration(value)
    if duration is not None:
        return duration
    for read in (parsedate_to_datetime, lambda text: datetime.fromisoformat(text.replace("Z", "+00:00"))):
        try:
            return _sane(max(0.0, read(value).timestamp() - now))
        except (TypeError, ValueError, OverflowError):
            continue
    return None


def _duration(text: str) -> float | None:
    text = text.strip()
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        return None
    return _sane(sum(float(amount) * _UNITS[unit] for amount, unit in parts))


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _sane(seconds: float) -> float | None:
    return seconds if 0 <= seconds <= _LONGEST else None
