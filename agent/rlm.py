"""`RLM`: questions over contexts from Python, by the same loop as a task's run, without a task file and without a git tree.

Each completion is a root rollout in one journal, which lies in a temporary folder or in a given one. In a given folder, a
completion that was cut off by a crash goes on when it is asked again: what it had paid for is not paid twice.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from ulid import ULID

from agent import completion as results
from agent.budget import Budget, Grant, grant_of
from agent.calls import CallBroker
from agent.checkpoints import Namespace
from agent.children import first_step
from agent.completion import Completion
from agent.context.manifest import Manifest
from agent.errors import AgentError, BudgetSpent, UsageError
from agent.loop import Loop
from agent.models.registry import ModelPool
from agent.outcome import Outcome
from agent.places import close_place, context_frame, make_place
from agent.plainly import answer_plainly, fits
from agent.rlmcontext import Material, conversation, material_of
from agent.rlmoptions import Options, read_options
from agent.rlmwatch import Watch
from agent.runtime import Runtime, in_thread
from agent.scope import Place, Scope
from state import calls as journal_calls
from state import runs, steps
from state.errors import RunHeld
from state.journal import Journal
from state.lease import RunLock, take_lease
from state.records import RolloutRecord, RunRecord, Spend, StepRecord

_PATIENCE = 10.0  # seconds that closing waits for the completions that it ended


class RLM:
    """A recursive language model over contexts of any size.

    `model` and `sub_model` are litellm names (`openai/gpt-5`), `offline/…` or `local/…`; `model_params` and `sub_model_params` go
    to them as they are. `limits` are those of task.yaml; `workspace` is a folder for the journal (default: a temporary one);
    `sandbox` is auto, bubblewrap, landlock or none; `reuse` answers equal sub-calls once; `persistent` keeps variables,
    contexts and histories from one completion to the next. `route` is rlm (explore by cells, always), plain (one call) or
    auto (plain where the context is short); `warm` names the files that completions will be over, where they are known.
    `custom_tools` are functions or values that cells find, `custom_sub_tools` those of sub-calls and children. The options
    of the paper's library (`backend`, `backend_kwargs`, `max_depth`, `max_iterations`, `max_budget`, `max_timeout`,
    `max_tokens`, `max_errors`, …) are understood too.
    Raises `UsageError` for options that make no sense.
    """

    def __init__(self, model: Any = None, sub_model: Any = None, **options: Any) -> None:
        self._options: Options = read_options({"model": model, "sub_model": sub_model, **options})
        self._task, self._toolbox = self._options.task(), self._options.toolbox()
        self._opened = _Opened(self._options, self._task, self._toolbox)
        self._turn = threading.RLock()
        self._finalizer = weakref.finalize(self, self._opened.close)
        try:
            self._opened.place(tuple(path.absolute() for path in self._options.warm))
        except BaseException:
            self.close()
            raise

    def completion(
        self, prompt: Any, root_prompt: str | None = None, *, question: str | None = None, context: Any = None
    ) -> Completion:
        """Answer a question over a context, and return the answer with its outcome and spend.

        With `question` (or `root_prompt`), `prompt` is the context: a text, list or dict, or a path or list of paths, which are
        looked at in place. With `context`, `prompt` is the question. Alone, `prompt` is both. Raises `LimitExceeded` when a
        `max_…` option ends it, `ProviderError` when a model cannot be had.
        """
        material = material_of(prompt, question or root_prompt, context, self._options.user_prologue or "")
        if not self._options.persistent:
            return self._complete(material)
        with self._turn:
            return self._complete(material)

    async def acompletion(self, prompt: Any, root_prompt: str | None = None, **more: Any) -> Completion:
        """Do what `completion` does without blocking the event loop; many may run at once."""
        return await asyncio.to_thread(self.completion, prompt, root_prompt, **more)

    @property
    def manifest(self) -> Manifest:
        """The files that completions were asked over, and those that were refused."""
        manifest: Manifest = self._opened.runtime.manifest
        return manifest

    def close(self) -> None:
        """End what is running for this object, as a crash would; a temporary folder is removed.

        A completion that runs on another thread returns with its answer so far. A second call does nothing.
        """
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        self.close()

    def _complete(self, material: Material) -> Completion:
        with self._opened.working():
            done = self._completed(material)
        self._raise_for_limit(done)
        return done

    def _completed(self, material: Material) -> Completion:
        runtime, began = self._opened.runtime, time.monotonic()
        self._opened.know(material.manifest)
        rollout, fresh = self._opened.rollout_for(material, self._options.persistent)
        earlier = self._opened.earlier(rollout.id) if self._options.persistent else {}
        spent, worked = (Spend(), 0.0) if fresh else self._opened.used(rollout.id)
        budget = runtime.budget.child(grant_of(self._task.limits), spent, worked, by_limits=True)
        scope = Scope(
            runtime,
            self._opened.broker,
            rollout,
            self._task.models.root,
            budget,
            self._opened.place(_shown(material, earlier)),
            system=self._options.custom_system_prompt or "",
            persistent=self._options.persistent,
            frame=earlier,
        )
        try:
            outcome = self._work(scope)
        except BudgetSpent as error:
            outcome = Outcome("budget", error.message)
        except BaseException as error:
            self._opened.in_progress.discard(rollout.id)  # it goes on when it is asked again
            if not isinstance(error, Exception) or not self._opened.closed:
                raise
            outcome = Outcome("stopped", "the RLM was closed meanwhile", self._opened.so_far(rollout.id))
        finally:
            budget.end()
        return self._opened.end(rollout, outcome, time.monotonic() - began, material)

    def _work(self, scope: Scope) -> Outcome:
        frame, route = context_frame(scope), self._options.route
        plain = route == "plain" or (route == "auto" and fits(scope, frame))
        return answer_plainly(scope, frame) if plain else Loop(scope).run()

    def _raise_for_limit(self, done: Completion) -> None:
        """Raise as the paper's library does when a limit that was given by its name is what ended the completion."""
        options, kind, why = self._options, done.outcome.kind, done.outcome.reason
        for given, ended, words, error in (
            (options.max_budget, "budget", ("usd", "cost_usd"), results.BudgetExceededError),
            (options.max_timeout, "budget", ("seconds", "wall_time"), results.TimeoutExceededError),
            (options.max_tokens, "budget", ("tokens",), results.TokenLimitExceededError),
            (options.max_errors, "stuck", ("failed",), results.ErrorThresholdExceededError),
        ):
            if given is not None and kind == ended and any(word in why for word in words):
                raise error(why, done)


