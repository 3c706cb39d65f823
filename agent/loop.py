"""The loop: observe, ask, act, record. The same code at every depth; the root is depth 0, a child is started by a call.

A step is `planned` (prompt assembled) → `asked` (request out) → `replied` (paid, settled) → `running` (cell in the REPL) → `done`
(observation and checkpoint), each written to the journal before the next begins. `run` first finds out from the journal
where the rollout stands and goes on there, so there is one path for a fresh start, a resume and a crash.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agent.acting import Acting
from agent.calls import Asked, CallBroker, Settled
from agent.cellcalls import ChildRequest
from agent.children import run_children
from agent.errors import BudgetSpent, ReplDied, Stopped
from agent.folding import fold_when_due
from agent.milestones import Milestones
from agent.models.base import ModelRequest, ModelSpec
from agent.observing import Observing
from agent.outcome import Outcome
from agent.prompt import Prompt
from agent.repl.cells import parse_cells, parse_final
from agent.runtime import Runtime
from agent.testing import crash_point
from state import calls as journal_calls
from state import steps
from state.records import CallKey, RolloutRecord, StepRecord
from state.recovery import plan_step


class Loop:
    """One rollout."""

    def __init__(self, runtime: Runtime, broker: CallBroker, rollout: RolloutRecord, spec: ModelSpec) -> None:
        self._rt, self._broker, self._rollout, self._spec = runtime, broker, rollout, spec
        self._milestones = Milestones(runtime, broker, rollout.id) if rollout.depth == 0 else None
        self._acting = Acting(runtime, broker, rollout, self._milestones, self._children)
        self._observing = Observing(runtime, rollout)
        self._events: list[str] = []

    def run(self) -> Outcome:
        """Work until the rollout ends, and return how.

        Raises `Stopped` and provider errors: then nothing is lost and the same call goes on later.
        """
        try:
            last, step = self._resume()
            while step is not None or (outcome := self._ending(last)) is None:
                last = self._finish(step or self._plan(last), last)
                step = None
            return outcome
        finally:
            self._acting.close()

    def _resume(self) -> tuple[StepRecord, StepRecord | None]:
        """Return the last done step, and the step that is under way, if any. Step 0 is the checkpoint before the first."""
        newest = self._rt.journal.read(lambda c: steps.last_step(c, self._rollout.id))
        if newest is None or (newest.seq == 0 and newest.state != "done"):
            self._acting.begin(None, False)
            return self._acting.start_step(self._rt.clock()), None
        key = self._root_key(newest.seq)
        plan = plan_step(newest, self._rt.journal.read(lambda c: journal_calls.find_call(c, key)))
        before = self._read(plan.seq - 1)
        self._events += self._acting.begin(before, plan.rollback)
        self._rt.tell("resumed", depth=self._rollout.depth, step=plan.seq, action=plan.action)
        return before, newest if plan.action in ("ask", "run", "rerun") else None

    def _ending(self, last: StepRecord) -> Outcome | None:
        """Say whether the rollout is over after `last`."""
        if last.answer is not None:
            return Outcome("done", "the answer is ready", last.answer)
        limits = self._rt.task.limits
        if self._rt.stop.is_set():
            raise Stopped("stopped after the step", "go on with `rlm-agent resume`")
        if last.seq >= limits.steps:
            return Outcome("budget", f"limits.steps: {limits.steps} steps are done", self._acting.partial)
        refused, errors = self._observing.failures()
        if refused >= limits.errors:
            return Outcome(
                "gave_up", f"the answer was not accepted {refused} times (limits.errors)", self._acting.partial
            )
        if errors >= limits.errors:
            return Outcome("stuck", f"{errors} steps in a row failed (limits.errors)", self._acting.partial)
        try:
            self._rt.budget.check_time()
        except BudgetSpent as error:
            return Outcome("budget", error.message, self._acting.partial)
        return None

    def _plan(self, last: StepRecord) -> StepRecord:
        """Fold what is due, assemble the prompt, write the step `planned`, then ask."""
        seq = last.seq + 1
        self._events += self._acting.outside_changes(last)
        fold_when_due(self._rt, self._broker, self._rollout.id, seq)
        if self._milestones is not None:
            self._milestones.commit_folds(seq)
        prompt = self._observing.prompt(seq, self._acting.describe_context(), self._events)
        self._events = []
        step = StepRecord(self._rollout.id, seq, "planned", self._rt.clock(), prompt.hash, prompt.tokens)
        self._rt.journal.write(lambda c: steps.plan_step(c, step))
        crash_point("step.planned")
        self._rt.tell("step", depth=self._rollout.depth, step=seq, prompt_tokens=prompt.tokens)
        return self._ask(step, prompt)

    def _ask(self, step: StepRecord, prompt: Prompt) -> StepRecord:
        """Write the step `asked` and settle its model call."""
        self._set(step.seq, state="asked")
        crash_point("step.asked")
        request = ModelRequest(prompt.messages, max_tokens=prompt.reserve)
        self._broker.ask([Asked(self._root_key(step.seq), self._spec, request)])
        return msgspec.structs.replace(step, state="asked")

    def _finish(self, step: StepRecord, before: StepRecord) -> StepRecord:
        """Take a step from wherever it is to `done`."""
        if step.state == "asked":
            settled = self._broker.settled(self._root_key(step.seq))
            assert settled is not None, "a step is `asked` only with its call settled here"
            self._set(step.seq, state="replied", reply=settled.text, cell="\n\n".join(parse_cells(settled.text)))
            crash_point("step.replied")
            step = self._read(step.seq)
            self._rt.tell("reply", depth=self._rollout.depth, step=step.seq, text=settled.text)
            if problem := _reply_problem(settled):
                return self._record(step, before, problem, failed=True)
        blocks = parse_cells(step.reply or "")
        if not blocks:
            return self._without_cell(step, before)
        if step.state == "replied":
            self._set(step.seq, state="running")
            crash_point("step.running")
        step = self._read(step.seq)
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
        value = self._acting.read(content) if is_name else content
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
            told = self._acting.revive(step, before, died)
            return self._record(step, before, told, failed=True) if told else self._finish(self._read(step.seq), before)
        if self._milestones is not None:
            self._milestones.write_files()
        self._rt.tell("observation", depth=self._rollout.depth, step=step.seq, text=observation, failed=failed)
        return done

    def _children(self, wanted: list[ChildRequest]) -> list[dict[str, Any]]:
        return run_children(self._rt, self._broker, self._rollout, wanted)

    def _root_key(self, seq: int) -> CallKey:
        return CallKey(self._rollout.id, seq, "root", "", 0)

    def _set(self, seq: int, **fields: Any) -> None:
        self._rt.journal.write(lambda c: steps.set_step(c, self._rollout.id, seq, **fields))

    def _read(self, seq: int) -> StepRecord:
        row = self._rt.journal.read(lambda c: steps.read_step(c, self._rollout.id, seq))
        assert row is not None
        return row


def _reply_problem(settled: Settled) -> str:
    if settled.text.strip():
        return ""
    if settled.reasoning.strip():
        return "Your reply was reasoning only, without text. Reply with a short thought and one ```repl block."
    return f"Your reply was empty (finish reason: {settled.finish}). Reply with a short thought and one ```repl block."
