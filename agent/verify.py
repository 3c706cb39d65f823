"""Hold the journal against git: what the one says must be true of the other.

Every problem found is one line that names the thing; an empty list means that both stores are sound and agree.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

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
    """Check that each call that moved a branch is in its history, and that each Rlm-Txn there is in the journal, and once.

    What a person rewrote is in the history that was kept of before.
    """
    problems: list[str] = []
    landings = {landing.id: landing for landing in journal_calls.landings(connection)}
    histories: dict[str, set[str]] = {}
    for branch in workspace.branches():
        seen: dict[str, str] = {}
        for entry in workspace.log(branch, None):
            histories.setdefault(branch, set()).add(entry.sha)
            txn = entry.trailers.get("Rlm-Txn")
            if txn in seen:
                problems.append(f"commit {entry.sha[:12]}: transaction {txn} is in history twice ({seen[txn][:12]})")
            if txn is not None and txn not in landings:
                problems.append(f"commit {entry.sha[:12]}: transaction {txn} is not in the journal")
            elif txn is not None and landings[txn].git_after != entry.sha:
                problems.append(f"call {txn}: the journal says {landings[txn].git_after}, git has {entry.sha}")
            if txn is not None:
                seen[txn] = entry.sha
    kept = [json.loads(event.body)["rescue"] for event in runs.events(connection, "history_rewritten")]
    for landing in landings.values():
        branch, commit = (landing.ref or "").removeprefix("refs/heads/"), landing.git_after or ""
        if landing.ref_pending or landing.archived or commit in histories.get(branch, ()):
            continue
        if not any(workspace.is_ancestor(commit, rescue) for ref in kept if (rescue := workspace.read_ref(ref))):
            problems.append(f"call {landing.id}: its commit {commit[:12]} is not on branch {branch}")
    return problems


def _checkpoints(connection: Connection, workspace: Workspace) -> list[str]:
    """Check that each rollout's steps ref points at its newest checkpoint, or at the one before while that is pending."""
    problems = []
    for rollout in runs.all_rollouts(connection):
        last = steps.last_step(connection, rollout.id)
        while last is not None and last.state != "done" and last.seq > 0:
            last = steps.read_step(connection, rollout.id, last.seq - 1)
        if last is None or last.commit is None or rollout.outcome == "rewound":
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
        first = rows[0][0] if rows and rollout.outcome == "rewound" else 0
        if [seq for seq, _ in rows] != list(range(first, first + len(rows))):
            problems.append(f"rollout {rollout.id}: its steps have gaps")
        open_steps = [seq for seq, state in rows[:-1] if state != "done"]
        problems += [f"rollout {rollout.id}: step {seq} is not done but a later one began" for seq in open_steps]
    if run is not None and run.outcome == "done" and (flying := journal_calls.in_flight(connection)):
        problems.append(f"the run is done, but {flying} calls are not settled")
    return problems
