"""Child rollouts: the same loop, one level deeper, each settled once by the call that started it.

A child is found again by its call, so a cell that runs again continues it under the same id and with what is left of its
grant; a child that ended returns its recorded answer. Its answer arrives folded: the text, and a pointer to its trajectory.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from ulid import ULID

from agent import explore
from agent.asked import Settled, recorded
from agent.budget import Budget, Grant
from agent.errors import BudgetSpent, ProviderError, RequestRejected, UsageError
from agent.models.base import ModelSpec
from agent.outcome import Outcome
from agent.runtime import in_thread
from agent.scope import Scope
from state import calls as journal_calls
from state import runs, steps
from state.records import CallKey, CallRecord, RolloutRecord, StepRecord

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: Children with a REPL at once, for each depth: a parent that waits never holds what its own children need.
AT_ONCE = 32
_places: dict[int, threading.Semaphore] = defaultdict(lambda: threading.Semaphore(AT_ONCE))


class ChildRequest(msgspec.Struct, frozen=True):
    """A child rollout that a cell asks for; `context` is {"refs": …} or {"value": …}, `grant` what it may use at most.

    With a `branch` it works in a tree of its own, which must exist in git.
    """

    key: CallKey
    prompt: str
    context: dict[str, Any] | None
    spec: ModelSpec
    number: int = 1
    grant: Grant | None = None
    branch: str | None = None


class ChildEnd(msgspec.Struct, frozen=True):
    """How a child ended, folded: its answer (or why there is none), one line about it, and the call that shows all of it."""

    ok: bool
    text: str
    line: str
    trajectory: str


def run_children(parent: Scope, budget: Budget, wanted: Sequence[ChildRequest]) -> list[ChildEnd]:
    """Run the children of one `rlm_query` call and return their outcomes in order.

    `budget` is what they may spend together. Raises `Stopped` or a provider error when the run has to end, once all have
    stopped; the children go on when it is resumed.
    """
    begun = parent.runtime.journal.write(lambda c: [_begin(parent, c, one) for one in wanted])
    running = []
    for one, (call, rollout) in zip(wanted, begun, strict=True):
        scope = Scope(parent.runtime, parent.broker, rollout, one.spec, budget, parent.place)
        running.append(in_thread(partial(_run, scope, call), "child"))
    wait(running)
    return [future.result() for future in running]


def _run(scope: Scope, call: CallRecord) -> ChildEnd:
    """Take one child to its end, and settle its call."""
    if call.settled:
        return scope.runtime.journal.read(lambda c: _end_of(c, scope.rollout, call.step, recorded(call)))
    with _places[scope.rollout.depth]:
        outcome = _work(scope) if scope.rollout.branch is None else _work_on_branch(scope)
    settled = Settled(outcome.kind == "done", outcome.answer if outcome.kind == "done" else _partial(outcome))
    rollout, now = scope.rollout, scope.runtime.clock()

    def settle(connection: Connection) -> ChildEnd:
        runs.end_rollout(connection, rollout.id, outcome.kind, outcome.reason, outcome.answer)
        packed = msgspec.msgpack.encode(settled)
        journal_calls.settle_calls(
            connection, [{"id": call.id, "ok": int(settled.ok), "outcome": packed, "ended_at": now}]
        )
        return _end_of(connection, rollout, call.step, settled)

    end = scope.runtime.journal.write(settle)
    if rollout.branch is not None:
        explore.remove(scope.runtime, rollout.branch)
    told = {"rollout": rollout.id, "depth": rollout.depth, "model": rollout.model}
    scope.runtime.tell("child_done", **told, outcome=outcome.kind, reason=outcome.reason)
    return end


def _work_on_branch(scope: Scope) -> Outcome:
    """Work in a worktree; what the child leaves there is on its branch when this returns."""
    own = explore.enter(scope)
    try:
        outcome = _work(own)
        explore.leave(own, outcome)
        return outcome
    finally:
        own.workspace.close()


def _work(scope: Scope) -> Outcome:
    from agent.loop import Loop  # the loop starts children, and a child is a loop

    rollout, journal = scope.rollout, scope.runtime.journal
    grant = msgspec.msgpack.decode(rollout.grant, type=Grant) if rollout.grant else Grant()
    spent, active = journal.read(lambda c: (journal_calls.spend(c, rollout.id), steps.seconds_worked(c, rollout.id)))
    budget = scope.budget.child(grant, spent, active)
    own = replace(scope, budget=budget)
    try:
        budget.check_cancelled()
        budget.check_open()
        told = {"rollout": rollout.id, "depth": rollout.depth, "model": rollout.model, "prompt": rollout.prompt}
        scope.runtime.tell("child", **told)
        return Loop(own).run()
    except BudgetSpent as error:
        return Outcome("budget", error.message)
    except (ProviderError, UsageError) as error:
        if not isinstance(error, RequestRejected) and scope.runtime.task.models.names(scope.spec):
            raise
        return Outcome("failed", error.message)  # asking again cannot help, and its siblings are unharmed
    finally:
        budget.end()


def _begin(parent: Scope, connection: Connection, wanted: ChildRequest) -> tuple[CallRecord, RolloutRecord]:
    """Write the call's intent, the child's row and its step 0, or find them."""
    runtime = parent.runtime
    epoch, now = runtime.journal.epoch or 0, runtime.clock()
    call = journal_calls.find_or_start(connection, wanted.key, str(ULID()), epoch, now, model=wanted.spec.model)
    found = runs.rollout_of_call(connection, call.id)
    if found is not None:
        return call, found
    rollout = RolloutRecord(
        id=str(ULID()),
        parent=parent.rollout.id,
        call_id=call.id,
        depth=parent.rollout.depth + 1,
        model=wanted.spec.model,
        prompt=wanted.prompt,
        context=msgspec.msgpack.encode(wanted.context) if wanted.context is not None else None,
        created_at=now,
        grant=msgspec.msgpack.encode(wanted.grant) if wanted.grant is not None else None,
        number=wanted.number,
        branch=wanted.branch,
    )
    runs.create_rollout(connection, rollout)
    if wanted.branch is None:  # else step 0 is the checkpoint of its tree
        steps.begin_step(connection, first_step(rollout.id, now))
    return call, rollout


def first_step(rollout: str, now: float) -> StepRecord:
    """Return step 0 of a rollout without a tree: nothing was done and its REPL holds no variables."""
    return StepRecord(rollout, 0, "done", now, ended_at=now)


def _end_of(connection: Connection, rollout: RolloutRecord, step: int, settled: Settled) -> ChildEnd:
    """Fold an ended child. Nothing in it differs between two runs of the same steps: no id, no time, no money."""
    last, calls = steps.last_step(connection, rollout.id), journal_calls.count_below(connection, rollout.id)
    trajectory = f"CONTEXT(step={step}, child={rollout.number})"
    done = "done" if settled.ok else "ended without an answer"
    line = f"[child {rollout.number} {done}: {last.seq if last else 0} steps, {calls} calls; {trajectory} shows them]"
    return ChildEnd(settled.ok, settled.text, line, trajectory)


def _partial(outcome: Outcome) -> str:
    text = f"the child ended without an answer: {outcome.kind}, {outcome.reason}"
    return f"{text}; its answer so far: {outcome.answer}" if outcome.answer else text