class _Opened:
    """What an `RLM` holds open: folder, lock, journal, broker, models."""

    def __init__(self, options: Options, task: Any, toolbox: Any) -> None:
        given = options.workspace
        self._temporary = None if given is not None else tempfile.mkdtemp(prefix="rlm-agent-")
        base = Path(given if given is not None else self._temporary or "").absolute()
        private = base / ".rlm-agent"
        private.mkdir(parents=True, exist_ok=True)
        (private / ".gitignore").write_text("*\n")
        self._lock = _lock(private)
        self._task = task
        self._placing, self._idle = threading.Lock(), threading.Condition()
        self._working, self.closed = 0, False
        self.in_progress: set[str] = set()
        try:
            self.journal = Journal(private / "journal.db")
        except AgentError:
            self._lock.release()
            raise
        take_lease(self.journal, time.time)
        self.runtime = Runtime(
            run=self._run_id(),
            task=task,
            private=private,
            journal=self.journal,
            tree=None,
            models=ModelPool(Path.cwd()),
            budget=Budget(Grant(), Spend(), 0.0, time.time),
            manifest=Manifest(()),
            tools=toolbox,
            watcher=Watch(options),
        )
        self.broker = CallBroker(self.runtime)
        self._places: dict[tuple[Path, ...], Place] = {}

    def rollout_for(self, material: Material, persistent: bool) -> tuple[RolloutRecord, bool]:
        """Return the rollout of a completion and whether it is new: else it was cut off by a crash and goes on."""

        def find_or_begin(connection: Any) -> tuple[RolloutRecord, bool]:
            roots = runs.root_rollouts(connection)
            for record in roots:
                same = (record.prompt, record.context) == (material.goal, material.packed)
                if same and record.outcome is None and record.id not in self.in_progress:
                    return record, False
            now, model = time.time(), self._task.models.root.model
            made = RolloutRecord(str(ULID()), None, None, 0, model, material.goal, material.packed, now)
            runs.create_rollout(connection, made)
            earlier = roots[-1].id if persistent and roots else None
            steps.begin_step(connection, _going_on(connection, made.id, earlier, now))
            return made, True

        record, fresh = self.journal.write(find_or_begin)
        self.in_progress.add(record.id)
        return record, fresh

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count a completion for the time of the block; raises `UsageError` when all is closed."""
        with self._idle:
            if self.closed:
                raise UsageError("RLM: it is closed", "make a new one; with the same workspace= it goes on there")
            self._working += 1
        try:
            yield
        finally:
            with self._idle:
                self._working -= 1
                self._idle.notify_all()

    def know(self, manifest: Manifest | None) -> None:
        """Add the documents of a completion to those that references may name; a changed file is known as it is now."""
        if manifest is None:
            return
        with self._placing:
            before = self.runtime.manifest
            docs = {doc.path: doc for doc in (*before.docs, *manifest.docs)}
            refused = dict.fromkeys((*before.refused, *manifest.refused))
            self.runtime.manifest = Manifest(tuple(docs.values()), tuple(refused))

    def place(self, shown: tuple[Path, ...]) -> Place:
        """Return the place of completions over these files."""
        with self._placing:
            if shown not in self._places:
                self._places[shown] = make_place(self.runtime, shown)
            return self._places[shown]

    def used(self, rollout: str) -> tuple[Spend, float]:
        """Return what a rollout and all below it used before, and the seconds that its steps took."""
        return self.journal.read(lambda c: (journal_calls.spend(c, rollout), steps.seconds_worked(c, rollout)))

    def so_far(self, rollout: str) -> str:
        """Return the answer that stood there, ready or not, when a rollout's last step was done."""
        return self.journal.read(lambda c: steps.last_partial(c, rollout)) or ""

    def earlier(self, rollout: str) -> dict[str, Any]:
        """Return what the REPL of a persistent rollout finds of the completions before it: contexts and histories."""

        def read(connection: Any) -> list[tuple[RolloutRecord, list[Any]]]:
            roots = [root for root in runs.root_rollouts(connection) if root.id <= rollout]
            return [(root, steps.steps_between(connection, root.id, 1, 1 << 60)) for root in roots]

        found = self.journal.read(read)
        contexts = {f"context_{n}": msgspec.msgpack.decode(root.context or b"") for n, (root, _) in enumerate(found)}
        for frame in contexts.values():
            self.know(msgspec.convert(frame["manifest"], Manifest) if "manifest" in frame else None)
        histories = {f"history_{n}": conversation(root.prompt, done) for n, (root, done) in enumerate(found[:-1])}
        return {"contexts": contexts, "values": histories}

    def end(self, rollout: RolloutRecord, outcome: Outcome, seconds: float, material: Material) -> Completion:
        """Record how a completion ended, and return it; one that was stopped has not ended: it goes on when it is asked again."""

        def write(connection: Any) -> tuple[Spend, int]:
            if outcome.kind != "stopped":
                runs.end_rollout(connection, rollout.id, outcome.kind, outcome.reason, outcome.answer)
            last = steps.last_step(connection, rollout.id)
            return journal_calls.spend(connection, rollout.id), last.seq if last is not None else 0

        spend, count = self.journal.write(write)
        self.in_progress.discard(rollout.id)
        self.runtime.tell("outcome", kind_of=outcome.kind, reason=outcome.reason)
        return Completion(outcome.answer, outcome, spend, count, seconds, rollout.id, rollout.model, material.shown)

    def close(self) -> None:
        """End everything: first what completions wait for, then, when they have ended, what they use."""
        with self._idle:
            self.closed = True
        self.runtime.stop.set()
        self.runtime.now.set()
        # A REPL ends only when its calls in flight have, so they are given up at the same time.
        ending = in_thread(self.runtime.budget.cancel, "closing")
        with suppress(RuntimeError):
            self.broker.close()
        with self._idle:
            self._idle.wait_for(lambda: not self._working, _PATIENCE)
        wait([ending], _PATIENCE)
        self.runtime.wait_for_leaving()
        self.runtime.models.close()
        for place in self._places.values():
            close_place(place)
        self.journal.close()
        self._lock.release()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _run_id(self) -> str:
        def find_or_create(connection: Any) -> str:
            run = runs.read_run(connection)
            if run is None:
                run = RunRecord(str(ULID()), "rlm", self._task.goal, self._task.digest, time.time())
                runs.create_run(connection, run)
            return run.id

        return self.journal.write(find_or_create)


