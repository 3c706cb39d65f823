"""Who may ask a model next: at most so many requests at once, and the rollouts that wait take turns.

A batch of a thousand prompts does not keep another rollout waiting for more than one request's time. Used on the broker's
event loop alone, so it needs no lock.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class FairSlots:
    """The slots of one model; `limit` is asked each time, since a task's limits may change."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def slot(self, rollout: str) -> AsyncIterator[None]:
        """Wait for this rollout's turn, and hold a slot for the time of the block."""
        await self._acquire(rollout)
        try:
            yield
        finally:
            self._taken -= 1
            self._hand_on()

    async def _acquire(self, rollout: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(rollout, deque()).append(turn)
        self._hand_on()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot had been given already
                self._taken -= 1
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        """Give free slots out, one to each waiting rollout in turn."""
        while self._waiting and self._taken < self._limit():
            rollout, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            if turns:
                self._waiting.move_to_end(rollout)
            else:
                del self._waiting[rollout]
            if not turn.done():
                self._taken += 1
                turn.set_result(None)
