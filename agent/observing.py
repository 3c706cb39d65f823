"""The observing half of a loop: gather from journal and workspace what the next prompt shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from agent.asked import Settled
from agent.folding import live_folds, uncovered
from agent.models.costmap import context_window
from agent.places import short_text
from agent.prompt import Material, Prompt, assemble
from agent.prompts import prompt
from agent.scope import Scope
from agent.stuck import WINDOW, Signs, signs_in, told
from state import branches, runs, steps
from state.records import StepRecord
from workspaces import gcc

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Standing(msgspec.Struct, frozen=True):
    """How a rollout goes: answers that were refused, failed steps in a row, signs of going in circles; and its newest steps."""

    refused: int
    errors: int
    signs: Signs
    rows: list[StepRecord]


class Observing:
    """What one rollout sees: its prompts, and how it has been going."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._rt, self._rollout = scope, scope.runtime, scope.rollout
        self._short = short_text(scope.context, scope.rollout.prompt)
        self._count = getattr(self._rt.models.get(scope.spec), "count_tokens", None)
        self._standing: tuple[int, Standing] | None = None
        self._fresh: int | None = None  # the step of the last stop, before this process

    def prompt(self, seq: int, context: str, events: list[str], said: Sequence[str] = ()) -> Prompt:
        """Assemble the prompt of step `seq`; `context` is a line about the material, `events` and `said` what happened since."""
        keep, standing = self._rt.task.fold.keep_steps, self.standing(seq - 1)

        folds = live_folds(self._rt, self._rollout.id)
        raw = uncovered(folds, seq - 1)
        first = max(raw[0][0], seq - 3 * keep) if raw else seq
        rows = [row for row in standing.rows if first <= row.seq]
        if first < seq and (not rows or rows[0].seq > first):
            rows = self._rt.journal.read(lambda c: steps.recent(c, self._rollout.id, first, seq - 1))
        shown = [row for row in rows if any(a <= row.seq <= b for a, b in raw)]
        last = shown[-1] if shown else self._rt.journal.read(lambda c: steps.read_step(c, self._rollout.id, seq - 1))
        return assemble(
            Material(
                system=self._scope.system or prompt(self._role()),
                goal=self._rollout.prompt,
                step=seq,
                steps=shown,
                folds=folds,
                roadmap=self._roadmap(),
                material=self._short,
                tools=self._rt.tools.lines(self._rollout.depth),
                environment=self._environment(last, seq, context),
                events=events,
                said=said,
                nudge=told(standing.signs),
            ),
            self._rt.task.limits.prompt_tokens,
            self._count,
        )

    def standing(self, last: int) -> Standing:
        """Say how it goes after step `last`, from the journal's newest steps, since the rollout last stopped."""
        if self._standing is None or self._standing[0] != last:
            self._standing = last, self._rt.journal.read(lambda c: self._look(c, last))
        return self._standing[1]

    def _look(self, connection: Connection, last: int) -> Standing:
        rollout = self._rollout.id
        if self._fresh is None:
            self._fresh = runs.last_stop(connection, rollout)
        first = max(1, last - WINDOW + 1, self._fresh + 1)
        rows = steps.recent(connection, rollout, first, last)
        commits = branches.commit_steps(connection, rollout, first - 1) if self._scope.has_tree else []
        errors = next((n for n, row in enumerate(reversed(rows)) if not row.failed), len(rows))
        if errors >= WINDOW:
            errors = steps.errors_in_a_row(connection, rollout, self._fresh)
        refused = runs.count_steps(connection, "not_accepted", rollout, self._fresh) if errors else 0
        return Standing(refused, errors, signs_in(rows, commits), rows)

    def _branch(self) -> str:
        """Say which branch is checked out, and whether a merge into it waits."""
        workspace = self._scope.workspace
        branch = workspace.head().branch
        if not workspace.merge_waits():
            return f"branch: {branch}"
        merge = self._rt.journal.read(lambda c: branches.pending_merge(c, branch))
        return f"branch: {branch}" + (
            f"; a merge of {merge.name} waits for its conflicts to be resolved" if merge else ""
        )

    def _role(self) -> str:
        return "root" if self._scope.has_tree else "ask" if self._rollout.depth == 0 else "child"

    def _roadmap(self) -> str:
        return gcc.read_roadmap(self._scope.workspace.path) if self._scope.has_tree else ""

    def _environment(self, last: StepRecord | None, seq: int, context: str) -> str:
        rows = json.loads(last.variables or "[]") if last else []
        variables = ", ".join(f"{n} ({k}{f', {s}' if s >= 0 else ''})" for n, k, s in rows) or "none yet"
        left = {"steps": self._rt.task.limits.steps - seq, **self._scope.budget.left()}
        window = context_window(self._rt.task.models.sub)
        holds = f"; a sub-call holds about {window:,} tokens" if window else ""
        lines = [
            f"context: {context}{holds}",
            f"variables: {variables}",
            "left: " + ", ".join(f"{v:g} {k}" for k, v in left.items() if v is not None),
        ]
        if self._scope.has_tree:
            lines.insert(0, self._branch())
        return "\n".join(lines)


def empty_reply(settled: Settled | None) -> str:
    """Return what a model is told whose reply had no text."""
    if settled is not None and settled.reasoning.strip():
        return "Your reply was reasoning only, without text. Reply with a short thought and one ```repl block."
    finish = settled.finish if settled is not None else "unknown"
    return f"Your reply was empty (finish reason: {finish}). Reply with a short thought and one ```repl block."
