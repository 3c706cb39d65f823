"""A run from its task to its outcome: open the workspace, take the lease, recover, loop, accept, record.

There is one path: `prepare` makes or checks what must exist, `work` goes on from whatever the journal says, be it nothing at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from ulid import ULID

from agent import home
from agent.budget import Budget, grant_of
from agent.calls import CallBroker
from agent.context.manifest import ContextSource, build_manifest
from agent.errors import AgentError, BudgetSpent, Parked, ProviderError, Stopped, UsageError
from agent.explore import remove_left_worktrees
from agent.held import held
from agent.limits import follow_limits
from agent.loop import Loop
from agent.milestones import Milestones
from agent.models.registry import ModelPool
from agent.outcome import Outcome
from agent.places import close_place, make_place, shown_paths
from agent.recover import recover_refs
from agent.runtime import Runtime, Watcher, silent
from agent.scope import Scope
from agent.task import Clone, Task
from agent.testing import crash_point
from agent.tools import load_tools
from state import calls as journal_calls
from state import runs, steps
from state.errors import JournalError
from state.journal import Journal
from state.lease import RunLock, take_lease
from state.records import RolloutRecord, RunRecord
from workspaces.workspace import Workspace

if TYPE_CHECKING:
    from sqlalchemy import Connection

_HEARTBEAT = 5.0  # seconds between two notes of how long the run has worked


def workspace_of(task: Task, named: Path | None = None) -> Path:
    """Return the folder in which a task is worked on: the one named, the task's own, or the default."""
    if named is not None:
        return named.absolute()
    if isinstance(task.workspace, Path):
        return task.workspace
    return home.default_workspace(task.name)


def prepare(task: Task, path: Path) -> list[str]:
    """Make the workspace and the run's rows, or check them against the task; returns notes for the user.

    Raises `RunHeld` when another process works on the run, `NotAWorkspace` when the folder holds something else.
    """
    load_tools(task.tools)
    clone = task.workspace.clone if isinstance(task.workspace, Clone) else None
    Workspace.create(path, goal=task.goal, name=task.name, clone=clone).close()
    lock = RunLock(path / ".rlm-agent" / "lock")
    try:
        journal = Journal(path / ".rlm-agent" / "journal.db")
        try:
            take_lease(journal, time.time)
            return _agree(journal, task.in_workspace(path), path)
        finally:
            journal.close()
    finally:
        lock.release()


def work(path: Path, watcher: Watcher = silent, stop: threading.Event | None = None) -> Outcome:
    """Work on the run in this workspace until it ends or must stop; returns the outcome, which is in the journal too.

    Raises `ProviderError` (and records the run as parked) when a model cannot be had; `resume` then goes on.
    """
    with held(path) as (journal, workspace):
        run = journal.read(runs.read_run)
        if run is None:
            raise UsageError(f"{path}: no run has begun here", "rlm-agent start --task task.yaml")
        if run.outcome == "done":
            return Outcome("done", run.reason or "", run.answer or "")
        runtime = _assemble(path, journal, workspace, run, watcher)
        if stop is not None:
            runtime.stop = stop
        return _work(runtime)


def _work(runtime: Runtime) -> Outcome:
    broker = CallBroker(runtime)
    root = runtime.journal.read(runs.root_rollout)
    assert root is not None, "prepare() wrote it with the run"
    place = make_place(runtime, shown_paths([item.path for item in runtime.task.context], runtime.manifest))
    moved = recover_refs(runtime.journal, runtime.workspace, runtime.clock, runtime.tell)
    remove_left_worktrees(runtime)
    runtime.tell("opened", run=runtime.run, workspace=str(runtime.workspace.path), refs_moved=moved)
    runtime.journal.write(lambda c: _reopen(runtime, c, root))
    try:
        with follow_limits(runtime), _Heartbeat(runtime):
            scope = Scope(
                runtime, broker, root, runtime.task.models.root, runtime.budget, place, tree=runtime.workspace
            )
            outcome = _loop(scope)
            _final_commit(scope, outcome)
        crash_point("run.outcome")
        _record(runtime, root, outcome)
    except ProviderError as error:
        _record(runtime, root, Outcome("parked", error.message, _so_far(runtime, root)))
        raise
    finally:
        broker.close()
        runtime.models.close()
        runtime.wait_for_leaving()
        close_place(place)
    return outcome


def _loop(scope: Scope) -> Outcome:
    """Run the root rollout; stops and spent budgets are outcomes, a model that cannot be had raises."""
    models = scope.runtime.task.models
    for spec in (models.root, models.sub, models.fold):
        scope.runtime.models.get(spec).check()
    try:
        return Loop(scope).run()
    except Parked as parked:
        return Outcome("parked", parked.message, _so_far(scope.runtime, scope.rollout))
    except Stopped as stopped:
        return Outcome("stopped", stopped.message, _so_far(scope.runtime, scope.rollout))


def _so_far(runtime: Runtime, root: RolloutRecord) -> str:
    return runtime.journal.read(lambda c: steps.last_partial(c, root.id))


