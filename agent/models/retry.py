"""When to ask again: a pure policy over one failure, without sleeping.

Exponential backoff with full jitter (Brooker, "Exponential Backoff And Jitter", 2015), never sooner than the provider asked for.
What was certainly not executed, and what failed in the provider's own hands (5xx), is repeated until `max_wait` is used up; what
may have been executed and lost on the way is sent three times at most.
"""

from __future__ import annotations

import random

from agent.errors import ProviderError, ServerFailed

AMBIGUOUS_ATTEMPTS = 3
_FIRST = 0.5
_SHORTEST = 0.1
_LONGEST = 60.0


def next_delay(error: ProviderError, attempt: int, waited: float, max_wait: float, rng: random.Random) -> float | None:
    """Return the seconds to wait before the next attempt, or None to give up.

    `attempt` counts the attempts made, from 1; `waited` and `max_wait` are seconds waited so far and in all.
    """
    outage = error.free or isinstance(error, ServerFailed)
    if not error.retryable or (not outage and attempt >= AMBIGUOUS_ATTEMPTS):
        return None
    left = max_wait - waited
    if left <= 0:
        return None
    ceiling = min(_LONGEST, _FIRST * 2.0 ** min(attempt, 16))
    if error.retry_after is not None:
        # Some jitter on top, or all callers that were limited together come back together.
        delay = error.retry_after + rng.uniform(0, min(ceiling, 1.0 + 0.1 * error.retry_after))
        return delay if delay <= left else error.retry_after if error.retry_after <= left else None
    # The last try comes at the very end of the wait, not a random while before it.
    return min(max(rng.uniform(0, ceiling), _SHORTEST), left)
