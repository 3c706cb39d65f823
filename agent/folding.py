"""Fold finished steps into short summaries, so that history costs O(log steps) of the prompt.

The oldest block behind the kept steps is folded first; fine folds are merged into coarser ones as they age, so that about
`FANOUT` of a level are shown. A fold is a journaled call like any other; what fails validation leaves the raw steps in place, and
after two failures in a row a plain digest takes over, the model being tried again ever more rarely. Nothing is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from ulid import ULID

from agent.asked import Asked, hash_args
from agent.calls import CallBroker
from agent.foldtext import problem_of, with_marked
from agent.models.base import Message, ModelRequest, ModelSpec
from agent.prompt import render_step
from agent.prompts import prompt
from agent.runtime import Runtime
from agent.testing import crash_point
from agent.tokens import count_tokens, cut
from state import runs, steps
from state.records import CallKey, FoldRecord, StepRecord

BLOCK = 5
FANOUT = 4
SUMMARY_TOKENS = 160
_RECORD_TOKENS = 2400  # what a fold's request shows of its range
_DIGEST = "offline/digest"
_RAREST = 32  # blocks between two tries of a fold model that keeps failing


class Due(msgspec.Struct, frozen=True):
    """A fold that should be made: its range, its level, and the finer folds that it replaces."""

    first: int
    last: int
    level: int
    merged: tuple[str, ...]


def due(folds: Sequence[FoldRecord], last_done: int, keep: int) -> Due | None:
    """Say what is to be folded next, or None: first a merge of old folds, then the oldest unfolded block."""
    for level in sorted({f.level for f in folds}):
        if sum(f.level == level for f in folds) > FANOUT:
            return _merge_of(folds, level)
    for first, last in uncovered(folds, last_done):
        between = any(f.first > last for f in folds)  # a gap that a fold of the model's own left
        if last - (0 if between else keep) - first + 1 >= BLOCK:
            return Due(first, first + BLOCK - 1, 0, ())
        if between and last <= last_done - keep:
            return Due(first, last, 0, ())
    return None


def uncovered(folds: Sequence[FoldRecord], last: int) -> list[tuple[int, int]]:
    """Return the ranges of steps up to `last` that no fold covers, oldest first."""
    ranges, at = [], 1
    for fold in folds:
        if fold.first > at:
            ranges.append((at, fold.first - 1))
        at = max(at, fold.last + 1)
    return [*ranges, (at, last)] if at <= last else ranges


def live_folds(runtime: Runtime, rollout: str) -> list[FoldRecord]:
    """Return the folds of a rollout that are shown now, oldest range first; remembered until one is made."""
    if rollout not in runtime.folds:
        runtime.folds[rollout] = runtime.journal.read(lambda c: steps.live_folds(c, rollout))
    return runtime.folds[rollout]


def fold_when_due(runtime: Runtime, broker: CallBroker, rollout: str, step: int) -> FoldRecord | None:
    """Make the next fold of a rollout, if one is due after `step`.

    Returns the fold, or None when nothing was due or the summary was not fit to be used.
    """
    if step - runtime.task.fold.keep_steps < BLOCK:
        return None
    folds = live_folds(runtime, rollout)
    wanted = due(folds, step, runtime.task.fold.keep_steps)
    if wanted is None:
        return None
    record = _record_of(runtime, rollout, wanted, folds)
    spec = _model_to_ask(runtime, rollout)
    key = CallKey(rollout, step, "fold", hash_args(wanted.first, wanted.last, spec.model), 0)
    summary, call_id = _summarise(broker, spec, key, record)
    problem = problem_of(summary, record)
    if problem and spec.model != _DIGEST:
        facts = {"first": wanted.first, "last": wanted.last, "why": problem}
        runtime.journal.write(lambda c: runs.add_event(c, runtime.clock(), "fold_failed", rollout, step, **facts))
        runtime.tell("fold_failed", **facts)
        return None
    text = with_marked(cut(record, SUMMARY_TOKENS) if problem else summary, record, SUMMARY_TOKENS)
    made = _fold(runtime, rollout, wanted, text, spec.model, count_tokens(record), call_id)
    _store(runtime, made, wanted.merged, step)
    crash_point("fold.done")
    return made


def fold_range(runtime: Runtime, rollout: str, step: int, first: int, last: int, summary: str) -> str:
    """Fold steps first..last, all before `step`, under a summary that the model gives, and return what it is told.

    Raises ValueError, naming what can be folded, when the range ends too late, cuts a fold in two, or the summary is no summary.
    """
    folds = live_folds(runtime, rollout)
    told = f"steps {first} to {last} are shown as your summary from now on"
    if any((f.first, f.last, f.source) == (first, last, "model") for f in folds):
        return told  # this cell runs again
    if not 1 <= first <= last < step:
        raise ValueError(f"steps {first} to {last}: a range lies between 1 and {step - 1}, the step before this one")
    cut_in_two = [f for f in folds if f.first < first <= f.last or f.first <= last < f.last]
    if cut_in_two:
        blocks = ", ".join(f"{f.first}-{f.last}" for f in cut_in_two)
        raise ValueError(f"steps {first} to {last} cut the folds {blocks} in two; take them whole or leave them out")
    inside = [f for f in folds if first <= f.first and f.last <= last]
    record = _record_of(runtime, rollout, Due(first, last, 0, tuple(f.id for f in inside)), folds)
    if problem := problem_of(summary, record):
        raise ValueError(f"this summary cannot stand for steps {first} to {last}: {problem}")
    _store_whole(
        runtime,
        rollout,
        step,
        Due(first, last, _level(first, last), tuple(f.id for f in inside)),
        summary,
        record,
        "model",
    )
    return told


def fold_branch(runtime: Runtime, rollout: str, step: int, first: int, last: int, summary: str) -> None:
    """Fold what this rollout did on a branch that has ended, under the branch's own summary: no model is asked.

    A fold that reaches over an end of the range keeps its steps.
    """
    folds = live_folds(runtime, rollout)
    for fold in folds:
        if fold.first < first <= fold.last:
            first = fold.last + 1
        if fold.first <= last < fold.last:
            last = fold.first - 1
    inside = [f for f in folds if first <= f.first and f.last <= last]
    if last < first or any((f.first, f.last) == (first, last) for f in inside):
        return
    wanted = Due(first, last, _level(first, last), tuple(f.id for f in inside))
    record = _record_of(runtime, rollout, wanted, folds)
    _store_whole(runtime, rollout, step, wanted, summary, record, "branch")


def _merge_of(folds: Sequence[FoldRecord], level: int) -> Due:
    """Merge the oldest neighbours that are as fine as `level`, or where there are none, one of them into what is older."""
    for size in (FANOUT - 1, 2):
        for at in range(len(folds) - size + 1):
            group = folds[at : at + size]
            whole = all(a.last + 1 == b.first for a, b in pairwise(group))
            if whole and all(f.level <= level for f in group):
                coarser = level + 1 if size == FANOUT - 1 else max(level, _level(group[0].first, group[-1].last))
                return Due(group[0].first, group[-1].last, coarser, tuple(f.id for f in group))
    at = max(1, next(i for i, f in enumerate(folds) if f.level == level))
    group = folds[at - 1 : at + 1]
    return Due(group[0].first, group[-1].last, max(f.level for f in group), tuple(f.id for f in group))


def _level(first: int, last: int) -> int:
    """Return the level of a fold of this range, as if it had grown by merging."""
    level, covers = 0, BLOCK
    while covers * (FANOUT - 1) <= last - first + 1:
        level, covers = level + 1, covers * (FANOUT - 1)
    return level


def _record_of(runtime: Runtime, rollout: str, wanted: Due, folds: Sequence[FoldRecord]) -> str:
    """Return the text of what is to be folded: the summaries of finer folds, and steps that no fold covers in full."""
    inside = [f for f in folds if f.id in wanted.merged]
    parts = [(f.first, f"[steps {f.first}-{f.last}]\n{f.summary}") for f in inside]
    for first, last in uncovered(inside, wanted.last):
        first = max(first, wanted.first)
        rows = runtime.journal.read(lambda c, a=first, b=last: steps.steps_between(c, rollout, a, b))  # type: ignore[misc]
        each = max(40, _RECORD_TOKENS // max(BLOCK, len(rows)))
        said = runtime.journal.read(lambda c, a=first: _said(c, rollout, a)) if rows else {}  # type: ignore[misc]
        parts += [(row.seq, cut(_told(row, said), each)) for row in rows]
    return "\n\n".join(text for _, text in sorted(parts))


def _told(row: StepRecord, said: dict[int, list[str]]) -> str:
    """Return a step as a fold reads it, with what a person said before it."""
    heard = "".join(f"[the user said: {text}]\n" for text in said.get(row.seq, ()))
    return heard + render_step(row)


def _said(connection: Any, rollout: str, first: int) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for event in runs.events_since(connection, ("said", "answered"), rollout, first):
        found.setdefault(event.step or 0, []).append(str(json.loads(event.body)["text"]))
    return found


def _model_to_ask(runtime: Runtime, rollout: str) -> ModelSpec:
    """Return the fold model; a digest where it has failed lately, the longer the more often it did."""
    newest = runtime.journal.read(lambda c: runs.last_events(c, ("folded", "fold_failed"), rollout, 2 * _RAREST))
    failures = digests = 0
    for event in newest:
        if event.kind == "fold_failed":
            failures += 1
        elif json.loads(event.body).get("source") == _DIGEST:
            digests += failures == 0
        else:
            break
    if failures < 2 or digests >= min(_RAREST, 2 ** (failures - 2)):
        return runtime.task.models.fold
    return ModelSpec(_DIGEST)


def _summarise(broker: CallBroker, spec: ModelSpec, key: CallKey, record: str) -> tuple[str, str]:
    request = ModelRequest(
        (Message("system", prompt("fold").format(tokens=SUMMARY_TOKENS)), Message("user", record)),
        max_tokens=SUMMARY_TOKENS * 2,
    )
    settled = broker.ask([Asked(key, spec, request)])[0]
    return (settled.text if settled.ok else f"Error: {settled.text}"), settled.call_id


def _store_whole(
    runtime: Runtime, rollout: str, step: int, wanted: Due, summary: str, record: str, source: str
) -> None:
    text = with_marked(summary, record, 2 * SUMMARY_TOKENS)
    made = _fold(runtime, rollout, wanted, text, source, count_tokens(record), None)
    _store(runtime, made, wanted.merged, step)


def _fold(
    runtime: Runtime, rollout: str, wanted: Due, text: str, source: str, raw: int, call_id: str | None
) -> FoldRecord:
    return FoldRecord(
        id=str(ULID()),
        rollout=rollout,
        first=wanted.first,
        last=wanted.last,
        level=wanted.level,
        summary=text,
        source=source,
        tokens=count_tokens(text),
        raw_tokens=raw,
        created_at=runtime.clock(),
        call_id=call_id,
    )


def _store(runtime: Runtime, made: FoldRecord, merged: Sequence[str], step: int) -> None:
    facts = {"first": made.first, "last": made.last, "source": made.source}

    def store(connection: Any) -> None:
        steps.add_fold(connection, made, list(merged))
        runs.add_event(connection, made.created_at, "folded", made.rollout, step, **facts)

    runtime.journal.write(store)
    runtime.folds.pop(made.rollout, None)
    runtime.tell("fold", first=made.first, last=made.last, level=made.level)
