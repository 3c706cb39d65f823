"""Back to an earlier step: files, REPL and journal as they were at its end, and nothing that came later is lost.

Order: the tips of all refs that will move are kept under refs/rlm-agent/rewound/<id> → one journal transaction moves the later
steps to an archived rollout and notes which refs have to move → refs, HEAD and files. A crash before the transaction changes
nothing; after it, the next start finishes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from ulid import ULID

from agent.errors import UsageError
from agent.testing import crash_point
from state import rewinding, runs, steps
from state.journal import Journal
from state.records import RolloutRecord, StepRecord
from workspaces.workspace import Workspace


class Rewound(msgspec.Struct, frozen=True):
    """What a rewind did: back to `step` from `last`; `kept` begins the refs that hold what came later."""

    step: int
    last: int
    kept: str
    rescue: str | None


def rewind(path: Path, journal: Journal, workspace: Workspace, step: int, now: float) -> Rewound:
    """Take the run in this workspace back to the end of `step`; the caller holds its lock and lease.

    Raises `UsageError` when there is no such step, or its checkpoint was thinned.
    """
    root = journal.read(runs.root_rollout)
    row = journal.read(lambda c: steps.read_step(c, root.id, step)) if root is not None else None
    last = journal.read(lambda c: steps.last_step(c, root.id)) if root is not None else None
    if root is None or last is None or row is None or row.state != "done":
        raise UsageError(f"{path}: there is no finished step {step}", "rlm-agent log --steps lists them")
    if row.tree is None or row.commit is None or not workspace.store.exists(row.commit):
        near = journal.read(lambda c: steps.kept_near(c, root.id, step))
        raise UsageError(f"{path}: the checkpoint of step {step} is not kept any more", f"the nearest are {near}")
    archived = str(ULID())
    kept = f"refs/rlm-agent/rewound/{archived}"
    _keep(workspace, kept, root)
    crash_point("rewind.kept")

    def write(connection: Any) -> None:
        rewinding.archive_after(connection, root, step, archived, now)
        moves = {ref: before for ref, (before, _) in rewinding.heads_before(connection, archived).items()}
        runs.add_event(connection, now, "rewinding", root.id, step, archived=archived, moves=moves, branch=row.branch)
        runs.set_run(connection, outcome=None, reason=None, answer=None)
        runs.end_rollout(connection, root.id, None, "", None)

    journal.write(write)
    crash_point("rewind.written")
    rescue = finish(journal, workspace, root, now)
    return Rewound(step, last.seq, kept, rescue)


def finish(journal: Journal, workspace: Workspace, root: RolloutRecord, now: float) -> str | None:
    """Bring git and the files to where the newest rewind leaves them, unless that is done; returns the rescue ref, if any."""
    newest = journal.read(lambda c: runs.last_events(c, ("rewinding", "rewound"), root.id, 1))
    if not newest or newest[0].kind == "rewound":
        return None
    told, step = json.loads(newest[0].body), newest[0].step or 0
    row = journal.read(lambda c: steps.read_step(c, root.id, step))
    assert row is not None
    rescue = workspace.restore(row.tree or "", str(ULID())).rescue
    for ref, before in told["moves"].items():
        _move(workspace, ref, before)
    _move(workspace, f"refs/rlm-agent/steps/{root.id}", row.commit)
    _check_out(workspace, row)
    crash_point("rewind.moved")
    facts = {"archived": told["archived"], "rescue": rescue}
    journal.write(lambda c: runs.add_event(c, now, "rewound", root.id, step, **facts))
    return rescue


def _keep(workspace: Workspace, kept: str, root: RolloutRecord) -> None:
    tips = {f"heads/{name}": sha for name, sha in workspace.branches().items()}
    if at := workspace.read_ref(f"refs/rlm-agent/steps/{root.id}"):
        tips["steps"] = at
    for name, sha in tips.items():
        workspace.move_ref(f"{kept}/{name}", sha, None)


def _move(workspace: Workspace, ref: str, to: str | None) -> None:
    at = workspace.read_ref(ref)
    if at == to:
        return
    if to is not None:
        workspace.move_ref(ref, to, at)
    elif at is not None:
        if workspace.read_ref("HEAD") == at and workspace.read_head() == ref.removeprefix("refs/heads/"):
            workspace.switch_head("main")
        workspace.drop_ref(ref, at)


def _check_out(workspace: Workspace, row: StepRecord) -> None:
    branch = row.branch or "main"
    if workspace.read_head() != branch:
        workspace.switch_head(branch)
    if at := workspace.read_ref(f"refs/heads/{branch}"):
        workspace.place_branch_files(at)
    workspace.note_merge(None)
    workspace.sync_index()
