"""Placeholder: see the models helper."""

from __future__ import annotations

import random

from agent.errors import ProviderError


def next_delay(error: ProviderError, attempt: int, waited: float, max_wait: float, rng: random.Random) -> float | None:
    if not error.retryable or (not error.free and attempt >= 3) or waited >= max_wait:
        return None
    d = error.retry_after if error.retry_after is not None else rng.uniform(0, min(60.0, 0.5 * 2**attempt))
    return None if waited + d > max_wait else d
