"""What all rollouts of a run share: the task, the journal, the workspace, the models, the budget, and the wish to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.budget import Budget
from agent.errors import Stopped
from agent.models.registry import ModelPool
from agent.task import Task
from state.journal import Journal
from workspaces.workspace import Workspace

Watcher = Callable[..., None]


def silent(_kind: str, /, **_facts: Any) -> None:
    """Watch nothing."""
    return


@dataclass
class Runtime:
    """One running daemon's shared things; only the task's limits and the stop flags change."""

    run: str
    task: Task
    journal: Journal
    workspace: Workspace
    models: ModelPool
    budget: Budget
    manifest: Any
    watcher: Watcher = silent
    clock: Callable[[], float] = time.time
    #: set when the run should stop after the step; `now` when it should not wait for it
    stop: threading.Event = field(default_factory=threading.Event)
    now: threading.Event = field(default_factory=threading.Event)

    @property
    def private(self) -> Path:
        """The folder that is never committed: journal, locks, logs."""
        return self.workspace.path / ".rlm-agent"

    def tell(self, kind: str, /, **facts: Any) -> None:
        """Let whoever watches know; nothing depends on it."""
        self.watcher(kind, **facts)

    def pause(self, seconds: float) -> None:
        """Wait, unless the run is stopped meanwhile: then `Stopped` is raised."""
        if self.now.wait(seconds) or self.stop.is_set():
            raise Stopped("stopped while waiting for a model", "go on with `rlm-agent resume`")
