"""Model calls through the journal: intent before the request, outcome after it, each settled once.

A call is found again by its key, so a cell that runs again gets the recorded outcome of every settled call and only the others
are sent. One attempt row is written per request: what is certainly not executed is repeated free of charge, what may have
been executed is counted as perhaps paid twice.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from ulid import ULID

from agent.errors import Ambiguous, BudgetSpent, ProviderError, RequestRejected
from agent.models.base import ModelReply, ModelRequest, ModelSpec
from agent.models.retry import next_delay
from agent.runtime import Runtime
from agent.testing import crash_point
from agent.tokens import count_tokens
from state import calls as journal_calls
from state.records import CallKey, CallRecord

DEFAULT_MAX_TOKENS = 1024
_PATIENCE = 60.0  # seconds that a model is waited for when another one stands ready


class Asked(msgspec.Struct, frozen=True):
    """One model call to be made: its key, the model and the request."""

    key: CallKey
    spec: ModelSpec
    request: ModelRequest


class Settled(msgspec.Struct, frozen=True):
    """A call's outcome: the reply's text or an error's, and what it took."""

    ok: bool
    text: str
    reasoning: str = ""
    finish: str = "stop"
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    call_id: str = ""


def hash_args(*parts: Any) -> str:
    """Return the sha256 of arguments as canonical JSON: the part of a call's key that says what was asked."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class CallBroker:
    """Sends model calls for all rollouts of a run, at most `limits.concurrency` at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._rt = runtime
        self._pool = ThreadPoolExecutor(runtime.task.limits.concurrency, thread_name_prefix="call")
        self._slots = threading.BoundedSemaphore(runtime.task.limits.concurrency)
        self._rng = random.Random()

    def settled(self, key: CallKey) -> Settled | None:
        """Return the recorded outcome of a settled call, else None."""
        record = self._rt.journal.read(lambda c: journal_calls.find_call(c, key))
        return _recorded(record) if record is not None and record.settled else None

    def ask(self, asked: Sequence[Asked]) -> list[Settled]:
        """Settle all calls and return their outcomes in order.

        Raises a `ProviderError` when a model cannot be had at all (no key, no quota, unreachable for `max_wait`): these calls
        stay unsettled and are sent when the run is resumed.
        """
        records = self._rt.journal.write(lambda c: [self._intent(c, a) for a in asked])
        crash_point("call.started")
        todo = [(r, a) for r, a in zip(records, asked, strict=True) if not r.settled]
        if len(todo) == 1:
            done = {todo[0][0].id: self._settle(*todo[0])}
        else:
            futures = {r.id: self._pool.submit(self._settle, r, a) for r, a in todo}
            errors = [e for f in futures.values() if (e := f.exception()) is not None]
            if errors:
                raise errors[0]
            done = {call_id: f.result() for call_id, f in futures.items()}
        return [done.get(r.id) or _recorded(r) for r in records]

    def close(self) -> None:
        """Stop taking calls."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _intent(self, connection: Any, asked: Asked) -> CallRecord:
        request = None if asked.key.kind == "root" else _excerpt(asked.request)
        fields = {"model": asked.spec.model, "request": request}
        return journal_calls.find_or_start(
            connection, asked.key, str(ULID()), self._rt.journal.epoch or 0, self._rt.clock(), **fields
        )

    def _settle(self, record: CallRecord, asked: Asked) -> Settled:
        try:
            self._reserve(record, asked)
        except BudgetSpent as error:
            if record.kind == "root":
                raise
            return self._finish(
                record, None, Settled(False, f"{error.message} ({error.hint})"), "refused", counted=False
            )
        try:
            return self._with_fallbacks(record, asked)
        except BaseException:
            self._rt.budget.settle(record.id, None, 0, counted=False)
            raise

    def _with_fallbacks(self, record: CallRecord, asked: Asked) -> Settled:
        """Ask the model, and when it cannot be had the task's fallbacks in turn; raises what the last one raises."""
        *others, last = [asked.spec, *(f for f in self._rt.task.models.fallbacks if f != asked.spec)]
        for spec in others:
            try:
                return self._with_model(record, asked.request, spec, last=False)
            except ProviderError as error:
                self._rt.tell("fallback", model=spec.model, why=error.message)
        return self._with_model(record, asked.request, last, last=True)

    def _with_model(self, record: CallRecord, request: ModelRequest, spec: ModelSpec, last: bool) -> Settled:
        """Ask one model, again and again as long as that can help; raises when it cannot be had."""
        waited, tries = 0.0, 0
        while True:
            tries += 1
            number = self._rt.journal.write(lambda c: journal_calls.begin_attempt(c, record.id, self._rt.clock()))
            try:
                with self._slots:
                    reply = self._rt.models.get(spec).complete(request)
            except ProviderError as error:
                delay = self._after_failure(record, number, error, tries, waited, last)
                if delay is None:
                    return self._finish(record, None, Settled(False, error.message), "refused")
                waited += delay
                continue
            crash_point("model.returned" if record.kind == "root" else "call.returned")
            return self._finish(record, number, _as_settled(reply, record.id), "ok")

    def _after_failure(
        self, record: CallRecord, number: int, error: ProviderError, tries: int, waited: float, last: bool
    ) -> float | None:
        """Journal a failed attempt and wait before the next one; returns the seconds waited.

        None means that the failure is this sub-call's outcome: refused, or lost too often. A root call never settles with a
        failure, so that a resumed run asks again; it raises, as does all that only a person can mend.
        """
        result = "free" if error.free else "ambiguous" if error.retryable else "refused"
        self._rt.journal.write(
            lambda c: journal_calls.end_attempt(c, record.id, number, self._rt.clock(), result, error.message)
        )
        patience = self._rt.task.limits.max_wait if last else min(self._rt.task.limits.max_wait, _PATIENCE)
        delay = next_delay(error, tries, waited, patience, self._rng) if error.retryable else None
        if delay is None:
            if last and record.kind != "root" and isinstance(error, (RequestRejected, Ambiguous)):
                return None
            raise error
        self._rt.tell("waiting", seconds=delay, why=error.message, model=record.model)
        self._rt.pause(delay)
        return delay

    def _reserve(self, record: CallRecord, asked: Asked) -> None:
        prompt = sum(count_tokens(m.content) for m in asked.request.messages)
        out = asked.request.max_tokens or DEFAULT_MAX_TOKENS
        price = asked.spec.price or {}
        usd = (prompt * price.get("input", 0.0) + out * price.get("output", 0.0)) / 1e6
        self._rt.budget.reserve(record.id, usd, prompt + out)

    def _finish(
        self, record: CallRecord, number: int | None, outcome: Settled, result: str, counted: bool = True
    ) -> Settled:
        now = self._rt.clock()

        def settle(connection: Any) -> None:
            if number is not None:
                journal_calls.end_attempt(
                    connection, record.id, number, now, result, "" if outcome.ok else outcome.text
                )
            journal_calls.set_call(
                connection,
                record.id,
                state="done",
                ok=int(outcome.ok),
                outcome=msgspec.msgpack.encode(outcome),
                tokens_in=outcome.tokens_in,
                tokens_out=outcome.tokens_out,
                cost_usd=outcome.cost_usd if outcome.ok else 0.0,
                ended_at=now,
            )

        self._rt.journal.write(settle)
        self._rt.budget.settle(record.id, outcome.cost_usd, outcome.tokens_in + outcome.tokens_out, counted)
        crash_point("call.done")
        self._rt.tell(
            "call",
            kind=record.kind,
            ok=outcome.ok,
            tokens=outcome.tokens_in + outcome.tokens_out,
            usd=outcome.cost_usd,
        )
        return outcome


def _as_settled(reply: ModelReply, call_id: str) -> Settled:
    return Settled(
        True,
        reply.text,
        reply.reasoning,
        reply.finish,
        reply.tokens_in,
        reply.tokens_out,
        reply.cost_usd,
        call_id,
    )


def _recorded(record: CallRecord) -> Settled:
    return msgspec.msgpack.decode(record.outcome or b"", type=Settled)


def _excerpt(request: ModelRequest) -> bytes:
    """Keep what was asked readable in the journal without a copy of large slices of the context."""
    kept = [
        m.content
        if len(m.content) <= 8192
        else f"{m.content[:4096]}\n… [{len(m.content) - 8192} characters] …\n{m.content[-4096:]}"
        for m in request.messages
    ]
    return msgspec.msgpack.encode(kept)
