"""Child rollouts: the same loop, one level deeper, each settled once by the call that started it.

A child is found again by its call, so a cell that runs again continues it under the same id; a child that ended returns its
recorded answer.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec
from ulid import ULID

from agent.calls import CallBroker, Settled
from agent.cellcalls import ChildRequest
from agent.errors import BudgetSpent
from agent.outcome import Outcome
from agent.runtime import Runtime
from state import calls as journal_calls
from state import runs
from state.records import CallRecord, RolloutRecord

if TYPE_CHECKING:
    from sqlalchemy import Connection

AT_ONCE = 8  # REPL processes of one batch


def run_children(
    runtime: Runtime, broker: CallBroker, parent: RolloutRecord, wanted: list[ChildRequest]
) -> list[dict[str, Any]]:
    """Run the children of one `rlm_query` call and return their outcomes in order.

    Raises `Stopped` or a provider error when the run has to end; the children go on when it is resumed.
    """
    if len(wanted) == 1:
        return [_run_child(runtime, broker, parent, wanted[0])]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="child") as pool:
        futures = [pool.submit(_run_child, runtime, broker, parent, w) for w in wanted]
    return [future.result() for future in futures]


def _run_child(runtime: Runtime, broker: CallBroker, parent: RolloutRecord, wanted: ChildRequest) -> dict[str, Any]:
    from agent.loop import Loop  # the loop starts children, and a child is a loop

    call, rollout = runtime.journal.write(lambda c: _begin(runtime, c, parent, wanted))
    if call.settled:
        recorded = msgspec.msgpack.decode(call.outcome or b"", type=Settled)
        return {"ok": recorded.ok, "value": recorded.text}
    runtime.tell("child", rollout=rollout.id, depth=rollout.depth)
    try:
        outcome = Loop(runtime, broker, rollout, wanted.spec).run()
    except BudgetSpent as error:
        outcome = Outcome("budget", error.message)
    settled = Settled(outcome.kind == "done", outcome.answer if outcome.kind == "done" else _partial(outcome))

    def settle(connection: Connection) -> None:
        runs.end_rollout(connection, rollout.id, outcome.kind, outcome.reason, outcome.answer)
        journal_calls.set_call(
            connection,
            call.id,
            state="done",
            ok=int(settled.ok),
            outcome=msgspec.msgpack.encode(settled),
            ended_at=runtime.clock(),
        )

    runtime.journal.write(settle)
    return {"ok": settled.ok, "value": settled.text}


def _begin(
    runtime: Runtime, connection: Connection, parent: RolloutRecord, wanted: ChildRequest
) -> tuple[CallRecord, RolloutRecord]:
    """Write the call's intent and the child's row, or find both."""
    epoch, now = runtime.journal.epoch or 0, runtime.clock()
    call = journal_calls.find_or_start(connection, wanted.key, str(ULID()), epoch, now, model=wanted.spec.model)
    found = runs.rollout_of_call(connection, call.id)
    if found is not None:
        return call, found
    rollout = RolloutRecord(
        id=str(ULID()),
        parent=parent.id,
        call_id=call.id,
        depth=parent.depth + 1,
        model=wanted.spec.model,
        prompt=wanted.prompt,
        context=msgspec.msgpack.encode(wanted.context) if wanted.context is not None else None,
        created_at=now,
    )
    runs.create_rollout(connection, rollout)
    return call, rollout


def _partial(outcome: Outcome) -> str:
    text = f"the child ended without an answer: {outcome.kind}, {outcome.reason}"
    return f"{text}; its answer so far: {outcome.answer}" if outcome.answer else text
