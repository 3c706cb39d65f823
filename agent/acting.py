"""A rollout's REPL over its life: started, restored, asked to run cells, brought back when it dies, and checkpointed.

A cell is a transaction over local state: when the REPL or the daemon dies while it runs, tree and namespace go back to the
checkpoint before it (what was there is saved under refs/rlm-agent/rescue first), and the cell is run again against its
recorded calls. A cell that ends its own process is told so and not run again.
"""

from __future__ import annotations

import json
import shutil
from concurrent.futures import Future, wait
from typing import Any

import msgspec
from ulid import ULID

from agent.acceptance import paths_shown, problems_of
from agent.cellcalls import CellCalls
from agent.checkpoints import Checkpoints
from agent.errors import ReplDied
from agent.milestones import Milestones
from agent.places import describe, empty_folder, init_frame, launcher_for
from agent.repl.cells import parse_cells
from agent.repl.host import Repl
from agent.repl.sandbox import launch_worker
from agent.runtime import in_thread
from agent.scope import Scope
from agent.testing import crash_point
from state import runs, steps
from state.records import StepRecord

_MAX_DEATHS = 4  # times that one step's REPL may be ended from outside before the model is told

_NOTES = 8  # children of one cell that its observation names


class CellRun(msgspec.Struct, frozen=True):
    """What the loop needs to know of a cell: the observation, whether it failed, and the answer if it is ready and accepted."""

    observation: str
    failed: bool
    answer: str | None
    seconds: float


