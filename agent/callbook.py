"""What the broker writes of its calls: intents before requests, attempts as they go out, outcomes as they come back.

Whatever waits is written together, in one transaction with one fsync, however many calls are in flight. Used on the broker's
event loop alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from ulid import ULID

from agent.asked import Asked, Settled, recorded
from agent.runtime import Runtime
from state import calls as journal_calls
from state.records import CallRecord

_FROM_STEPS = ("root", "fold", "progress")  # what these asked is made of steps, which the journal has
_SHOWN = 8192  # characters of a request that the journal keeps readable


class Started(msgspec.Struct, frozen=True):
    """A call's record as it was found or written; `number` is its attempt that may go out at once, if any."""

    record: CallRecord
    fresh: bool
    number: int | None = None


class _Start(msgspec.Struct, eq=False):
    done: asyncio.Future[Started]
    asked: Asked
    wanted: CallRecord


class _Attempt(msgspec.Struct, eq=False):
    done: asyncio.Future[int]
    call: str
    fresh: bool


class _End(msgspec.Struct, eq=False):
    done: asyncio.Future[None]
    call: str
    number: int | None
    result: str
    detail: str = ""
    row: dict[str, Any] | None = None
    also: Callable[[Any], None] | None = None


class CallBook:
    """The broker's writing hand."""

    def __init__(self, runtime: Runtime) -> None:
        self._rt = runtime
        self._notes: list[_Start | _Attempt | _End] = []
        self._writing: asyncio.Task[None] | None = None

    async def start(self, asked: Asked) -> Started:
        """Write the intent of a call, or find the call.

        A step's own call brings more to be written with its intent: its first request counts as sent, which saves a commit.
        """
        rt, named = self._rt, {"model": asked.spec.model, "request": _excerpt(asked)}
        wanted = journal_calls.intent(asked.key, str(ULID()), rt.journal.epoch or 0, rt.clock(), **named)
        started: Started = await self._add(_Start(_future(), asked, wanted))
        return started

    async def attempt(self, started: Started) -> int:
        """Write that a request goes out now, and return its number."""
        number: int = await self._add(_Attempt(_future(), started.record.id, started.fresh))
        return number

    async def failed(self, record: CallRecord, number: int, result: str, detail: str) -> None:
        """Write how a request failed: free, ambiguous or refused."""
        await self._add(_End(_future(), record.id, number, result, detail))

    async def settle(self, record: CallRecord, number: int | None, outcome: Settled, asked: Asked) -> None:
        """Write a call's outcome, with its last attempt's end and whatever else belongs to it."""
        also = asked.with_outcome
        await self._add(
            _End(
                _future(),
                record.id,
                number,
                "ok",
                row=_row(record.id, outcome, self._rt.clock()),
                also=(lambda connection: also(connection, outcome)) if also is not None else None,
            )
        )

    async def _add(self, note: _Start | _Attempt | _End) -> Any:
        self._notes.append(note)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())
        return await note.done

    async def _write(self) -> None:
        """Write until nothing waits; what comes while the disk works is the next group."""
        try:
            while self._notes:
                notes, self._notes = self._notes, []
                try:
                    written = self._rt.journal.submit(lambda c, group=notes: self._write_group(c, group))  # type: ignore[misc]
                    results = await asyncio.wrap_future(written)
                except Exception as error:
                    for note in notes:
                        _tell(note.done, error=error)
                else:
                    for note, result in zip(notes, results, strict=True):
                        _tell(note.done, result)
        finally:
            self._writing = None

    def _write_group(self, connection: Any, notes: Sequence[_Start | _Attempt | _End]) -> list[Any]:
        """Write all notes; runs on the journal's thread."""
        now, results = self._rt.clock(), dict[int, Any]()
        starts = [note for note in notes if isinstance(note, _Start)]
        for start, made in zip(starts, self._start_all(connection, starts, now), strict=True):
            results[id(start)] = made
        attempts = [note for note in notes if isinstance(note, _Attempt)]
        journal_calls.first_attempts(connection, [note.call for note in attempts if note.fresh], now)
        for attempt in attempts:
            number = 1 if attempt.fresh else journal_calls.begin_attempt(connection, attempt.call, now)
            results[id(attempt)] = number
        ends = [note for note in notes if isinstance(note, _End)]
        ended = [(end.call, end.number, end.result, end.detail) for end in ends if end.number is not None]
        journal_calls.end_attempts(connection, ended, now)
        journal_calls.settle_calls(connection, [end.row for end in ends if end.row is not None])
        for end in ends:
            if end.also is not None:
                end.also(connection)
        return [results.get(id(note)) for note in notes]

    def _start_all(self, connection: Any, starts: Sequence[_Start], now: float) -> list[Started]:
        found = journal_calls.find_or_start_all(connection, [start.wanted for start in starts])
        started = []
        for start, record in zip(starts, found, strict=True):
            fresh = record.id == start.wanted.id
            if fresh and self._rt.task.reuse and record.kind == "llm":
                record = self._reused(connection, record)
            own = start.asked.with_intent
            number = None
            if own is not None:
                own(connection)
                if fresh:
                    journal_calls.first_attempts(connection, [record.id], now)
                    number = 1
            started.append(Started(record, fresh, number))
        return started

    def _reused(self, connection: Any, record: CallRecord) -> CallRecord:
        """Settle a new call with the answer that the same question got before, if it got one."""
        before = journal_calls.answered(connection, record.kind, record.args_hash)
        if before is None:
            return record
        outcome = shared(recorded(before))
        journal_calls.settle_calls(connection, [_row(record.id, outcome, self._rt.clock())])
        return msgspec.structs.replace(record, state="done", outcome=msgspec.msgpack.encode(outcome))


def shared(outcome: Settled) -> Settled:
    """Return an outcome as a call records it that got it without paying."""
    return msgspec.structs.replace(outcome, tokens_in=0, tokens_out=0, cost_usd=0.0)


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _row(call: str, outcome: Settled, now: float) -> dict[str, Any]:
    return {
        "id": call,
        "ok": int(outcome.ok),
        "outcome": msgspec.msgpack.encode(outcome),
        "tokens_in": outcome.tokens_in,
        "tokens_out": outcome.tokens_out,
        "cost_usd": outcome.cost_usd if outcome.ok else 0.0,
        "ended_at": now,
    }


def _tell(future: asyncio.Future[Any], result: Any = None, error: Exception | None = None) -> None:
    if future.done():  # whoever waited was cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _excerpt(asked: Asked) -> bytes | None:
    """Keep what was asked readable in the journal without a copy of large slices of the context."""
    if asked.key.kind in _FROM_STEPS:
        return None
    half = _SHOWN // 2
    kept = [
        text if len(text) <= _SHOWN else f"{text[:half]}\n… [{len(text) - _SHOWN} characters] …\n{text[-half:]}"
        for text in (message.content for message in asked.request.messages)
    ]
    return msgspec.msgpack.encode(kept)
