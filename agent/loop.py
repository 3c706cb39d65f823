"""The loop: observe, ask, act, record. The same code at every depth; the root is depth 0, a child is started by a call.

A step is `planned` (prompt assembled) → `asked` (request out) → `replied` (paid, settled) → `running` (cell in the REPL) → `done`
(observation and checkpoint), each written to the journal before the next begins. `run` first finds out from the journal
where the rollout stands and goes on there, so there is one path for a fresh start, a resume and a crash.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agent.acting import Acting
from agent.asked import Asked, Settled
from agent.ending import Ending
from agent.errors import BudgetSpent, ReplDied
from agent.folding import fold_when_due
from agent.hearing import Hearing
from agent.milestones import Milestones
from agent.models.base import ModelRequest
from agent.observing import Observing, empty_reply
from agent.outcome import Outcome
from agent.outside import Outside
from agent.prompt import Prompt
from agent.repl.cells import parse_cells, parse_final
from agent.scope import Scope
from agent.testing import crash_point
from agent.upkeep import Upkeep
from state import calls as journal_calls
from state import steps
from state.records import CallKey, StepRecord
from state.recovery import plan_step


class Loop:
    """One rollout."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._rt, self._rollout = scope, scope.runtime, scope.rollout
        self._milestones = Milestones(scope) if scope.has_tree else None
        self._outside = Outside(scope) if scope.has_tree else None
        self._acting = Acting(scope, self._milestones)
        self._observing, self._hearing = Observing(scope), Hearing(scope)
        self._ending = Ending(scope, self._acting, self._observing)
        self._upkeep = Upkeep(scope) if scope.has_tree else None
        self._events: list[str] = []
        self._resumed = True  # a fold of the step under way may have been made before a crash

    def run(self) -> Outcome:
        """Work until the rollout ends, and return how; raises `Stopped` and provider errors: then it goes on later."""
        self._scope.budget.when_cancelled(self._acting.close)
        over = False
        try:
            last, step = self._resume()
            while step is not None or (outcome := self._ending.after(last, self._events)) is None:
                last = self._finish(step or self._plan(last), last)
                step = None
            over = True
            return outcome
        except BudgetSpent as error:
            over = True
            return Outcome("budget", error.message, self._acting.partial)
        finally:
            self._rt.folds.pop(self._rollout.id, None)
            self._acting.leave(over)

    def _resume(self) -> tuple[StepRecord, StepRecord | None]:
        """Return the last done step, and the step that is under way, if any. Step 0 is the checkpoint before the first."""
        newest = self._rt.journal.read(lambda c: steps.last_step(c, self._rollout.id))
        if newest is None or (newest.seq == 0 and newest.state != "done"):
            self._acting.begin(None, False)
            return self._acting.start_step(self._rt.clock()), None
        if newest.answer is not None and newest.state == "done":
            return newest, None  # it has ended; only its outcome is not written yet
        key = self._root_key(newest.seq)
        done = newest.state == "done"
        plan = plan_step(newest, None if done else self._rt.journal.read(lambda c: journal_calls.find_call(c, key)))
        before = newest if done else self._read(plan.seq - 1)
        self._events += self._acting.begin(before, plan.rollback)
        self._tell("resumed", step=plan.seq, action=plan.action)
        return before, newest if plan.action in ("ask", "run", "rerun") else None

    def _plan(self, last: StepRecord) -> StepRecord:
        """Fold what is due, assemble the prompt, write the step `asked` with its call's intent, and have the call settled."""
        seq = last.seq + 1
        self._events += self._acting.lost()
        if self._outside is not None:
            self._events += self._outside.look(last)
        made = fold_when_due(self._rt, self._scope.broker, self._rollout.id, seq)
        if self._milestones is not None and (made or self._resumed):
            self._milestones.commit_folds(seq, self._milestones.folds_at(seq))
        self._resumed = False
        prompt = self._observing.prompt(seq, self._acting.describe_context(), self._events, self._hearing.said(seq))
        self._events = []
        step = StepRecord(self._rollout.id, seq, "asked", self._rt.clock(), prompt.hash, prompt.tokens)
        crash_point("step.planned")
        self._tell("step", step=seq, prompt_tokens=prompt.tokens)
        return self._ask(step, last, prompt)

    def _ask(self, step: StepRecord, last: StepRecord, prompt: Prompt) -> StepRecord:
        """Settle a step's model call: plan and intent in one transaction, reply and outcome in another."""
        replied: list[StepRecord] = []

        def intent(connection: Any) -> None:
            steps.plan_step(connection, step)
            self._hearing.deliver(connection, step.seq)
            if last.ref_pending:
                steps.set_step(connection, last.rollout, last.seq, ref_pending=0)

        request = ModelRequest(prompt.messages, max_tokens=prompt.reserve)
        key = self._root_key(step.seq)
        asked = Asked(key, self._scope.spec, request, intent, lambda c, s: replied.append(self._replied(c, step, s)))
        self._scope.broker.ask([asked], self._scope.budget)
        self._hearing.delivered()
        crash_point("step.replied")
        return replied[0] if replied else step

    def _replied(self, connection: Any, step: StepRecord, settled: Settled) -> StepRecord:
        cell = "\n\n".join(parse_cells(settled.text))
        # With a tree, what a person changes between reply and cell must not be rolled back as the cell's doing.
        state = "running" if cell and not self._scope.has_tree else "replied"
        steps.set_step(connection, self._rollout.id, step.seq, state=state, reply=settled.text, cell=cell)
        return msgspec.structs.replace(step, state=state, reply=settled.text, cell=cell)

    def _finish(self, step: StepRecord, before: StepRecord) -> StepRecord:
        """Take a step from wherever it is to `done`."""
        if step.state == "asked":  # an older version wrote the reply after the outcome
            settled = self._scope.broker.settled(self._root_key(step.seq))
            assert settled is not None, "a step is finished only with its call settled"
            step = self._rt.journal.write(lambda c: self._replied(c, step, settled))
        self._tell("reply", step=step.seq, text=step.reply or "")
        if not (step.reply or "").strip():
            told = empty_reply(self._scope.broker.settled(self._root_key(step.seq)))
            return self._record(step, before, told, failed=True)
        blocks = parse_cells(step.reply or "")
        if not blocks:
            return self._without_cell(step, before)
        if step.state == "replied":
            self._rt.journal.write(lambda c: steps.set_step(c, self._rollout.id, step.seq, state="running"))
            crash_point("step.running")
            step = msgspec.structs.replace(step, state="running")
        result = self._acting.run_cell(step, before, blocks)
        crash_point("cell.finished")
        if result.answer is None and not result.failed and parse_final(step.reply or "") is not None:
            return self._without_cell(step, before, result.observation)
        return self._record(step, before, result.observation, result.failed, result.answer, result.seconds)

    def _without_cell(self, step: StepRecord, before: StepRecord, shown: str = "") -> StepRecord:
        """End with the FINAL that stands outside of a reply's cells, else tell the model what to write."""
        final = parse_final(step.reply or "")
        if final is None:
            told = "Your reply had no ```repl block, so nothing was run. Reply with one; finish with FINAL(text) in it."
            return self._record(step, before, told, failed=True)
        content, is_name = final
        try:
            value = self._acting.read(content) if is_name else content
        except ReplDied as died:
            return self._revived(step, before, died)
        if value is None:
            told = f"{shown}\nFINAL_VAR({content!r}): no such variable.".strip()
            return self._record(step, before, told, failed=True)
        accepted, told = self._acting.accept(value, step.seq)
        return self._record(step, before, f"{shown}\n{told}".strip(), not accepted, value if accepted else None)

    def _record(
        self,
        step: StepRecord,
        before: StepRecord,
        observation: str,
        failed: bool,
        answer: str | None = None,
        seconds: float = 0.0,
    ) -> StepRecord:
        """Write the step `done` with its checkpoint, and its line in log.md."""
        try:
            done = self._acting.checkpoint(
                step, before, seconds, observation=observation, failed=int(failed), answer=answer
            )
        except ReplDied as died:
            return self._revived(step, before, died)
        if self._milestones is not None:
            self._milestones.files.write()
        self._tell("observation", step=step.seq, text=observation, failed=failed)
        return done if self._upkeep is None else self._upkeep.after(done)

    def _revived(self, step: StepRecord, before: StepRecord, died: ReplDied) -> StepRecord:
        """Finish a step whose REPL died after its cell: run the cell again, or tell the model."""
        told = self._acting.revive(step, before, died)
        return self._record(step, before, told, failed=True) if told else self._finish(self._read(step.seq), before)

    def _tell(self, kind: str, **facts: Any) -> None:
        self._rt.tell(kind, rollout=self._rollout.id, depth=self._rollout.depth, **facts)

    def _root_key(self, seq: int) -> CallKey:
        return CallKey(self._rollout.id, seq, "root", "", 0)

    def _read(self, seq: int) -> StepRecord:
        row = self._rt.journal.read(lambda c: steps.read_step(c, self._rollout.id, seq))
        assert row is not None
        return row