class Acting:
    """The acting half of a loop."""

    def __init__(self, scope: Scope, milestones: Milestones | None) -> None:
        self._scope, self._rt, self._rollout, self._milestones = scope, scope.runtime, scope.rollout, milestones
        self._checkpoints = Checkpoints(scope)
        self._launcher = launcher_for(scope)
        self._init = init_frame(scope)
        self._repl: Repl | None = None
        self._coming: Future[list[str]] | None = None
        self._variables: list[tuple[str, str, int]] = []
        self._lost: list[str] = []
        #: the current answer, also when it is not ready
        self.partial = ""

    def begin(self, before: StepRecord | None, rollback: bool) -> list[str]:
        """Start the REPL at the end of step `before`, after a roll-back of the tree if asked; returns events to tell.

        One that has nothing to restore comes up while the model is asked.
        """
        if rollback:
            self._roll_back(before)
        if before is None or before.seq > 0 or before.base is not None:
            return self._start(before)
        self._coming = in_thread(lambda: self._start(before), "repl-start")
        return []

    def start_step(self, now: float) -> StepRecord:
        """Make the checkpoint that everything starts from: step 0."""
        step = StepRecord(self._rollout.id, 0, "planned", now)
        self._rt.journal.write(
            lambda c: steps.begin_step(c, step) if steps.read_step(c, self._rollout.id, 0) is None else None
        )
        return self.checkpoint(step, None, 0.0)

    def run_cell(self, step: StepRecord, before: StepRecord, blocks: list[str]) -> CellRun:
        """Run the step's cell and say what it showed."""
        limits = self._rt.task.limits
        while True:
            calls = CellCalls(self._scope, step.seq, self._milestones)
            try:
                left = self._scope.budget.seconds_left()
                most = limits.cell_timeout if left is None else max(0.05, min(limits.cell_timeout, left))
                result = self.repl.run(blocks, step.seq, calls, most, limits.output_chars)
                break
            except ReplDied as died:
                self._scope.budget.check_cancelled()
                if told := self.revive(step, before, died):
                    return CellRun(told, True, None, 0.0)
        self._variables, self.partial = result.variables, result.answer
        shown = result.output.rstrip() or "(the cell printed nothing)"
        if calls.tree.rewind_to is not None:
            shown += self._go_back(calls.tree.rewind_to)
        if result.interrupted:
            shown += (
                f"\n[interrupted: the cell computed for more than {limits.cell_timeout:g} s (limits.cell_timeout); variables set "
                "so far are kept. Do it in smaller pieces]"
            )
        shown += "".join("\n" + note for note in [*calls.notes[:_NOTES], *_more(calls.notes)])
        if not (result.ready and result.ok):
            return CellRun(shown, not result.ok, None, result.seconds)
        accepted, told = self.accept(result.answer, step.seq)
        if told:
            shown += "\n" + told
        return CellRun(shown, not accepted, result.answer if accepted else None, result.seconds)

    def accept(self, answer: str, seq: int) -> tuple[bool, str]:
        """Check a finished answer against the task's `accept`; returns (accepted, what the model is told)."""
        self.partial = answer
        if self._rollout.depth > 0 or not self._scope.has_tree or not self._rt.task.accept:
            return True, ""
        crash_point("run.accepting")
        self._rt.tell("accepting")
        launcher = launcher_for(self._scope, also=paths_shown(self._rt.task))
        problems = problems_of(self._rt.task, self._scope.workspace.path, launcher)
        if not problems:
            return True, "[accepted: all checks of the task hold]"
        self.repl.withdraw_answer()
        self._rt.journal.write(
            lambda c: runs.add_event(c, self._rt.clock(), "not_accepted", self._rollout.id, seq, problems=problems)
        )
        told = "\n".join(problems)
        return False, f"[not accepted yet; mend this, then set the answer ready again]\n{told}"

    def checkpoint(self, step: StepRecord, before: StepRecord | None, compute_s: float, **fields: Any) -> StepRecord:
        """Write the step `done` with its checkpoint; raises `ReplDied` when the namespace cannot be had."""
        fields |= {"variables": json.dumps(self._variables[:60]), "partial": self.partial or None}
        return self._checkpoints.save(self.repl, step, before, compute_s, **fields)

    def revive(self, step: StepRecord, before: StepRecord, died: ReplDied) -> str:
        """Bring REPL and tree back to the checkpoint before `step`.

        Returns an empty string when the cell should be run again, else what the model is told.
        """

        def note(connection: Any) -> int:
            runs.add_event(connection, self._rt.clock(), "repl_died", self._rollout.id, step.seq, why=died.message)
            return len(runs.events(connection, "repl_died", self._rollout.id, step.seq))

        deaths = self._rt.journal.write(note)
        self._rt.tell("repl_died", step=step.seq, why=died.message)
        self._coming = None  # also when that is what failed
        self._roll_back(before)
        self._lost = self._start(before)
        if died.signalled and deaths <= _MAX_DEATHS:
            return ""
        return f"{died.message}. Variables and files are back at the state before this step; its calls are kept."

    def _go_back(self, seq: int) -> str:
        """Put files and variables back to the end of step `seq`; the step that asked for it then ends like that."""
        row = self._rt.journal.read(lambda c: steps.read_step(c, self._rollout.id, seq))
        assert row is not None
        assert row.tree is not None, "the call checked that"
        self._put_back(row, seq)
        lost = self._start(row)
        return "".join(f"\n[{line}]" for line in (f"files and variables are as they were after step {seq}", *lost))

    def read(self, name: str) -> str | None:
        """Return a variable as text, or None where there is none."""
        return self.repl.read(name)

    def lost(self) -> list[str]:
        """Name, once, what a REPL that was brought back has lost."""
        lost, self._lost = self._lost, []
        return lost

    def describe_context(self) -> str:
        """Return one line about the size of the context, and about earlier ones where there are any."""
        shown, many = describe(self._init["context"]), len(self._init["contexts"])
        if many < 2:
            return shown
        return f"{shown}; earlier completions left context_0 to context_{many - 2} and history_0 to history_{many - 2}"

    @property
    def repl(self) -> Repl:
        """The running REPL; waits for one that is coming up, and raises what kept it from it."""
        if self._coming is not None:
            self._coming.result()
        assert self._repl is not None, "begin() starts it"
        return self._repl

    def close(self) -> None:
        """End the REPL."""
        if self._coming is not None:
            wait([self._coming])
        self._end()

    def leave(self, over: bool) -> None:
        """End the REPL for good; a rollout that is `over` needs its scratch folder no more."""
        if self._scope.has_tree:
            return self.close()

        def clear() -> None:
            self.close()
            if over:
                shutil.rmtree(self._launcher.spec.writable, ignore_errors=True)

        # Nobody else uses the scratch folder, so nobody need wait for the kernel to take the REPL apart.
        return self._rt.leave(clear)

    def _end(self) -> None:
        if self._repl is not None:
            self._repl.kill()

    def _start(self, before: StepRecord | None) -> list[str]:
        """Start a fresh REPL and restore the namespace as it was after `before`."""
        for attempt in (1, 2, 3):
            try:
                lost = self._restore(self._fresh_repl(), before)
                break
            except ReplDied as died:
                if attempt == 3 and (died.signalled or before is None):
                    raise
                if attempt == 3:  # restoring ends the REPL each time: better without variables than never again
                    lost = self._start_empty(before, died)
        if before is not None:
            self._variables = [tuple(v) for v in json.loads(before.variables or "[]")]
            self.partial = before.partial or ""
        if not lost:
            return []
        named = "; ".join(f"{name} ({why})" for name, why in sorted(lost.items()))
        return [f"The REPL was restarted; these variables could not be restored: {named}."]

    def _fresh_repl(self) -> Repl:
        """Put a REPL with nothing but its scaffold in the place of whatever is there."""
        self._end()
        repls = self._scope.place.repls
        spawn = repls.start if repls is not None else launch_worker
        self._repl = Repl(self._launcher, self._launcher.spec.writable, self._rt.private / "repl.log", spawn)
        self._repl.init(self._init)
        return self._repl

    def _start_empty(self, before: StepRecord | None, died: ReplDied) -> dict[str, str]:
        """Start a REPL without variables, and return all of them as lost."""
        self._fresh_repl()
        names = [str(row[0]) for row in json.loads((before and before.variables) or "[]")]
        return dict.fromkeys(names or ["all variables"], f"restoring it ended the REPL: {died.message}")

    def _restore(self, repl: Repl, before: StepRecord | None) -> dict[str, str]:
        replayed = before is not None and before.base is not None and before.base < before.seq
        tree = None
        if replayed and before is not None and before.tree is not None and self._scope.has_tree:
            tree = self._scope.workspace.snapshot()
            base = self._rt.journal.read(lambda c: _tree_of(c, self._rollout.id, before.base))
            self._scope.workspace.restore(base, str(ULID()))
        lost = self._checkpoints.restore_namespace(repl, before, lambda row: self._replay(repl, row))
        if tree is not None:
            self._scope.workspace.restore(tree, str(ULID()))
        return lost

    def _replay(self, repl: Repl, row: StepRecord) -> None:
        blocks = parse_cells(row.reply or "")
        if blocks:
            limits, calls = self._rt.task.limits, CellCalls(self._scope, row.seq, self._milestones)
            repl.run(blocks, row.seq, calls, limits.cell_timeout * 2, limits.output_chars)

    def _roll_back(self, before: StepRecord | None) -> None:
        if before is not None and before.seq == 0 and not self._scope.has_tree:
            self.close()
            empty_folder(self._launcher.spec.writable)  # as it was before the first step; later ones are not kept apart
        if before is None or before.tree is None:
            return
        self.close()
        self._put_back(before, before.seq + 1)

    def _put_back(self, row: StepRecord, seq: int) -> None:
        """Make branch and files what they were at the end of a step; what was there is saved first, and noted at step `seq`."""
        workspace = self._scope.workspace
        restored = workspace.restore(row.tree or "", str(ULID()))
        if row.branch is not None and workspace.read_head() != row.branch:
            workspace.switch_head(row.branch)
            if at := workspace.read_ref(f"refs/heads/{row.branch}"):
                workspace.place_branch_files(at)
            workspace.sync_index()
        if restored.rescue is None:
            return
        self._rt.journal.write(
            lambda c: runs.add_event(c, self._rt.clock(), "rescued", self._rollout.id, seq, ref=restored.rescue)
        )
        self._rt.tell("rescued", files=len(restored.changed), ref=restored.rescue)


def _more(notes: list[str]) -> list[str]:
    return [f"[and {len(notes) - _NOTES} children more]"] if len(notes) > _NOTES else []


def _tree_of(connection: Any, rollout: str, seq: int | None) -> str:
    row = steps.read_step(connection, rollout, seq or 0)
    if row is None or row.tree is None:
        raise ValueError(f"step {seq} of rollout {rollout} has no checkpoint")
    return row.tree
