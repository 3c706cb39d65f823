"""Hold the journal against git: what the one says must be true of the other.

Every problem found is one line that names the thing; an empty list means that both stores are sound and agree.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from state import calls as journal_calls
from state import runs, steps
from state.journal import integrity_problems, open_reader
from workspaces.workspace import Workspace

if TYPE_CHECKING:
    from sqlalchemy import Connection


def problems_in(path: Path) -> list[str]:
    """Return all that is wrong with a workspace: the database, the repository, and what they say of each other."""
    database = path / ".rlm-agent" / "journal.db"
    problems = [f"journal: {p}" for p in integrity_problems(database)]
    workspace = Workspace.open(path)
    try:
        problems += [f"git fsck: {p}" for p in workspace.fsck()]
        engine = open_reader(database)
        try:
            with engine.connect() as connection:
                problems += _commits(connection, workspace)
                problems += _checkpoints(connection, workspace)
                problems += _order(connection)
        finally:
            engine.dispose()
    finally:
        workspace.close()
    return problems


def _commits(connection: Connection, workspace: Workspace) -> list[str]:
    """Check that each settled COMMIT is in its branch's history, and that each Rlm-Txn there is in the journal once."""
    problems: list[str] = []
    settled = {c.id: c for c in journal_calls.calls_of_kind(connection, "commit") if c.settled}
    by_branch: dict[str, list[Any]] = {}
    for call in settled.values():
        by_branch.setdefault((call.ref or "").removeprefix("refs/heads/"), []).append(call)
    for branch, calls in by_branch.items():
        entries = workspace.log(branch, None)
        seen: dict[str, str] = {}
        for entry in entries:
            txn = entry.trailers.get("Rlm-Txn")
            if txn is None:
                continue
            if txn in seen:
                problems.append(f"commit {entry.sha[:12]}: transaction {txn} is in history twice ({seen[txn][:12]})")
            if txn not in settled:
                problems.append(f"commit {entry.sha[:12]}: transaction {txn} is not in the journal")
            seen[txn] = entry.sha
        pending = {c.id for c in calls if c.ref_pending}
        for call in calls:
            if call.id not in seen and call.id not in pending:
                problems.append(f"call {call.id}: its commit {(call.git_after or '')[:12]} is not on branch {branch}")
            elif call.id in seen and seen[call.id] != call.git_after:
                problems.append(f"call {call.id}: the journal says {call.git_after}, git has {seen[call.id]}")
    return problems


def _checkpoints(connection: Connection, workspace: Workspace) -> list[str]:
    """Check that each rollout's steps ref points at its newest checkpoint, or at the one before while that is pending."""
    problems = []
    for rollout in runs.all_rollouts(connection):
        last = steps.last_step(connection, rollout.id)
        while last is not None and last.state != "done" and last.seq > 0:
            last = steps.read_step(connection, rollout.id, last.seq - 1)
        if last is None or last.commit is None:
            continue
        at = workspace.read_ref(f"refs/rlm-agent/steps/{rollout.id}")
        good: set[str | None] = {last.commit}
        if last.ref_pending:
            before = steps.read_step(connection, rollout.id, last.seq - 1)
            good.add(before.commit if before is not None else None)
        if at not in good:
            problems.append(f"step {last.seq}: the journal's checkpoint is {last.commit[:12]}, the ref is at {at}")
    return problems


def _order(connection: Connection) -> list[str]:
    """Check that steps are without gaps, and that nothing ended is still open."""
    problems = []
    run = runs.read_run(connection)
    for rollout in runs.all_rollouts(connection):
        rows = steps.states(connection, rollout.id)
        if [seq for seq, _ in rows] != list(range(len(rows))):
            problems.append(f"rollout {rollout.id}: its steps have gaps")
        open_steps = [seq for seq, state in rows[:-1] if state != "done"]
        problems += [f"rollout {rollout.id}: step {seq} is not done but a later one began" for seq in open_steps]
    if run is not None and run.outcome == "done" and (flying := journal_calls.in_flight(connection)):
        problems.append(f"the run is done, but {flying} calls are not settled")
    return problems
