"""Bring git up to the journal at start: move refs that were left pending, or see that they have moved.

The decision is `state.recovery.plan_refs`; this file only gathers the facts and carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ulid import ULID

from agent.rewind import finish
from agent.runtime import silent
from state import calls as journal_calls
from state import runs, steps
from state.journal import Journal
from state.recovery import RefMove, plan_refs
from workspaces.workspace import Workspace

if TYPE_CHECKING:
    from sqlalchemy import Connection

_STEPS = "refs/rlm-agent/steps/"


def recover_refs(
    journal: Journal, workspace: Workspace, clock: Callable[[], float], tell: Callable[..., None] = silent
) -> int:
    """Settle all pending refs and return how many were moved.

    A ref that someone else moved elsewhere meanwhile is left alone: our commit is kept under refs/rlm-agent/rescue
    and an event names it.
    """
    root = journal.read(runs.root_rollout)
    if root is not None:
        finish(journal, workspace, root, clock())
    return _settle_pending(journal, workspace, clock) + _bring_back_steps(journal, workspace, clock, tell)


def _settle_pending(journal: Journal, workspace: Workspace, clock: Callable[[], float]) -> int:
    pending = journal.read(_pending)
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
            runs.add_event(connection, clock(), "ref_conflict", ref=move.ref, commit=move.new)
        for move in pending:
            kind, _, owner = move.owner.partition(":")
            if kind == "call":
                journal_calls.set_call(connection, owner, ref_pending=0)
            else:
                rollout, _, seq = owner.partition("/")
                steps.set_step(connection, rollout, int(seq), ref_pending=0)

    journal.write(settle)
    if any(move.ref.startswith("refs/heads/") for move in plan.move):
        workspace.sync_index()
    return len(plan.move)


def _bring_back_steps(
    journal: Journal, workspace: Workspace, clock: Callable[[], float], tell: Callable[..., None]
) -> int:
    """Move each steps ref to the journal's newest checkpoint, where the journal is the older one.

    That happens when the end of the journal is lost (a torn or deleted WAL); what the ref had is kept as a rescue.
    """
    moved = 0
    for ref, at in workspace.refs(_STEPS).items():
        rollout = ref.removeprefix(_STEPS)
        commit = journal.read(lambda c, r=rollout: _checkpoint(c, r))  # type: ignore[misc]
        if at == commit:
            continue
        if commit is not None and workspace.store.exists(commit) and _same_step(workspace, at, commit):
            workspace.move_ref(ref, commit, at)  # a thinning was cut off: the same checkpoint with fewer before it
            moved += 1
            continue
        rescue = f"refs/rlm-agent/rescue/{ULID()}"
        workspace.move_ref(rescue, at, None)
        if commit is None:
            workspace.drop_ref(ref, at)
        else:
            workspace.move_ref(ref, commit, at)
        journal.write(
            lambda c, r=ref, k=rescue: runs.add_event(c, clock(), "ref_conflict", ref=r, rescue=k)  # type: ignore[misc]
        )
        moved += 1
        tell("journal_behind", rescue=rescue)
    return moved


def _same_step(workspace: Workspace, a: str, b: str) -> bool:
    """Say whether two commits are one checkpoint, whatever comes before them."""
    lines = [
        [line for line in workspace.store.read_object(commit)[1].split(b"\n") if not line.startswith(b"parent ")]
        for commit in (a, b)
    ]
    return lines[0] == lines[1]


def _checkpoint(connection: Connection, rollout: str) -> str | None:
    """Return the commit of a rollout's newest done step."""
    step = steps.last_step(connection, rollout)
    if step is not None and step.state != "done":
        step = steps.read_step(connection, rollout, step.seq - 1)
    return step.commit if step is not None else None


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
