"""A step's end and its undoing: tree, REPL namespace and journal position together.

`save` stores the namespace and the tree, then writes the step `done` in one journal transaction; only then the steps ref
moves. `restore_namespace` brings a fresh REPL to the newest done step: the newest stored namespace, then the cells since,
run against recorded calls. A namespace that is costly to pickle is stored rarely: only once replaying the cells since
would take longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agent.repl.host import Repl, Snapshot
from agent.scope import Scope
from agent.testing import crash_point
from state import branches, search, steps
from state.records import StepRecord

_CHEAP = 0.1  # seconds; a snapshot below this is taken at every step
_MAX_REPLAY = 20  # cells
_KEEP = 20  # newest namespaces of a rollout that are never thinned
_TIDY = 50  # steps after which old namespaces are dropped and new steps can be searched
_EVERY = 100  # of the older ones, each hundredth stays


class Namespace(msgspec.Struct, frozen=True):
    """A stored namespace: hash of each variable, and why some could not be stored."""

    shas: dict[str, str]
    lost: dict[str, str]


class Checkpoints:
    """The checkpoints of one rollout."""

    def __init__(self, scope: Scope) -> None:
        self._rt, self._rollout, self._scope = scope.runtime, scope.rollout.id, scope
        self._keep_last, self._always = scope.has_tree or scope.persistent, scope.persistent
        self._known: set[str] = set()
        self._cost = 0.0
        self._compute_since = 0.0

    def save(
        self, repl: Repl, step: StepRecord, before: StepRecord | None, compute_s: float, **fields: Any
    ) -> StepRecord:
        """Make the step durable as `done` and return it; `before` is the step before it, `fields` what the cell did."""
        ended = (
            fields.get("answer") is not None and not self._keep_last
        )  # nothing that comes after it needs the variables
        stored, values, base = _none(before) if ended else self._namespace(repl, step.seq, before, compute_s)
        tree, commit, branch = None, None, None
        if self._scope.has_tree:
            workspace = self._scope.workspace
            branch = workspace.head().branch
            tree = workspace.snapshot(durable=False)  # one barrier, that of the commit, serves both
            parent = before.commit if before is not None else None
            commit = workspace.write_commit(
                tree, [parent] if parent else [], f"step {step.seq}\n", int(step.started_at)
            )
        crash_point("checkpoint.objects")
        done = msgspec.structs.replace(
            step,
            state="done",
            tree=tree,
            commit=commit,
            branch=branch,
            ref_pending=int(commit is not None),
            base=base,
            namespace=stored,
            compute_s=compute_s,
            ended_at=self._rt.clock(),
            **fields,
        )
        changed = {f: getattr(done, f) for f in done.__struct_fields__ if getattr(done, f) != getattr(step, f)}

        def write(connection: Any) -> None:
            steps.store_values(connection, values)
            steps.set_step(connection, self._rollout, step.seq, **changed)
            if branch is not None and step.seq > 0:
                branches.log_step(connection, step, branch)
            if step.seq % _TIDY == 0:
                _thin(connection)
                search.index_new(connection)

        self._rt.journal.write(write)
        crash_point("step.done")
        if commit is not None:
            self._scope.workspace.move_ref(
                steps_ref(self._rollout), commit, before.commit if before is not None else None
            )
            crash_point("step.ref_moved")  # the next step's plan notes it: a commit of its own would cost an fsync
        return done

    def restore_namespace(
        self, repl: Repl, last: StepRecord | None, replay: Callable[[StepRecord], None]
    ) -> dict[str, str]:
        """Bring a fresh REPL to the end of step `last`; `replay` runs a done step's cell again.

        Returns the names that are lost, each with the reason.
        """
        if last is None or last.base is None:
            since = 1
            lost: dict[str, str] = {}
        else:
            base = last.base
            row = self._rt.journal.read(lambda c: steps.read_step(c, self._rollout, base))
            found = msgspec.msgpack.decode((row and row.namespace) or b"", type=Namespace)
            values = self._rt.journal.read(lambda c: steps.load_values(c, list(set(found.shas.values()))))
            lost = found.lost | (repl.restore(found.shas, values) if found.shas else {})
            self._known = set(values)
            since = base + 1
        if last is not None:
            for row in self._rt.journal.read(lambda c: steps.steps_between(c, self._rollout, since, last.seq)):
                replay(row)
        return lost

    def _namespace(
        self, repl: Repl, seq: int, before: StepRecord | None, compute_s: float
    ) -> tuple[bytes | None, dict[str, bytes], int | None]:
        """Return (the stored namespace or None, new values, the newest step with a stored one)."""
        self._compute_since += compute_s
        base = before.base if before is not None else None
        fresh = self._always or base is None or seq - base >= _MAX_REPLAY
        if not fresh and self._cost > _CHEAP and self._compute_since < 4 * self._cost:
            return None, {}, base
        taken: Snapshot = repl.snapshot(self._known)
        self._cost, self._compute_since = taken.seconds, 0.0
        self._known = set(taken.shas.values())
        crash_point("checkpoint.blobs")
        return msgspec.msgpack.encode(Namespace(taken.shas, taken.lost)), taken.values, seq


def steps_ref(rollout: str) -> str:
    """Return the git ref of a rollout's step checkpoints."""
    return f"refs/rlm-agent/steps/{rollout}"


def _none(before: StepRecord | None) -> tuple[bytes | None, dict[str, bytes], int | None]:
    return None, {}, before.base if before is not None else None


def _thin(connection: Any) -> None:
    """Drop old stored namespaces that nothing needs: all but the newest, each hundredth, and those that replay starts from."""
    rows = steps.namespaces(connection)
    newest: dict[str, int] = {}
    for rollout, seq, _ in rows:
        newest[rollout] = max(seq, newest.get(rollout, 0))
    keep: set[str] = set()
    for rollout, seq, data in rows:
        if newest[rollout] - seq > _KEEP and seq % _EVERY:
            steps.set_step(connection, rollout, seq, namespace=None)
        else:
            keep.update(msgspec.msgpack.decode(data, type=Namespace).shas.values())
    steps.drop_values(connection, keep)
