"""One call of a tool, settled once: intent before it runs, outcome after it."""

from __future__ import annotations

from typing import Any

import msgspec
from ulid import ULID

from agent.runtime import Runtime
from agent.testing import crash_point
from agent.tools import HostTool
from state import calls as journal_calls
from state import runs
from state.records import CallKey, CallRecord

_UNKNOWN = (
    "outcome unknown: {name} was called before the daemon was killed and what came of it is lost; it may have had its effect. "
    "Find out before you call it again"
)


class ToolOutcome(msgspec.Struct, frozen=True):
    """What a tool returned, as plain data, or why it failed."""

    ok: bool
    value: Any


def call_tool(runtime: Runtime, key: CallKey, tool: HostTool, args: list[Any], kwargs: dict[str, Any]) -> ToolOutcome:
    """Settle one tool call and return its outcome.

    One that was dispatched before a crash and is not settled is run again if the tool is repeatable, else unknown.
    """
    journal = runtime.journal
    mine = str(ULID())
    record = journal.write(lambda c: journal_calls.find_or_start(c, key, mine, journal.epoch or 0, runtime.clock()))
    if record.settled:
        return msgspec.msgpack.decode(record.outcome or b"", type=ToolOutcome)
    crash_point("tool.started")
    if record.id != mine and not tool.repeatable:
        return _settle(runtime, record, ToolOutcome(False, _UNKNOWN.format(name=tool.name)), "tool_unknown")
    runtime.tell("tool", name=tool.name)
    try:
        outcome = ToolOutcome(True, tool.run(args, kwargs))
    except Exception as error:
        outcome = ToolOutcome(False, f"{tool.name}: {type(error).__name__}: {error}")
    crash_point("tool.returned")
    return _settle(runtime, record, outcome)


def told_before(runtime: Runtime, key: CallKey, value: Any) -> Any:
    """Return what this question was answered before, else `value`, which is its answer from now on."""
    journal, packed = runtime.journal, msgspec.msgpack.encode(ToolOutcome(True, value))

    def write(connection: Any) -> Any:
        record = journal_calls.find_or_start(connection, key, str(ULID()), journal.epoch or 0, runtime.clock())
        if record.settled:
            return msgspec.msgpack.decode(record.outcome or b"", type=ToolOutcome).value
        journal_calls.set_call(connection, record.id, state="done", ok=1, outcome=packed, ended_at=runtime.clock())
        return value

    return journal.write(write)


def _settle(runtime: Runtime, record: CallRecord, outcome: ToolOutcome, event: str = "") -> ToolOutcome:
    def write(connection: Any) -> None:
        packed = msgspec.msgpack.encode(outcome)
        journal_calls.set_call(
            connection, record.id, state="done", ok=int(outcome.ok), outcome=packed, ended_at=runtime.clock()
        )
        if event:
            runs.add_event(connection, runtime.clock(), event, record.rollout, record.step, why=str(outcome.value))

    runtime.journal.write(write)
    return outcome
