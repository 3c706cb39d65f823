"""What to do after a crash: a pure function from what the journal says to a plan.

It reads nothing and changes nothing, so that it can be tested with every combination of facts. The rule behind it: the
journal's commit is the only commit point; git refs are a projection that can be redone; a step that was `running` is
rolled back and run again against its recorded calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from state.records import CallRecord, StepRecord


class RefMove(msgspec.Struct, frozen=True):
    """A ref that the journal says points at `new`; `old` is where it was before. `owner` is a call id or a step."""

    ref: str
    new: str
    old: str | None
    owner: str


class RefPlan(msgspec.Struct, frozen=True):
    """Refs to move, owners whose ref had moved already, and moves that someone else's move forbids."""

    move: tuple[RefMove, ...]
    settled: tuple[str, ...]
    conflicts: tuple[RefMove, ...]


class StepPlan(msgspec.Struct, frozen=True):
    """How to go on with a rollout: `action` on step `seq`, after a `rollback` of tree and namespace to the last checkpoint.

    Actions: plan (assemble a prompt for step seq), ask (send the root request, again), run (run the reply's cell),
    rerun (the cell was running: run it again against its recorded calls).
    """

    action: str
    seq: int
    rollback: bool


def plan_refs(
    pending: Sequence[RefMove], refs: Mapping[str, str | None], is_ancestor: Callable[[str, str], bool]
) -> RefPlan:
    """Decide for each pending ref, oldest first, whether to move it, to note that it moved, or to report a conflict.

    `refs` holds where each ref is now; `is_ancestor(a, b)` says whether commit a is b or in b's history.
    """
    now = dict(refs)
    move: list[RefMove] = []
    settled: list[str] = []
    conflicts: list[RefMove] = []
    for item in pending:
        at = now.get(item.ref)
        if at is not None and is_ancestor(item.new, at):
            settled.append(item.owner)
        elif at == item.old:
            move.append(item)
            now[item.ref] = item.new
        else:
            conflicts.append(item)
    return RefPlan(tuple(move), tuple(settled), tuple(conflicts))


def plan_step(last: StepRecord | None, root_call: CallRecord | None) -> StepPlan:
    """Decide how a rollout goes on from its newest step and that step's root model call."""
    if last is None:
        return StepPlan("plan", 1, False)
    if last.state == "done":
        return StepPlan("plan", last.seq + 1, False)
    if last.state == "planned":
        return StepPlan("plan", last.seq, False)
    if last.state == "asked":
        settled = root_call is not None and root_call.settled and root_call.ok == 1
        return StepPlan("ask" if settled else "plan", last.seq, False)
    if last.state == "replied":
        return StepPlan("run", last.seq, False)
    if last.state == "running":
        return StepPlan("rerun", last.seq, True)
    raise ValueError(f"step {last.seq}: unknown state {last.state!r}")
