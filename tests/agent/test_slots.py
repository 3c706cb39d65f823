"""Slots of a model: never more than the limit at once, and waiting rollouts take turns."""

from __future__ import annotations

import asyncio

from agent.slots import FairSlots


def test_never_more_than_the_limit_at_once_and_all_get_through() -> None:
    async def go() -> int:
        slots, running, most = FairSlots(lambda: 3), 0, 0

        async def one(number: int) -> None:
            nonlocal running, most
            async with slots.slot(f"R{number % 4}"):
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.001)
                running -= 1

        await asyncio.gather(*(one(n) for n in range(40)))
        return most

    assert asyncio.run(go()) == 3


def test_a_large_batch_does_not_keep_another_rollout_waiting() -> None:
    async def go() -> list[str]:
        slots, order = FairSlots(lambda: 1), []

        async def one(rollout: str) -> None:
            async with slots.slot(rollout):
                order.append(rollout)
                await asyncio.sleep(0)

        await asyncio.gather(*(one("big") for _ in range(50)), *(one("small") for _ in range(3)))
        return order

    order = asyncio.run(go())
    assert [n for n, who in enumerate(order) if who == "small"][-1] < 10


def test_a_limit_that_is_raised_holds_for_those_that_come_next() -> None:
    async def go() -> int:
        limit, running, most = [1], 0, 0
        slots = FairSlots(lambda: limit[0])

        async def one() -> None:
            nonlocal running, most
            async with slots.slot("R"):
                running += 1
                most = max(most, running)
                limit[0] = 4
                await asyncio.sleep(0.001)
                running -= 1

        await asyncio.gather(*(one() for _ in range(12)))
        return most

    assert asyncio.run(go()) == 4


def test_one_that_is_cancelled_while_it_waits_takes_no_slot() -> None:
    async def go() -> None:
        slots = FairSlots(lambda: 1)
        first = slots.slot("A")
        await first.__aenter__()

        async def wait() -> None:
            async with slots.slot("B"):
                pass

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await first.__aexit__(None, None, None)
        await asyncio.wait_for(wait(), 1)

    asyncio.run(go())
