"""What may still be spent, over the whole tree of rollouts: reserved before a call, settled after it.

The journal holds what was spent; this object adds what is in flight, so that two calls at once cannot pass the cap together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from agent.errors import BudgetSpent
from agent.task import Limits
from state.records import Spend


class Budget:
    """The caps of a run and its running totals. Thread-safe."""

    def __init__(self, limits: Limits, spent: Spend, active_s: float, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._usd, self._calls = spent.usd, spent.calls
        self._tokens = spent.tokens_in + spent.tokens_out
        self._held: dict[str, tuple[float, int]] = {}
        self._clock, self._began, self._active = clock, clock(), active_s
        self._lock = threading.Lock()

    def reserve(self, call: str, usd: float, tokens: int) -> None:
        """Hold back what a call may cost at most.

        Raises `BudgetSpent`, naming the limit, when it does not fit any more.
        """
        with self._lock:
            held_usd = sum(h[0] for h in self._held.values())
            held_tokens = sum(h[1] for h in self._held.values())
            self._fits("calls", self._calls + len(self._held) + 1, self.limits.calls)
            self._fits("cost_usd", self._usd + held_usd + usd, self.limits.cost_usd)
            self._fits("tokens", self._tokens + held_tokens + tokens, self.limits.tokens)
            self._held[call] = (usd, tokens)

    def settle(self, call: str, usd: float | None, tokens: int, counted: bool = True) -> None:
        """Replace a call's reservation by what it did cost."""
        with self._lock:
            self._held.pop(call, None)
            if counted:
                self._calls += 1
                self._usd += usd or 0.0
                self._tokens += tokens

    def check_time(self) -> None:
        """Raise `BudgetSpent` when the run has worked for longer than `wall_time`."""
        self._fits("wall_time", self.active_s(), self.limits.wall_time)

    def active_s(self) -> float:
        """Return the seconds in which a daemon worked on this run, this one included."""
        return self._active + self._clock() - self._began

    def left(self, step: int) -> dict[str, Any]:
        """Tell what is left; None where there is no limit."""
        with self._lock:
            return {
                "steps": self.limits.steps - step,
                "calls": self.limits.calls - self._calls,
                "tokens": None if self.limits.tokens is None else self.limits.tokens - self._tokens,
                "usd": None if self.limits.cost_usd is None else round(self.limits.cost_usd - self._usd, 6),
            }

    @staticmethod
    def _fits(name: str, wanted: float, limit: float | None) -> None:
        if limit is not None and wanted > limit:
            raise BudgetSpent(
                f"limits.{name}: {limit:g} is spent",
                f"raise limits.{name} in the task file and start it again",
            )
