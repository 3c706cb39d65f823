"""Keep the workspace small while a run goes on for months: pack what is loose, and thin the checkpoints of old steps.

Commits of branches all stay. Of the steps' checkpoints the newest thousand stay, then every tenth, then every hundredth; a
thinned step keeps its place in the journal and can be read in full, it only cannot be gone back to.
"""

from __future__ import annotations

from typing import Any

from agent.checkpoints import steps_ref
from agent.scope import Scope
from agent.testing import crash_point
from state import runs, steps
from state.records import StepRecord
from workspaces.errors import WorkspaceError
from workspaces.upkeep import is_kept, rewrite_chain

_LOOK_EVERY = 50  # steps
_THIN_EVERY = 1_000  # steps


class Upkeep:
    """The upkeep of one rollout's tree."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._rt, self._rollout = scope, scope.runtime, scope.rollout.id

    def after(self, step: StepRecord) -> StepRecord:
        """Do what is due after a step; returns the step, whose checkpoint may have been written anew."""
        if step.seq % _LOOK_EVERY or step.seq == 0:
            return step
        packing = self._scope.workspace.packing
        try:
            if step.seq % _THIN_EVERY == 0 and (thinned := self._thin(step)) is not None:
                packing.start(whole=True)
                return thinned
            if self._scope.rollout.depth == 0 and packing.due():
                packing.start()
        except WorkspaceError as error:
            self._rt.tell("packing_failed", why=error.message)
            facts = {"why": error.message}
            self._rt.journal.write(
                lambda c: runs.add_event(c, self._rt.clock(), "packing_failed", self._rollout, step.seq, **facts)
            )
        return step

    def _thin(self, last: StepRecord) -> StepRecord | None:
        """Thin the checkpoints of old steps; returns `last` with its new commit, or None when nothing was to be thinned."""
        there = self._rt.journal.read(lambda c: steps.checkpointed(c, self._rollout))
        kept = [(seq, commit) for seq, commit in there if seq in (0, last.seq) or is_kept(seq, last.seq)]
        if len(kept) == len(there):
            return None
        workspace, ref = self._scope.workspace, steps_ref(self._rollout)
        made = rewrite_chain(workspace.store, [commit for _, commit in kept])
        gone = sorted({seq for seq, _ in there} - {seq for seq, _ in kept})
        moved = [(seq, new) for (seq, old), new in zip(kept, made, strict=True) if new != old]

        def write(connection: Any) -> None:
            steps.replace_checkpoints(connection, self._rollout, gone, moved)
            steps.set_step(connection, self._rollout, last.seq, ref_pending=0)
            facts = {"dropped": len(gone), "kept": len(kept)}
            runs.add_event(connection, self._rt.clock(), "thinned", self._rollout, last.seq, **facts)

        crash_point("thin.written")
        self._rt.journal.write(write)
        crash_point("thin.done")
        workspace.move_ref(ref, made[-1], last.commit)
        crash_point("thin.ref_moved")
        self._rt.tell("thinned", dropped=len(gone), kept=len(kept))
        step = self._rt.journal.read(lambda c: steps.read_step(c, self._rollout, last.seq))
        assert step is not None
        return step
