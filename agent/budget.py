"""What a rollout may still spend, as a tree: a child's share lies within its parent's rest, the root's within the task's limits.

Reserved before a call and settled after it, at every level at once, so that calls in flight cannot pass a cap together. The
journal holds what was spent; this object adds what is in flight. Cancelling a rollout cancels all below it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from agent.errors import BudgetSpent, Stopped
from agent.task import Limits
from state.records import Spend

#: What a grant's caps are called in a task.
_LIMITS = {"calls": "calls", "tokens": "tokens", "usd": "cost_usd", "seconds": "wall_time"}


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a rollout and all below it may use at most; None is no cap of its own. `seconds` are seconds at work."""

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None


def grant_of(limits: Limits) -> Grant:
    """Return a task's limits as the root's grant."""
    return Grant(limits.calls, limits.tokens, limits.cost_usd, limits.wall_time)


class Budget:
    """The caps of one rollout and the running totals of it and all below it. Thread-safe.

    `spent` and `active_s` are what earlier processes used; `clock` gives seconds.
    """

    def __init__(
        self, grant: Grant, spent: Spend, active_s: float, clock: Callable[[], float], parent: Budget | None = None
    ) -> None:
        self.grant, self._parent = grant, parent
        self._used = {"calls": spent.calls, "tokens": spent.tokens_in + spent.tokens_out, "usd": spent.usd}
        self._reserved = {"calls": 0, "tokens": 0, "usd": 0.0}
        self._held: dict[str, tuple[float, int]] = {}
        self._clock, self._began, self._active = clock, clock(), active_s
        self._lock: threading.RLock = parent._lock if parent is not None else threading.RLock()
        self._children: list[Budget] = []
        self._cancelled, self._by_limits = False, parent is None
        self._on_cancel: Callable[[], None] | None = None

    def child(
        self,
        grant: Grant,
        spent: Spend = Spend(),  # noqa: B008 (frozen)
        active_s: float = 0.0,
        by_limits: bool = False,
    ) -> Budget:
        """Return the budget of a child; `spent` and `active_s` are what it and all below it used before.

        `by_limits` says that its grant is the user's own limits, so that an error names those.
        """
        made = Budget(grant, spent, active_s, self._clock, self)
        made._by_limits = by_limits
        with self._lock:
            self._children.append(made)
            made._cancelled = self._cancelled
        return made

    def end(self) -> None:
        """Take this ended rollout out of the tree; what it spent stays counted above."""
        if self._parent is not None:
            with self._lock:
                self._parent._children.remove(self)

    def reserve(self, call: str, usd: float, tokens: int) -> None:
        """Hold back what a call may cost at most, here and at every level above.

        Raises `BudgetSpent`, naming the limit, when it does not fit any more.
        """
        with self._lock:
            for level in self._upwards():
                level._check_room(usd, tokens)
            for level in self._upwards():
                level._hold(call, usd, tokens)

    def settle(self, call: str, usd: float | None, tokens: int, counted: bool = True) -> None:
        """Replace a call's reservation by what it did cost."""
        with self._lock:
            for level in self._upwards():
                level._let_go(call)
                if counted:
                    level._used["calls"] += 1
                    level._used["tokens"] += tokens
                    level._used["usd"] += usd or 0.0

    def check_time(self) -> None:
        """Raise `BudgetSpent` when this rollout, or one above it, has worked for longer than it may."""
        for level in self._upwards():
            level._fits("seconds", level.active_s())

    def seconds_left(self) -> float | None:
        """Return the seconds that this rollout and those above it may still work; None where there is no cap."""
        rest = [level.grant.seconds - level.active_s() for level in self._upwards() if level.grant.seconds is not None]
        return min(rest) if rest else None

    def check_open(self) -> None:
        """Raise `BudgetSpent` when nothing is left for one call more: then no child need be started."""
        with self._lock:
            for level in self._upwards():
                level._check_room(0.0, 1)
        self.check_time()

    def check_cancelled(self) -> None:
        """Raise `Stopped` when this rollout was cancelled."""
        if self._cancelled:
            raise Stopped("cancelled: what started this rollout was ended", "it goes on when that cell runs again")

    def cancel(self) -> None:
        """Stop this rollout and all below it; what is in flight is still settled."""
        with self._lock:
            levels, at = [self], 0
            while at < len(levels):
                levels[at]._cancelled = True
                levels += levels[at]._children
                at += 1
        for level in levels:
            if level._on_cancel is not None:
                level._on_cancel()

    def is_below(self, other: Budget) -> bool:
        """Say whether this is the other's budget, or that of a rollout below it."""
        return any(level is other for level in self._upwards())

    def when_cancelled(self, tell: Callable[[], None] | None) -> None:
        """Call `tell`, on the thread that cancels, when this rollout is cancelled."""
        self._on_cancel = tell

    def active_s(self) -> float:
        """Return the seconds for which this rollout was worked on, those of earlier processes included."""
        return self._active + self._clock() - self._began

    def left(self) -> dict[str, Any]:
        """Tell what is left of calls, tokens, usd and seconds, the least of all levels; None where there is no cap."""
        with self._lock:
            rest: dict[str, Any] = dict.fromkeys(_LIMITS)
            for level in self._upwards():
                for name in _LIMITS:
                    cap = getattr(level.grant, name)
                    if cap is not None:
                        used = level.active_s() if name == "seconds" else level._used[name]
                        own = round(max(0, cap - used), 6)
                        rest[name] = own if rest[name] is None else min(own, rest[name])
            return rest

    def used(self) -> Spend:
        """Return what this rollout and all below it have used so far, tokens of prompts and replies in one sum."""
        with self._lock:
            return Spend(int(self._used["calls"]), self._used["usd"], int(self._used["tokens"]))

    def _upwards(self) -> Iterator[Budget]:
        level: Budget | None = self
        while level is not None:
            yield level
            level = level._parent

    def _check_room(self, usd: float, tokens: int) -> None:
        for name, more in (("calls", 1), ("usd", usd), ("tokens", tokens)):
            self._fits(name, self._used[name] + self._reserved[name] + more)

    def _hold(self, call: str, usd: float, tokens: int) -> None:
        self._held[call] = (usd, tokens)
        for name, more in (("calls", 1), ("usd", usd), ("tokens", tokens)):
            self._reserved[name] += more

    def _let_go(self, call: str) -> None:
        held = self._held.pop(call, None)
        if held is not None:
            for name, less in (("calls", 1), ("usd", held[0]), ("tokens", held[1])):
                self._reserved[name] -= less
            if not self._held:
                self._reserved["usd"] = 0.0  # no dust of floating point stays

    def _fits(self, name: str, wanted: float) -> None:
        cap = getattr(self.grant, name)
        if cap is None or wanted <= cap:
            return
        if not self._by_limits:
            raise BudgetSpent(f"the {name} granted to this rollout are spent ({cap:g})", "its parent can grant more")
        limit = _LIMITS[name]
        raise BudgetSpent(
            f"limits.{limit}: {cap:g} is spent", f"raise limits.{limit} (in the task file) and start it again"
        )