def _assemble(path: Path, journal: Journal, workspace: Workspace, run: RunRecord, watcher: Watcher) -> Runtime:
    task = Task.load(path / ".rlm-agent" / "task.yaml").in_workspace(path)
    spent = journal.read(journal_calls.spend)
    sources = [ContextSource(str(item.path), item.include, item.exclude) for item in task.context]
    manifest = build_manifest(sources, home.document_cache())
    return Runtime(
        run=run.id,
        task=task,
        private=path / ".rlm-agent",
        journal=journal,
        tree=workspace,
        models=ModelPool(task.directory),
        budget=Budget(grant_of(task.limits), spent, run.active_s, time.time),
        manifest=manifest,
        tools=load_tools(task.tools),
        watcher=watcher,
    )


def _agree(journal: Journal, task: Task, path: Path) -> list[str]:
    """Write the run's rows, or bring them and `.rlm-agent/task.yaml` to a task that was changed; says what changed."""
    run = journal.read(runs.read_run)
    resolved = path / ".rlm-agent" / "task.yaml"
    if run is None:
        if (path / ".git" / "refs" / "rlm-agent" / "steps").is_dir():
            raise JournalError(
                f"{path}: the journal is missing or empty, but git holds the steps of a run",
                "put .rlm-agent/journal.db back from a copy, or begin anew in another folder with --workspace",
            )
        record = RunRecord(str(ULID()), task.name, task.goal, task.digest, time.time())
        root = RolloutRecord(str(ULID()), None, None, 0, task.models.root.model, task.goal, None, time.time())

        def begin(connection: Connection) -> None:
            runs.create_run(connection, record)
            runs.create_rollout(connection, root)

        _replace(resolved, task.dump_yaml())
        journal.write(begin)
        home.remember(home.IndexEntry(record.id, task.name, str(path)))
        return []
    home.remember(home.IndexEntry(run.id, run.name, str(path)))
    if run.task_digest == task.digest and resolved.exists():
        return []
    changed = _differences(resolved, task)

    def change(connection: Connection) -> None:
        runs.set_run(connection, goal=task.goal, task_digest=task.digest)
        runs.set_root_prompt(connection, task.goal)
        runs.add_event(connection, time.time(), "task_changed", fields=changed)

    journal.write(change)
    _replace(resolved, task.dump_yaml())
    return [f"the task has changed since the run began: {', '.join(changed) or 'in its form only'}"]


def _differences(resolved: Path, task: Task) -> list[str]:
    with suppress(AgentError, OSError):
        before, now = Task.load(resolved, check_paths=False).resolved(), task.resolved()
        return [key for key in now if now.get(key) != before.get(key)]
    return ["all of it (the old one cannot be read)"]


def _replace(file: Path, text: str) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(file)


def _reopen(runtime: Runtime, connection: Connection, root: RolloutRecord) -> None:
    runs.set_run(connection, outcome=None, reason=None)
    runs.end_rollout(connection, root.id, None, "", None)
    runs.add_event(connection, runtime.clock(), "limits", **runtime.task.limits.model_dump(exclude_none=True))


def _final_commit(scope: Scope, outcome: Outcome) -> None:
    """Commit where the run stands, so that `git log` ends with how it ended."""
    root = scope.rollout
    last = scope.runtime.journal.read(lambda c: steps.last_step(c, root.id))
    if last is None or last.seq == 0 or (outcome.kind == "parked" and last.state != "done"):
        return  # a cell that waits for its answer is rolled back and runs again: its half-done work is no milestone
    with suppress(ProviderError, BudgetSpent):
        Milestones(scope).commit_end(outcome)


def _record(runtime: Runtime, root: RolloutRecord, outcome: Outcome) -> None:
    def write(connection: Connection) -> None:
        runs.set_run(connection, outcome=outcome.kind, reason=outcome.reason, answer=outcome.answer)
        runs.end_rollout(connection, root.id, outcome.kind, outcome.reason, outcome.answer)
        last = steps.last_step(connection, root.id)
        seq = last.seq if last else 0
        if last is not None and last.state == "done" and outcome.kind == "done":
            steps.set_step(connection, root.id, seq, ref_pending=0)
        runs.add_event(connection, runtime.clock(), "outcome", root.id, seq, **msgspec.structs.asdict(outcome))

    runtime.journal.write(write)
    runtime.tell("outcome", kind_of=outcome.kind, reason=outcome.reason)


class _Heartbeat:
    """Notes every few seconds how long the run has worked, and stops the run when its lease is lost."""

    def __init__(self, runtime: Runtime, clock: Callable[[], float] = time.monotonic) -> None:
        self._rt, self._clock = runtime, clock
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _beat(self) -> None:
        before, more = self._clock(), True
        while more:
            more = not self._end.wait(_HEARTBEAT)
            now = self._clock()
            worked, before = now - before, now
            try:
                self._rt.journal.write(lambda c, s=worked: runs.add_active(c, s))  # type: ignore[misc]
            except JournalError:
                self._rt.stop.set()
                self._rt.now.set()
                return
