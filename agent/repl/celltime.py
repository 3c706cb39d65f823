"""A cell's time: what counts as computing, and what happens when it is over: interrupted first, killed second.

The clock stands while a call of the cell has to wait for somebody, a model or a child; it never stands for calls that the host
answers at once, or threads that make nothing but these could compute for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_GRACE = 5.0  # seconds between the first interrupt and the kill
_INSIST = 0.2  # seconds between two interrupts
_AT_ONCE = frozenset(("budget", "history", "context"))
OVERRUN = (
    "the cell computed for more than {:g} s (limits.cell_timeout), ignored the interrupt and was killed: do the work in smaller"
    " pieces, each in a cell of its own, or have limits.cell_timeout raised"
)


class ComputeClock:
    """Counts the seconds in which a cell computes; stands while one of its calls has to wait for somebody."""

    def __init__(self, limit: float) -> None:
        self._left = limit
        self._since = time.monotonic()
        self._outstanding = self._waiting = 0
        self._lock = threading.Condition()

    def begin(self, kind: str) -> None:
        """A call of this kind was asked for."""
        with self._lock:
            if kind not in _AT_ONCE:
                if self._waiting == 0:
                    self._left -= time.monotonic() - self._since
                self._waiting += 1
            self._outstanding += 1

    def end(self, kind: str) -> None:
        """It is answered."""
        with self._lock:
            if kind not in _AT_ONCE:
                self._waiting -= 1
                if self._waiting == 0:
                    self._since = time.monotonic()
            self._outstanding -= 1
            if self._outstanding == 0:
                self._lock.notify_all()

    def wait_for_calls(self) -> None:
        """Return when no call is open."""
        with self._lock:
            self._lock.wait_for(lambda: self._outstanding == 0)

    @property
    def stands(self) -> bool:
        """Say whether a call waits."""
        return self._waiting > 0

    def left(self) -> float:
        """Return the seconds of computing that are left."""
        with self._lock:
            running = 0.0 if self._waiting else time.monotonic() - self._since
            return max(0.0, self._left - running)


class Limit:
    """Holds a cell to its time: interrupts it when that is over, and again while the grace lasts."""

    def __init__(self, clock: ComputeClock, interrupt: Callable[[], None]) -> None:
        self._clock, self._interrupt = clock, interrupt
        self._first = self._last = 0.0
        self.reached = False

    def pause(self) -> float:
        """Return for how many seconds nothing has to be done."""
        if self.reached:
            return _INSIST
        return 0.1 if self._clock.stands else self._clock.left() + 0.01

    def hold(self) -> bool:
        """Interrupt the cell when its time is over; False when it has to be killed."""
        if self._clock.left() > 0:
            return True
        now = time.monotonic()
        if not self.reached:
            self.reached, self._first = True, now
        elif now - self._first > _GRACE:
            return False
        if now - self._last >= _INSIST:
            self._last = now
            self._interrupt()
        return True
