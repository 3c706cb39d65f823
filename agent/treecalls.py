"""What a cell may ask of its branch and its past, on the host: one method per kind of call.

Calls that change the tree or git run one after another, in the order in which the cell asked for them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Annotated, Any

import msgspec

from agent.asked import hash_args
from agent.branching import Branching
from agent.budget import Budget, Grant
from agent.errors import Parked
from agent.explore import Idea, explore
from agent.folding import fold_range
from agent.landing import Effect
from agent.milestones import Milestones
from agent.questions import answer_to
from agent.runtime import in_thread
from agent.scope import Scope
from agent.toolcalls import told_before
from state import steps
from state.records import CallKey

_Step = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class _Commit(msgspec.Struct, frozen=True):
    summary: str
    contribution: str | None = None


class _Branch(msgspec.Struct, frozen=True):
    name: str
    purpose: str


class _Switch(msgspec.Struct, frozen=True):
    name: str


class _Merge(msgspec.Struct, frozen=True):
    name: str
    abandon: bool = False


class _Abandon(msgspec.Struct, frozen=True):
    name: str
    why: str


class _Explore(msgspec.Struct, frozen=True):
    ideas: list[tuple[str, str, str]]
    limits: Grant | None = None


class _Rewind(msgspec.Struct, frozen=True):
    to: _Step


class _Fold(msgspec.Struct, frozen=True):
    first: _Step
    last: _Step | None
    summary: str


class _Ask(msgspec.Struct, frozen=True):
    question: str


#: The arguments of each kind of call, checked as they come out of the sandbox.
ARGUMENTS: dict[str, Any] = {
    "commit": _Commit,
    "branch": _Branch,
    "switch": _Switch,
    "merge": _Merge,
    "abandon": _Abandon,
    "explore": _Explore,
    "rewind": _Rewind,
    "fold": _Fold,
    "ask": _Ask,
}


class TreeCalls:
    """Serves these calls for one run of one cell; `key` gives the next call of a kind its key."""

    def __init__(
        self,
        scope: Scope,
        step: int,
        milestones: Milestones | None,
        key: Callable[[str, str], CallKey],
        children: Budget,
    ) -> None:
        self._scope, self._rt, self._step, self._key = scope, scope.runtime, step, key
        self._milestones, self._children = milestones, children
        self._branching = Branching(scope, milestones) if milestones is not None else None
        self._before: Future[Any] | None = None
        #: the step to whose end files and variables go back once the cell has ended
        self.rewind_to: int | None = None

    def serve(self, kind: str, args: Any) -> Future[Any]:
        """Begin to answer a call."""
        key = self._key(kind, hash_args(*msgspec.structs.astuple(args)))
        answer: Callable[[CallKey, Any], Any] = getattr(self, f"_{kind}")

        before = self._before

        def serve() -> Any:
            if before is not None:
                wait([before])
            return answer(key, args)

        self._before = in_thread(serve, kind)
        return self._before

    def _commit(self, key: CallKey, args: _Commit) -> dict[str, Any]:
        if self._milestones is None:
            return _failed("COMMIT: only a rollout on a branch commits; return what you found as your answer")
        return _told(self._milestones.commit(key, args.summary, args.contribution or ""))

    def _branch(self, key: CallKey, args: _Branch) -> dict[str, Any]:
        return _told(self._branches.branch(key, args.name, args.purpose))

    def _switch(self, key: CallKey, args: _Switch) -> dict[str, Any]:
        return _told(self._branches.switch(key, args.name))

    def _merge(self, key: CallKey, args: _Merge) -> dict[str, Any]:
        return _told(self._branches.merge(key, args.name, args.abandon))

    def _abandon(self, key: CallKey, args: _Abandon) -> dict[str, Any]:
        return _told(self._branches.abandon(key, args.name, args.why))

    def _explore(self, key: CallKey, args: _Explore) -> Any:
        """Run children on branches of their own; their work is in git when this returns."""
        depth = self._rt.task.limits.depth
        if self._scope.rollout.depth + 1 > depth:
            return _failed(
                f"explore: limits.depth is {depth}, so no child may be started here; BRANCH and work yourself"
            )
        ideas = [Idea(*idea) for idea in args.ideas]
        return explore(self._scope, self._branches, key, ideas, self._children, args.limits)

    def _rewind(self, key: CallKey, args: _Rewind) -> dict[str, Any]:
        """Note that the cell wants to go back; it happens when the cell has ended."""
        row = self._rt.journal.read(lambda c: steps.read_step(c, self._scope.rollout.id, args.to))
        problem = ""
        if args.to >= self._step:
            problem = f"REWIND({args.to}): this is step {self._step}; name an earlier one"
        elif row is None or row.state != "done" or row.tree is None:
            problem = f"REWIND({args.to}): that step's checkpoint is not kept any more; steps near it may be"
        if problem := told_before(self._rt, key, problem):
            return _failed(problem)
        self.rewind_to = args.to
        return {"ok": True, "value": f"after this cell, files and variables go back to the end of step {args.to}"}

    def _fold(self, key: CallKey, args: _Fold) -> dict[str, Any]:
        """Fold a range of steps; what came of it is told again when the cell runs again."""
        last = self._step - 1 if args.last is None else args.last
        rollout = self._scope.rollout.id
        try:
            told = fold_range(self._rt, rollout, self._step, args.first, last, args.summary)
        except ValueError as error:
            told = f"!fold: {error}"
        told = told_before(self._rt, key, told)
        return _failed(told[1:]) if told.startswith("!") else {"ok": True, "value": told}

    def _ask(self, key: CallKey, args: _Ask) -> dict[str, Any]:
        """Give the user's answer; without one the run is parked, and this cell runs again when there is one."""
        if self._scope.rollout.depth > 0:
            return _failed("ask_user: only the run's root asks the user; put the question in your answer")
        answer = answer_to(self._rt, key, args.question)
        if answer is None:
            raise Parked(args.question)
        return {"ok": True, "value": answer}

    @property
    def _branches(self) -> Branching:
        assert self._branching is not None, "the scaffold of a rollout without a tree has no branch calls"
        return self._branching


def _told(effect: Effect) -> dict[str, Any]:
    return {"ok": effect.ok, "value": effect.text}


def _failed(message: str) -> dict[str, Any]:
    return {"ok": False, "value": message}