def _shown(material: Material, earlier: dict[str, Any]) -> tuple[Path, ...]:
    """Return the files that a completion's REPL sees: those of its own context, and of the earlier ones that it finds."""
    named = (Path(path) for frame in earlier.get("contexts", {}).values() for path in frame.get("paths", ()))
    return tuple(dict.fromkeys([*material.shown_paths, *(path for path in named if path.exists())]))


def _lock(private: Path) -> RunLock:
    try:
        return RunLock(private / "lock")
    except RunHeld as error:
        raise RunHeld(
            f"{private.parent}: another RLM, or a run, is at work in this workspace",
            "close the other one first, or give each a workspace= of its own",
        ) from error


def _going_on(connection: Any, rollout: str, earlier: str | None, now: float) -> StepRecord:
    """Return step 0 of a rollout that has the variables of an `earlier` one, but for its answer."""
    first = first_step(rollout, now)
    before = steps.last_step(connection, earlier) if earlier is not None else None
    if before is not None and before.state != "done":
        before = steps.read_step(connection, before.rollout, before.seq - 1)
    if before is None or before.base is None:
        return first
    source = steps.read_step(connection, before.rollout, before.base)
    if source is None or source.namespace is None:
        return first
    stored = msgspec.msgpack.decode(source.namespace, type=Namespace)
    shas = {name: sha for name, sha in stored.shas.items() if name != "answer"}
    kept = msgspec.msgpack.encode(Namespace(shas, stored.lost))
    return msgspec.structs.replace(first, base=0, namespace=kept, variables=before.variables)
