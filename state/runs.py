"""Runs, rollouts and events in the journal. Every function works inside the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from state import schema
from state.records import EventRecord, RolloutRecord, RunRecord
from state.rows import add, many, one

_EVENT = schema.event.c
_NEWEST = (
    select(schema.event)
    .where(_EVENT.kind == bindparam("what"), _EVENT.rollout == bindparam("of"))
    .order_by(_EVENT.seq.desc())
    .limit(bindparam("most"))
)


def create_run(connection: Connection, record: RunRecord) -> None:
    """Write the run's only row."""
    add(connection, schema.run, [record])


def read_run(connection: Connection) -> RunRecord | None:
    """Return the run, or None in a journal that has none yet."""
    return one(connection, select(schema.run), RunRecord)


def set_run(connection: Connection, **fields: Any) -> None:
    """Change fields of the run: outcome, reason, answer, goal, task_digest, active_s."""
    connection.execute(update(schema.run).values(**fields))


def add_active(connection: Connection, seconds: float) -> None:
    """Count `seconds` more in which a daemon worked on the run."""
    connection.execute(update(schema.run).values(active_s=schema.run.c.active_s + seconds))


def create_rollout(connection: Connection, record: RolloutRecord) -> None:
    """Write a new rollout."""
    add(connection, schema.rollout, [record])


def root_rollout(connection: Connection) -> RolloutRecord | None:
    """Return the rollout of depth 0, the newest where there are several."""
    c = schema.rollout.c
    return one(connection, select(schema.rollout).where(c.parent.is_(None)).order_by(c.id.desc()), RolloutRecord)


def unfinished_roots(connection: Connection, prompt: str, context: bytes | None) -> list[RolloutRecord]:
    """Return the rollouts of depth 0 with this prompt and context that have not ended, oldest first."""
    c = schema.rollout.c
    same = (c.parent.is_(None), c.outcome.is_(None), c.prompt == prompt, c.context == context)
    return many(connection, select(schema.rollout).where(*same).order_by(c.id), RolloutRecord)


def root_rollouts(connection: Connection) -> list[RolloutRecord]:
    """Return all rollouts of depth 0, oldest first."""
    c = schema.rollout.c
    return many(connection, select(schema.rollout).where(c.parent.is_(None)).order_by(c.id), RolloutRecord)


def set_root_prompt(connection: Connection, prompt: str) -> None:
    """Give the root rollout a changed goal."""
    connection.execute(update(schema.rollout).where(schema.rollout.c.parent.is_(None)).values(prompt=prompt))


def rollout_of_call(connection: Connection, call_id: str) -> RolloutRecord | None:
    """Return the child that a call started, so that a repeated call continues it."""
    return one(connection, select(schema.rollout).where(schema.rollout.c.call_id == call_id), RolloutRecord)


def child_of(connection: Connection, parent: str, step: int, number: int) -> RolloutRecord | None:
    """Return the child with this number that a step of `parent` started, or None."""
    c = schema.rollout.c
    started = select(schema.call.c.id).where(schema.call.c.rollout == parent, schema.call.c.step == step)
    query = select(schema.rollout).where(c.parent == parent, c.number == number, c.call_id.in_(started))
    return one(connection, query, RolloutRecord)


def all_rollouts(connection: Connection) -> list[RolloutRecord]:
    """Return all rollouts, oldest first."""
    return many(connection, select(schema.rollout).order_by(schema.rollout.c.id), RolloutRecord)


def living_branches(connection: Connection) -> list[str]:
    """Return the branches that children work on which have not ended, nor what they hang from."""
    rows = {row.id: row for row in all_rollouts(connection)}

    def lives(row: RolloutRecord | None) -> bool:
        return row is None or (row.outcome is None and lives(rows.get(row.parent or "")))

    return [row.branch for row in rows.values() if row.branch is not None and lives(row)]


def end_rollout(connection: Connection, rollout: str, outcome: str | None, reason: str, answer: str | None) -> None:
    """Write a rollout's outcome; `outcome` None opens it again."""
    connection.execute(
        update(schema.rollout)
        .where(schema.rollout.c.id == rollout)
        .values(outcome=outcome, reason=reason, answer=answer)
    )


def add_event(
    connection: Connection,
    at: float,
    kind: str,
    rollout: str | None = None,
    step: int | None = None,
    /,
    **body: Any,
) -> None:
    """Record something that happened beside steps and calls."""
    connection.execute(insert(schema.event).values(at=at, kind=kind, rollout=rollout, step=step, body=json.dumps(body)))


def events(
    connection: Connection, kind: str | None = None, rollout: str | None = None, step: int | None = None
) -> list[EventRecord]:
    """Return events, oldest first, narrowed by what is given."""
    query = select(schema.event).order_by(schema.event.c.seq)
    for column, wanted in (
        (schema.event.c.kind, kind),
        (schema.event.c.rollout, rollout),
        (schema.event.c.step, step),
    ):
        if wanted is not None:
            query = query.where(column == wanted)
    return many(connection, query, EventRecord)


def last_events(connection: Connection, kinds: Sequence[str], rollout: str, limit: int) -> list[EventRecord]:
    """Return the newest events of these kinds, newest first."""
    found: list[EventRecord] = []
    for kind in kinds:  # one by one, so that the index gives each in order and nothing has to be sorted
        found += many(connection, _NEWEST, EventRecord, what=kind, of=rollout, most=limit)
    return sorted(found, key=lambda event: -event.seq)[:limit]


def events_since(connection: Connection, kinds: Sequence[str], rollout: str, first: int) -> list[EventRecord]:
    """Return the events of these kinds at step `first` and later ones, oldest first."""
    c = schema.event.c
    query = select(schema.event).where(c.kind.in_(kinds), c.rollout == rollout, c.step >= first)
    return many(connection, query.order_by(c.seq), EventRecord)


def count_steps(connection: Connection, kind: str, rollout: str, after: int) -> int:
    """Count the steps of a rollout behind step `after` at which an event of this kind happened."""
    c = schema.event.c
    query = select(func.count(c.step.distinct())).where(c.kind == kind, c.rollout == rollout, c.step > after)
    return int(connection.execute(query).scalar_one())


def last_stop(connection: Connection, rollout: str) -> int:
    """Return the step at which a rollout last ended with an outcome: whoever resumes it gives it a new start there."""
    c = schema.event.c
    query = select(func.max(c.step)).where(c.kind == "outcome", c.rollout == rollout)
    return int(connection.execute(query).scalar() or 0)


def last_activity(connection: Connection) -> float:
    """Return when the journal was last written, in epoch seconds; 0 when never."""
    moments = [
        connection.execute(select(func.max(column))).scalar() or 0.0
        for column in (
            schema.event.c.at,
            schema.step.c.started_at,
            schema.step.c.ended_at,
            schema.call.c.started_at,
            schema.call.c.ended_at,
        )
    ]
    return float(max(moments))
