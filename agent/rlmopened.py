"""What an `RLM` holds open: its folder, lock and journal, its broker and models, and the places of its REPLs.

Each completion is a root rollout of the one run in this journal.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from ulid import ULID

from agent.budget import Budget, Grant
from agent.calls import CallBroker
from agent.checkpoints import Namespace
from agent.children import first_step
from agent.completion import Completion
from agent.context.manifest import Manifest
from agent.errors import AgentError, UsageError
from agent.models.registry import ModelPool
from agent.outcome import Outcome
from agent.places import close_place, make_place
from agent.rlmcontext import Material, conversation
from agent.rlmoptions import Options
from agent.rlmwatch import Watch
from agent.runtime import Runtime, in_thread
from agent.scope import Place
from state import calls as journal_calls
from state import runs, steps
from state.errors import JournalError, RunHeld
from state.journal import Journal
from state.lease import RunLock, take_lease
from state.records import RolloutRecord, RunRecord, Spend, StepRecord

_PATIENCE = 10.0  # seconds that closing waits for the completions that it ended
_IDLE_PLACES = 3  # fork servers that are kept for file sets that completions were over


class Opened:
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
        self._places: OrderedDict[tuple[Path, ...], Place] = OrderedDict()
        self._visits: Counter[tuple[Path, ...]] = Counter()

    def rollout_for(self, material: Material, persistent: bool) -> tuple[RolloutRecord, bool]:
        """Return the rollout of a completion and whether it is new: else it was cut off by a crash and goes on."""

        def find_or_begin(connection: Any) -> tuple[RolloutRecord, bool]:
            # Taken while the journal's thread is here: two equal completions at once are two.
            for record in runs.unfinished_roots(connection, material.goal, material.packed):
                if record.id not in self.in_progress:
                    self.in_progress.add(record.id)
                    return record, False
            now, model = time.time(), self._task.models.root.model
            made = RolloutRecord(str(ULID()), None, None, 0, model, material.goal, material.packed, now)
            newest = runs.root_rollout(connection) if persistent else None
            runs.create_rollout(connection, made)
            steps.begin_step(connection, _going_on(connection, made.id, newest.id if newest is not None else None, now))
            self.in_progress.add(made.id)
            return made, True

        return self.journal.write(find_or_begin)

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

    def warm(self, shown: tuple[Path, ...]) -> None:
        """Begin to make a place for completions over these files."""
        self.leave_place(self.take_place(shown))

    def take_place(self, shown: tuple[Path, ...]) -> Place:
        """Return a place for a completion over these files; `leave_place` gives it back."""
        with self._placing:
            if shown not in self._places:
                self._places[shown] = make_place(self.runtime, shown)
            self._places.move_to_end(shown)
            self._visits[shown] += 1
            return self._places[shown]

    def leave_place(self, place: Place) -> None:
        """Give a place back; of those that nobody uses, the latest few stay warm."""
        with self._placing:
            self._visits[place.shown] -= 1
            idle = [shown for shown in self._places if not self._visits[shown]]
            gone = [self._places.pop(shown) for shown in idle[:-_IDLE_PLACES]]
        if gone:
            self.runtime.wait_for_leaving()
        for one in gone:
            close_place(one)

    def used(self, rollout: str) -> tuple[Spend, float]:
        """Return what a rollout and all below it used before, and the seconds that its steps took."""
        return self.journal.read(lambda c: (journal_calls.spend(c, rollout), steps.seconds_worked(c, rollout)))

    def so_far(self, rollout: str) -> str:
        """Return the answer that stood there, ready or not, when a rollout's last step was done."""
        with suppress(JournalError):  # it is closed already
            return self.journal.read(lambda c: steps.last_partial(c, rollout))
        return ""

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
