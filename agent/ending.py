"""When a rollout is over, and what its answer is then: ready, or the best so far.

A rollout that uses up its steps before it has any answer is asked once more, for one in words; a task's run is not, since it goes
on when its limit is raised.
"""

from __future__ import annotations

from agent.acting import Acting
from agent.asked import Asked
from agent.errors import Stopped
from agent.models.base import Message, ModelRequest
from agent.observing import Observing
from agent.outcome import Outcome
from agent.prompts import prompt
from agent.scope import Scope
from state.records import CallKey, StepRecord


class Ending:
    """Looks after each step whether the rollout goes on."""

    def __init__(self, scope: Scope, acting: Acting, observing: Observing) -> None:
        self._scope, self._acting, self._observing = scope, acting, observing

    def after(self, last: StepRecord, events: list[str]) -> Outcome | None:
        """Say how the rollout ended with step `last`, None when it goes on.

        Raises `Stopped` when the run is to stop or what started this rollout has ended, `BudgetSpent` when its time is over.
        """
        if last.answer is not None:
            return Outcome("done", "the answer is ready", last.answer)
        limits, partial = self._scope.runtime.task.limits, self._acting.partial
        if self._scope.runtime.stop.is_set():
            raise Stopped("stopped after the step", "go on with `rlm-agent resume`")
        self._scope.budget.check_cancelled()
        if last.seq >= limits.steps:
            answer = partial or self._last_words(last.seq + 1, events)
            return Outcome("budget", f"limits.steps: {limits.steps} steps are done", answer)
        standing = self._observing.standing(last.seq)
        if standing.refused >= limits.errors:
            return Outcome("gave_up", f"the answer was not accepted {standing.refused} times (limits.errors)", partial)
        if standing.errors >= limits.errors:
            return Outcome("stuck", f"{standing.errors} steps in a row failed (limits.errors)", partial)
        signs = standing.signs
        if signs.level >= 3:
            return Outcome("stuck", f"going round in circles since step {signs.since}: {signs.what}", partial)
        self._scope.budget.check_time()
        return None

    def _last_words(self, seq: int, events: list[str]) -> str:
        """Ask for an answer over the prompt that step `seq` would have had; an empty text when none is to be had."""
        scope = self._scope
        if scope.has_tree or scope.spec.model.startswith("offline/"):  # those answer with cells only
            return ""
        shown = self._observing.prompt(seq, self._acting.describe_context(), events)
        request = ModelRequest((*shown.messages, Message("user", prompt("last_words"))), max_tokens=shown.reserve)
        key = CallKey(scope.rollout.id, seq, "last_words", "", 0)
        settled = scope.broker.ask([Asked(key, scope.spec, request)], scope.budget)[0]
        return settled.text.strip() if settled.ok else ""
