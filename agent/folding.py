"""Fold finished steps into short summaries, so that history costs O(log steps) of the prompt.

A fold covers a contiguous range that ends before the kept steps. Fine folds are merged into coarser ones as they age:
never more than `FANOUT` of a level are shown. A fold is a journaled call like any other; what fails validation leaves
the raw steps in place, and after two failures in a row a plain digest takes over and an event says so. Nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from ulid import ULID

from agent.asked import Asked, hash_args
from agent.calls import CallBroker
from agent.models.base import Message, ModelRequest, ModelSpec
from agent.prompt import render_step
from agent.prompts import prompt
from agent.runtime import Runtime
from agent.testing import crash_point
from agent.tokens import count_tokens, cut
from state import runs, steps
from state.records import CallKey, FoldRecord

BLOCK = 5
FANOUT = 4
SUMMARY_TOKENS = 160
_RECORD_TOKENS = 2400  # what a fold's request shows of its range


class Due(msgspec.Struct, frozen=True):
    """A fold that should be made: its range, its level, and the finer folds that it replaces."""

    first: int
    last: int
    level: int
    merged: tuple[str, ...]


def due(folds: Sequence[FoldRecord], last_done: int, keep: int) -> Due | None:
    """Say what is to be folded next, or None: first a merge of old folds, then the oldest unfolded block."""
    for level in sorted({f.level for f in folds}):
        same = [f for f in folds if f.level == level]
        if len(same) > FANOUT:
            group = same[: FANOUT - 1]
            return Due(group[0].first, group[-1].last, level + 1, tuple(f.id for f in group))
    first = folds[-1].last + 1 if folds else 1
    if last_done - keep - first + 1 >= BLOCK:
        return Due(first, first + BLOCK - 1, 0, ())
    return None


def fold_when_due(runtime: Runtime, broker: CallBroker, rollout: str, step: int) -> FoldRecord | None:
    """Make the next fold of a rollout, if one is due after `step`.

    Returns the fold, or None when nothing was due or the summary was not fit to be used.
    """
    keep = runtime.task.fold.keep_steps
    if step - keep < BLOCK:
        return None
    folds = runtime.journal.read(lambda c: steps.live_folds(c, rollout))
    wanted = due(folds, step, keep)
    if wanted is None:
        return None
    if wanted.merged:
        record = "\n\n".join(f"[steps {f.first}-{f.last}]\n{f.summary}" for f in folds if f.id in wanted.merged)
    else:
        rows = runtime.journal.read(lambda c: steps.steps_between(c, rollout, wanted.first, wanted.last))
        record = "\n\n".join(cut(render_step(row), _RECORD_TOKENS // BLOCK) for row in rows)
    failures = _failures_in_a_row(runtime, rollout)
    spec = runtime.task.models.fold if failures < 2 else ModelSpec("offline/digest")
    summary, call_id = _summarise(
        broker,
        spec,
        CallKey(rollout, step, "fold", hash_args(wanted.first, wanted.last, spec.model), 0),
        record,
    )
    problem = problem_of(summary, record)
    if problem and failures < 2:
        runtime.journal.write(
            lambda c: runs.add_event(
                c,
                runtime.clock(),
                "fold_failed",
                rollout,
                step,
                first=wanted.first,
                last=wanted.last,
                why=problem,
            )
        )
        runtime.tell("fold_failed", why=problem, first=wanted.first, last=wanted.last)
        return None
    if problem:
        summary = cut(record, SUMMARY_TOKENS)
    made = FoldRecord(
        id=str(ULID()),
        rollout=rollout,
        first=wanted.first,
        last=wanted.last,
        level=wanted.level,
        summary=cut(summary.strip(), SUMMARY_TOKENS),
        source=spec.model,
        tokens=count_tokens(summary),
        raw_tokens=count_tokens(record),
        created_at=runtime.clock(),
        call_id=call_id,
    )

    def store(connection: object) -> None:
        steps.add_fold(connection, made, list(wanted.merged))  # type: ignore[arg-type]
        runs.add_event(connection, made.created_at, "folded", rollout, step, first=made.first, last=made.last)  # type: ignore[arg-type]

    runtime.journal.write(store)
    crash_point("fold.done")
    runtime.tell("fold", first=made.first, last=made.last, level=made.level)
    return made


def problem_of(summary: str, record: str) -> str:
    """Say why a summary cannot stand for its record; an empty string when it can."""
    bare = summary.strip()
    if not bare or bare.lower() in ("null", "none", "n/a", "{}", "[]", '""'):
        return "it is empty"
    if bare.lower().startswith(("error:", "traceback", "<!doctype", "<html", '{"error"')):
        return "it is an error text"
    if count_tokens(bare) >= count_tokens(record):
        return "it is not shorter than the record"
    return ""


def _summarise(broker: CallBroker, spec: ModelSpec, key: CallKey, record: str) -> tuple[str, str]:
    request = ModelRequest(
        (Message("system", prompt("fold").format(tokens=SUMMARY_TOKENS)), Message("user", record)),
        max_tokens=SUMMARY_TOKENS * 2,
    )
    settled = broker.ask([Asked(key, spec, request)])[0]
    return (settled.text if settled.ok else f"Error: {settled.text}"), settled.call_id


def _failures_in_a_row(runtime: Runtime, rollout: str) -> int:
    def read(connection: object) -> int:
        count = 0
        for event in reversed(runs.events(connection, rollout=rollout)):  # type: ignore[arg-type]
            if event.kind == "folded":
                break
            count += event.kind == "fold_failed"
        return count

    return runtime.journal.read(read)
