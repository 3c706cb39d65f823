"""What a run looks like from outside: the status document, read from the journal while the daemon writes it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state import calls as journal_calls
from state import runs, steps
from state.errors import JournalError
from state.journal import open_reader
from state.lease import read_owner

if TYPE_CHECKING:
    from sqlalchemy import Connection


def status_of(workspace: Path, folding: bool = False) -> dict[str, Any]:
    """Return the status document of design §10; `outcome` is null while the run is not over.

    With `folding` it tells how the run folds, too.

    Raises `JournalError` when there is no readable journal.
    """
    engine = open_reader(workspace / ".rlm-agent" / "journal.db")
    try:
        with engine.connect() as connection:
            document = _read(connection)
            if folding:
                document["folding"] = _folding(connection, document)
    finally:
        engine.dispose()
    branch, head = _head(workspace)
    return {**document, "branch": branch, "head": head, "workspace": str(workspace)}


def _read(connection: Connection) -> dict[str, Any]:
    run, root = runs.read_run(connection), runs.root_rollout(connection)
    if run is None or root is None:
        raise JournalError("no run has begun in this workspace", "begin it again: rlm-agent start --task task.yaml")
    last = steps.last_step(connection, root.id)
    owner = read_owner(connection)
    alive = owner is not None and owner.alive() and run.outcome is None
    spend = journal_calls.spend(connection)
    newest, largest = steps.prompt_sizes(connection, root.id)
    folds = steps.live_folds(connection, root.id)
    limits = _limits(connection)
    outcome = run.outcome and {"kind": run.outcome, "reason": run.reason, "answer": run.answer or ""}
    return {
        "run": run.id,
        "task": run.name,
        "state": "running" if alive else "ended" if run.outcome else "not running",
        "outcome": outcome,
        "pid": owner.pid if alive and owner else None,
        "step": last.seq if last else 0,
        "rollouts": len(runs.all_rollouts(connection)),
        "calls": spend.calls,
        "spend": {
            "usd": round(spend.usd, 6),
            "tokens_in": spend.tokens_in,
            "tokens_out": spend.tokens_out,
            "unpriced_calls": spend.unpriced_calls,
            "maybe_paid_twice": spend.maybe_paid_twice,
        },
        "budget": limits,
        "prompt_tokens": {"last": newest, "max": largest},
        "folds": len(folds),
        "activity": _activity(connection, last, alive),
        "idle_s": round(max(0.0, time.time() - runs.last_activity(connection)), 1),
        "active_s": round(run.active_s, 1),
    }


def _folding(connection: Connection, document: dict[str, Any]) -> dict[str, Any]:
    from agent.telemetry import telemetry

    root = runs.root_rollout(connection)
    assert root is not None, "there is a document"
    return telemetry(connection, root.id, int(document["budget"].get("prompt_tokens") or 8_000))


def _activity(connection: Connection, last: Any, alive: bool) -> str:
    if not alive:
        return "none"
    flying = journal_calls.in_flight(connection)
    if last is None or last.state == "done":
        return "between steps"
    doing = {"planned": "assembling", "asked": "asking the root model", "replied": "starting the cell"}
    base = doing.get(last.state, "running a cell")
    return f"{base}, {flying} calls in flight" if flying else base


def _limits(connection: Connection) -> dict[str, Any]:
    started = runs.events(connection, "limits")
    return dict(json.loads(started[-1].body)) if started else {}


def _head(workspace: Path) -> tuple[str, str | None]:
    """Read branch and head from the files of `.git`: no process, no git library for a status."""
    git = workspace / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
    except OSError:
        return "", None
    if not head.startswith("ref: "):
        return "(detached)", head
    ref = head[5:]
    loose = git / ref
    if loose.exists():
        return ref.removeprefix("refs/heads/"), loose.read_text().strip()
    packed = git / "packed-refs"
    for line in packed.read_text().splitlines() if packed.exists() else ():
        sha, _, name = line.partition(" ")
        if name == ref:
            return ref.removeprefix("refs/heads/"), sha
    return ref.removeprefix("refs/heads/"), None
