"""A second run from an earlier step of a first: its history, files and variables as they were then, in a workspace of its own.

A fork is a copy and a rewind. The first run is only read, also while it works; a copy that was cut off is made anew.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
from ulid import ULID

from agent import home
from agent.errors import UsageError
from agent.held import held
from agent.recover import recover_refs
from agent.rewind import Rewound, rewind
from agent.task import Task
from agent.testing import crash_point
from state import runs
from state.journal import copy_journal
from workspaces.creation import copy_repository
from workspaces.workspace import Workspace

_MARK = "forking"  # there while a copy is being made


class Forked(msgspec.Struct, frozen=True):
    """A run that began as a copy of another: its id, name and workspace, and the step it goes on from."""

    run: str
    name: str
    workspace: str
    step: int


def fork(source: Path, step: int, target: Path, name: str | None = None) -> Forked:
    """Make a run in `target` that goes on from the end of `step` of the run in `source`.

    Raises `UsageError` when the target holds other things or there is no such step.
    """
    private = target / ".rlm-agent"
    _claim(target, private)
    try:
        copy_journal(source / ".rlm-agent" / "journal.db", private / "journal.db")
        copy_repository(source, target)
        crash_point("fork.copied")
        return _begin(source, target, step, name)
    except BaseException as error:
        if isinstance(error, UsageError):
            shutil.rmtree(target)  # nothing but a copy is in it
        raise


def rewind_run(path: Path, step: int) -> Rewound:
    """Take the run in this workspace back to the end of `step`; raises `RunHeld` while a process works on it."""
    with held(path) as (journal, workspace):
        recover_refs(journal, workspace, time.time)
        return rewind(path, journal, workspace, step, time.time())


def _begin(source: Path, target: Path, step: int, name: str | None) -> Forked:
    """Turn the copy into a run of its own."""
    private = target / ".rlm-agent"
    Workspace.adopt(target).close()
    with held(target) as (journal, workspace):
        recover_refs(journal, workspace, time.time)
        rewind(target, journal, workspace, step, time.time())
        run = journal.read(runs.read_run)
        assert run is not None
        made = Forked(str(ULID()), name or f"{run.name}-{step}", str(target), step)
        task = Task.load(source / ".rlm-agent" / "task.yaml", check_paths=False)
        task = task.model_copy(update={"name": made.name, "workspace": target})
        (private / "task.yaml").write_text(task.dump_yaml())

        def write(connection: Any) -> None:
            runs.set_run(connection, id=made.run, name=made.name, task_digest=task.digest, created_at=time.time())
            runs.add_event(connection, time.time(), "forked", None, step, of=run.id, workspace=str(source))

        journal.write(write)
        (private / _MARK).unlink()
        home.remember(home.IndexEntry(made.run, made.name, str(target)))
        return made


def _claim(target: Path, private: Path) -> None:
    if (private / _MARK).exists():
        shutil.rmtree(target)  # a copy that was cut off
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty", "name another folder with --workspace")
    private.mkdir(parents=True)
    (private / ".gitignore").write_text("*\n")
    (private / _MARK).touch()
