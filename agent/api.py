"""The command's work from Python: `run(Task.load("task.yaml"))` and `resume(workspace)`."""

from __future__ import annotations

from pathlib import Path

from agent import home
from agent.daemon import prepare, work, workspace_of
from agent.outcome import Outcome
from agent.runtime import Watcher, silent
from agent.task import Task


def run(task: Task, workspace: str | Path | None = None, watcher: Watcher = silent) -> Outcome:
    """Work on a task until it ends, as `rlm-agent start` does; a run that exists goes on.

    Raises `AgentError` subclasses; what was done so far is kept.
    """
    path = workspace_of(task, Path(workspace) if workspace is not None else None)
    prepare(task, path)
    return work(path, watcher)


def resume(run: str | Path | None = None, watcher: Watcher = silent) -> Outcome:
    """Go on with a run, given by its id, name or workspace, as `rlm-agent resume` does."""
    return work(home.find_workspace(None if run is None else str(run)), watcher)
