"""Model calls through the journal: intent before the request, outcome after it, each settled once.

All requests of a run are made on one event loop. A call is found again by its key, so a cell that runs again gets the
recorded outcome of every settled call and only the others are sent. One attempt row is written per request: what is certainly
not executed is repeated free of charge, what may have been executed is counted as perhaps paid twice.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import msgspec

from agent.asked import Asked, Settled, as_settled, recorded
from agent.budget import Budget
from agent.callbook import CallBook, Started, shared
from agent.errors import Ambiguous, BudgetSpent, ProviderError, RequestRejected, Stopped
from agent.models.base import ModelSpec
from agent.models.costmap import most_cost
from agent.models.retry import next_delay
from agent.runtime import Runtime
from agent.slots import FairSlots
from agent.testing import crash_point
from agent.tokens import upper_bound
from state import calls as journal_calls
from state.records import CallKey, CallRecord

T = TypeVar("T")
DEFAULT_MAX_TOKENS = 1024
_PATIENCE = 60.0  # seconds that a model is waited for when another one stands ready
_GLANCE = 0.1  # seconds between two looks at whether the run should stop, while a model is waited for


class CallBroker:
    """Sends model calls for all rollouts of a run, per model at most `concurrency` at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._rt, self._book = runtime, CallBook(runtime)
        self._slots: dict[bytes, FairSlots] = {}
        self._flying: dict[Any, asyncio.Future[Settled]] = {}
        self._owners: dict[asyncio.Task[Any], Budget] = {}
        self._rng = random.Random()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="calls", daemon=True)
        self._thread.start()

    def settled(self, key: CallKey) -> Settled | None:
        """Return the recorded outcome of a settled call, else None."""
        record = self._rt.journal.read(lambda c: journal_calls.find_call(c, key))
        return recorded(record) if record is not None and record.settled else None

    def ask(self, asked: Sequence[Asked], budget: Budget | None = None) -> list[Settled]:
        """Settle all calls and return their outcomes in order; waits. `budget` is that of the rollout, default the run's.

        Raises a `ProviderError` when a model cannot be had at all (no key, no quota, unreachable for `max_wait`): these calls
        stay unsettled and are sent when the run is resumed.
        """
        settling = self.submit(self.settle(asked, budget))
        try:
            return settling.result()
        except BaseException:  # also Ctrl-C, which ends the wait and not the request
            settling.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the broker's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def settle(self, asked: Sequence[Asked], budget: Budget | None = None) -> list[Settled]:
        """Do what `ask` does, on the event loop."""
        return await gather_all(self._settle(one, budget or self._rt.budget) for one in asked)

    def drop(self, budget: Budget) -> None:
        """Give up the calls of a rollout and all below it, also those in flight: they count as perhaps paid."""

        def cancel() -> None:
            for task, owner in list(self._owners.items()):
                if owner.is_below(budget):
                    task.cancel()

        self._loop.call_soon_threadsafe(cancel)

    def is_own_thread(self) -> bool:
        """Say whether this is the event loop's thread, on which nothing may wait for the broker."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Give up whatever is in flight and end the event loop."""
        self.submit(_cancel_all()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _settle(self, asked: Asked, budget: Budget) -> Settled:
        task = asyncio.current_task()
        assert task is not None
        self._owners[task] = budget
        try:
            return await self._settle_one(asked, budget)
        finally:
            del self._owners[task]

    async def _settle_one(self, asked: Asked, budget: Budget) -> Settled:
        started = await self._book.start(asked)
        record = started.record
        crash_point("step.asked" if record.kind == "root" else "call.started")
        if record.settled:
            return recorded(record)
        try:
            self._reserve(record, asked, budget)
        except BudgetSpent as error:
            if record.kind == "root":
                await self._never_sent(started, error.message)
                raise
            refused = Settled(False, f"{error.message} ({error.hint})")
            return await self._finish(started, asked, budget, None, refused, counted=False)
        try:
            return await self._merged(started, asked, budget)
        except BudgetSpent as error:  # its time ended while it was waited for
            if record.kind == "root":
                budget.settle(record.id, None, 0, counted=False)
                raise
            late = Settled(False, f"{error.message} ({error.hint})")
            return await self._finish(started, asked, budget, None, late, counted=False)
        except BaseException:
            budget.settle(record.id, None, 0, counted=False)
            raise

    async def _merged(self, started: Started, asked: Asked, budget: Budget) -> Settled:
        """Wait for the same request of another rollout if one is in flight, else make it.

        Equal prompts within one cell are different calls on purpose (a vote), unless the task says `reuse`.
        """
        if asked.key.kind != "llm":
            return await self._with_fallbacks(started, asked, budget)
        question = (asked.key.args_hash, 0 if self._rt.task.reuse else asked.key.n)
        while (leader := self._flying.get(question)) is not None:
            try:
                outcome = shared(await asyncio.shield(leader))
            except Stopped:  # its rollout was stopped, not this one
                await asyncio.sleep(0)
                continue
            return await self._finish(started, asked, budget, None, outcome, counted=False)
        flight = self._flying[question] = asyncio.get_running_loop().create_future()
        try:
            outcome = await self._with_fallbacks(started, asked, budget)
        except BaseException as error:
            del self._flying[question]
            own = isinstance(error, (asyncio.CancelledError, BudgetSpent))  # no matter of those that wait for it
            flight.set_exception(Stopped("stopped") if own else error)
            flight.exception()  # nobody need be waiting for it
            raise
        del self._flying[question]
        flight.set_result(outcome)
        return outcome

    async def _with_fallbacks(self, started: Started, asked: Asked, budget: Budget) -> Settled:
        """Ask the model, and when it cannot be had the task's fallbacks in turn; raises what the last one raises."""
        *others, last = [asked.spec, *(f for f in self._rt.task.models.fallbacks if f != asked.spec)]
        for spec in others:
            try:
                return await self._with_model(started, asked, spec, budget, last=False)
            except ProviderError as error:
                self._rt.tell("fallback", model=spec.model, why=error.message)
                started = Started(started.record, fresh=False)
        return await self._with_model(started, asked, last, budget, last=True)

    async def _with_model(self, started: Started, asked: Asked, spec: ModelSpec, budget: Budget, last: bool) -> Settled:
        """Ask one model, again and again as long as that can help; raises when it cannot be had."""
        record, waited, tries = started.record, 0.0, 0
        if not self._rt.task.models.names(spec):
            self._rt.models.get(spec).check()  # a cell chose it, so nobody has looked yet whether it can work
        while True:
            tries += 1
            number: int | None = None
            try:
                async with asyncio.timeout(budget.seconds_left()) as clock, self._slots_of(spec).slot(record.rollout):
                    try:
                        budget.check_cancelled()
                    except Stopped as stopped:
                        await self._never_sent(started, stopped.message)
                        raise
                    number = started.number or await self._book.attempt(started)
                    reply = await self._rt.models.get(spec).acomplete(asked.request)
            except TimeoutError:
                if clock.expired() and number is not None:  # perhaps it was executed
                    await self._book.failed(record, number, "lost", "its time ended while it was in flight")
                if clock.expired():
                    budget.check_time()
                raise
            except ProviderError as error:
                started = Started(record, fresh=False)
                budget.check_time()
                delay = await self._after_failure(record, number, error, tries, waited, last, budget)
                if delay is None:
                    failed = Settled(False, error.message)
                    return await self._finish(started, asked, budget, None, failed)
                waited += delay
                continue
            crash_point("model.returned" if record.kind == "root" else "call.returned")
            return await self._finish(started, asked, budget, number, as_settled(reply, record.id))

    async def _never_sent(self, started: Started, why: str) -> None:
        """Note that the request whose number was written with the intent did not go out."""
        if started.number is not None:
            await self._book.failed(started.record, started.number, "free", why)

    async def _after_failure(
        self,
        record: CallRecord,
        number: int | None,
        error: ProviderError,
        tries: int,
        waited: float,
        last: bool,
        budget: Budget,
    ) -> float | None:
        """Journal a failed attempt and wait before the next one; returns the seconds waited.

        None means that the failure is this sub-call's outcome: refused, or lost too often. A root call never settles with a
        failure, so that a resumed run asks again; it raises, as does all that only a person can mend.
        """
        result = "free" if error.free else "ambiguous" if error.retryable else "refused"
        if number is not None:
            await self._book.failed(record, number, result, error.message)
        patience = self._rt.task.limits.max_wait if last else min(self._rt.task.limits.max_wait, _PATIENCE)
        delay = next_delay(error, tries, waited, patience, self._rng) if error.retryable else None
        if delay is None:
            if last and record.kind != "root" and isinstance(error, (RequestRejected, Ambiguous)):
                return None
            raise error
        self._rt.tell("waiting", seconds=delay, why=error.message, model=record.model)
        await self._pause(delay, budget)
        return delay

    async def _pause(self, seconds: float, budget: Budget) -> None:
        until = self._loop.time() + seconds
        while (left := until - self._loop.time()) > 0:
            if self._rt.stop.is_set() or self._rt.now.is_set():
                raise Stopped("stopped while waiting for a model", "go on with `rlm-agent resume`")
            budget.check_cancelled()
            budget.check_time()
            await asyncio.sleep(min(left, _GLANCE))

    def _reserve(self, record: CallRecord, asked: Asked, budget: Budget) -> None:
        prompt = sum(upper_bound(m.content) for m in asked.request.messages)
        out = asked.request.max_tokens or DEFAULT_MAX_TOKENS
        budget.reserve(record.id, most_cost(asked.spec, prompt, out), prompt + out)

    async def _finish(
        self,
        started: Started,
        asked: Asked,
        budget: Budget,
        number: int | None,
        outcome: Settled,
        counted: bool = True,
    ) -> Settled:
        record, tokens = started.record, outcome.tokens_in + outcome.tokens_out
        await self._book.settle(record, number, outcome, asked)
        budget.settle(record.id, outcome.cost_usd, tokens, counted)
        crash_point("call.done")
        self._rt.tell("call", kind=record.kind, ok=outcome.ok, tokens=tokens, usd=outcome.cost_usd)
        return outcome

    def _slots_of(self, spec: ModelSpec) -> FairSlots:
        key = msgspec.json.encode(spec, order="deterministic")
        if key not in self._slots:
            self._slots[key] = FairSlots(lambda: spec.concurrency or self._rt.task.limits.concurrency)
        return self._slots[key]


async def gather_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order; raises the first error, but only when all are done: what was paid is recorded first."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for outcome in done:
        if isinstance(outcome, BaseException):
            raise outcome
    return list(done)  # type: ignore[arg-type]


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # A provider's session on this loop is closed by its generator.
    await asyncio.get_running_loop().shutdown_asyncgens()
