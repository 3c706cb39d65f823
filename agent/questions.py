"""A question from the model to the person who gave the task: asked once, answered once, over any number of restarts.

Without an answer the run is parked and its process ends. `say` leaves the answer in the inbox; the cell that asked runs
again against its recorded calls and gets it.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from ulid import ULID

from agent import inbox
from agent.runtime import Runtime
from agent.testing import crash_point
from state import calls as journal_calls
from state import runs
from state.records import CallKey


def answer_to(runtime: Runtime, key: CallKey, question: str) -> str | None:
    """Return the answer to a question, or None where there is none yet: then the question is in the journal."""
    packed = msgspec.msgpack.encode([question])
    waiting = inbox.waiting(runtime.workspace.path)

    def write(connection: Any) -> str | None:
        epoch, now = runtime.journal.epoch or 0, runtime.clock()
        record = journal_calls.find_or_start(connection, key, str(ULID()), epoch, now, request=packed)
        if record.settled:
            return str(msgspec.msgpack.decode(record.outcome or b""))
        # What was said before the question was asked is no answer to it: the next prompt shows it.
        known = _heard(connection)
        told = next((m for m in waiting if m.at >= record.started_at and m.id not in known), None)
        if told is None:
            return None
        runs.add_event(
            connection, now, "answered", key.rollout, key.step, id=told.id, question=question, text=told.text
        )
        outcome = msgspec.msgpack.encode(told.text)
        journal_calls.set_call(connection, record.id, state="done", ok=1, outcome=outcome, ended_at=now)
        return told.text

    answer: str | None = runtime.journal.write(write)
    crash_point("question.answered")
    known = runtime.journal.read(_heard)
    inbox.taken(runtime.workspace.path, [message.id for message in waiting if message.id in known])
    return answer


def _heard(connection: Any) -> set[str]:
    """Return the messages that the journal has, as answers or as what was said."""
    found = [*runs.events(connection, "answered"), *runs.events(connection, "said")]
    return {str(json.loads(event.body)["id"]) for event in found}
