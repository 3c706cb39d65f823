"""Limits that change while the run goes on: an edit of `.rlm-agent/task.yaml` applies at the next step.

A file that does not parse changes nothing; the run says so and goes on under the old limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agent.budget import grant_of
from agent.errors import AgentError
from agent.runtime import Runtime
from agent.task import Limits, Task
from state import runs

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent


@contextmanager
def follow_limits(runtime: Runtime) -> Iterator[None]:
    """Watch the resolved task file for the time of the block."""
    from watchdog.events import FileSystemEventHandler
    from watchdog.observers import Observer

    file = runtime.private / "task.yaml"

    class Edited(FileSystemEventHandler):
        def on_any_event(self, event: FileSystemEvent) -> None:
            written = event.event_type in ("modified", "closed", "moved", "created")
            if written and str(file) in (event.src_path, getattr(event, "dest_path", "")):
                apply(runtime, file)

    observer = Observer()
    observer.schedule(Edited(), str(file.parent), recursive=False)
    observer.start()
    try:
        yield
    finally:
        observer.stop()
        observer.join()


def change_limits(workspace: Path, changes: dict[str, str]) -> Limits:
    """Change limits in the resolved task file, and return all of them; a running run sees the file change.

    Raises `TaskError` for a limit that does not exist or a value that it cannot have.
    """
    file = workspace / ".rlm-agent" / "task.yaml"
    task = Task.load(file, check_paths=False)
    limits: Limits = task.limits
    for key, value in changes.items():
        limits = limits.changed(key, value)
    if changes:
        fresh = file.with_name("task.yaml.new")
        fresh.write_text(task.model_copy(update={"limits": limits}).dump_yaml())
        fresh.replace(file)
    return limits


def apply(runtime: Runtime, file: Path) -> None:
    """Take over the limits that the file says now, if they differ."""
    try:
        limits: Limits = Task.load(file, check_paths=False).limits
    except AgentError as error:
        runtime.tell("task_unreadable", why=str(error))
        return
    if limits == runtime.task.limits:
        return
    changed = {k: v for k, v in limits.model_dump().items() if v != getattr(runtime.task.limits, k)}
    runtime.task = runtime.task.model_copy(update={"limits": limits})
    runtime.budget.grant = grant_of(limits)
    runtime.journal.write(
        lambda c: runs.add_event(c, runtime.clock(), "limits", **limits.model_dump(exclude_none=True))
    )
    runtime.tell("limits_changed", changed=changed)
