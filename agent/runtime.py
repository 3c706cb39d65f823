"""What all rollouts of a run share: the task, the journal, the workspace, the models, the budget, and the wish to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from agent.budget import Budget
from agent.models.registry import ModelPool
from agent.task import Task
from agent.tools import ToolBox
from state.journal import Journal
from state.records import FoldRecord
from workspaces.workspace import Workspace

T = TypeVar("T")
Watcher = Callable[..., None]


def silent(_kind: str, /, **_facts: Any) -> None:
    """Watch nothing."""
    return


@dataclass
class Runtime:
    """One running daemon's shared things; only the task's limits and the stop flags change.

    `private` is the folder that is never committed: journal, locks, logs, scratch. `tree` is None where there is no workspace.
    """

    run: str
    task: Task
    private: Path
    journal: Journal
    tree: Workspace | None
    models: ModelPool
    budget: Budget
    manifest: Any
    tools: ToolBox = field(default_factory=ToolBox)
    watcher: Watcher = silent
    clock: Callable[[], float] = time.time
    #: set when the run should stop after the step; `now` when it should not wait for it
    stop: threading.Event = field(default_factory=threading.Event)
    now: threading.Event = field(default_factory=threading.Event)
    #: where the run itself last left or saw each branch
    heads: dict[str, str | None] = field(default_factory=dict)
    #: the folds that each rollout is shown, as far as they were read
    folds: dict[str, list[FoldRecord]] = field(default_factory=dict)
    #: held while worktrees are made or taken away: git's own record of them is shared
    worktrees: threading.Lock = field(default_factory=threading.Lock)
    #: REPLs of ended rollouts that are being taken apart
    leaving: set[Future[None]] = field(default_factory=set)

    @property
    def workspace(self) -> Workspace:
        """The workspace of a task's run."""
        assert self.tree is not None, "only a task's run has a workspace"
        return self.tree

    def leave(self, work: Callable[[], None]) -> None:
        """Let a REPL be taken apart on a thread of its own; `wait_for_leaving` waits for all."""
        future = in_thread(work, "repl-end")
        self.leaving.add(future)
        future.add_done_callback(self.leaving.discard)

    def wait_for_leaving(self) -> None:
        """Wait until no ended rollout's REPL is left."""
        wait(list(self.leaving))

    def tell(self, kind: str, /, **facts: Any) -> None:
        """Let whoever watches know; nothing depends on it."""
        self.watcher(kind, **facts)


def in_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Run `work` on a thread of its own and return its future."""
    done: Future[T] = Future()

    def run() -> None:
        done.set_running_or_notify_cancel()  # a thread cannot be cancelled, and its future says so
        try:
            result = work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done
