"""How a rollout ended, and the exit code that says so (design §10)."""

from __future__ import annotations

import msgspec

EXIT_CODES = {"done": 0, "gave_up": 3, "stuck": 4, "budget": 124, "parked": 10, "stopped": 10, "failed": 1}


class Outcome(msgspec.Struct, frozen=True):
    """A stop is data: its kind (done, gave_up, stuck, budget, parked, stopped, failed), why, and the answer so far."""

    kind: str
    reason: str
    answer: str = ""
