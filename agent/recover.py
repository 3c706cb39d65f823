"""Bring git up to the journal at start: move refs that were left pending, or see that they have moved.

The decision is `state.recovery.plan_refs`; this file only gathers the facts and carries it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulid import ULID

from agent.runtime import Runtime
from state import calls as journal_calls
from state import runs, steps
from state.recovery import RefMove, plan_refs

if TYPE_CHECKING:
    from sqlalchemy import Connection


def recover_refs(runtime: Runtime) -> int:
    """Settle all pending refs and return how many were moved.

    A ref that someone else moved elsewhere meanwhile is left alone: our commit is kept under refs/rlm-agent/rescue
    and an event names it.
    """
    workspace = runtime.workspace
    pending = runtime.journal.read(_pending)
    if not pending:
        return 0
    refs = {move.ref: workspace.read_ref(move.ref) for move in pending}
    plan = plan_refs(pending, refs, workspace.is_ancestor)
    for move in plan.move:
        workspace.move_ref(move.ref, move.new, move.old)
    for move in plan.conflicts:
        workspace.move_ref(f"refs/rlm-agent/rescue/{ULID()}", move.new, None)

    def settle(connection: Connection) -> None:
        for move in plan.conflicts:
            runs.add_event(connection, runtime.clock(), "ref_conflict", ref=move.ref, commit=move.new)
        for move in pending:
            kind, _, owner = move.owner.partition(":")
            if kind == "call":
                journal_calls.set_call(connection, owner, ref_pending=0)
            else:
                rollout, _, seq = owner.partition("/")
                steps.set_step(connection, rollout, int(seq), ref_pending=0)

    runtime.journal.write(settle)
    if any(move.ref.startswith("refs/heads/") for move in plan.move):
        workspace.sync_index()
    return len(plan.move)


def _pending(connection: Connection) -> list[RefMove]:
    moves = [
        RefMove(call.ref or "", call.git_after or "", call.git_before, f"call:{call.id}")
        for call in journal_calls.pending_refs(connection)
    ]
    for step in steps.pending_refs(connection):
        before = steps.read_step(connection, step.rollout, step.seq - 1)
        old = before.commit if before is not None else None
        ref = f"refs/rlm-agent/steps/{step.rollout}"
        moves.append(RefMove(ref, step.commit or "", old, f"step:{step.rollout}/{step.seq}"))
    return moves
