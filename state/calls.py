"""Calls in the journal: the intent before the effect, the outcome after, each settled exactly once."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, and_, case, func, insert, select, update

from state import schema
from state.errors import JournalError
from state.records import CallKey, CallRecord, Spend
from state.rows import add, many, one


def find_call(connection: Connection, key: CallKey) -> CallRecord | None:
    """Return the call with this key, settled or not."""
    return one(connection, select(schema.call).where(_is(key)), CallRecord)


def find_or_start(
    connection: Connection, key: CallKey, call_id: str, epoch: int, at: float, **fields: Any
) -> CallRecord:
    """Return the call with this key; one that is new is written as `started`, under the id that was brought along."""
    found = find_call(connection, key)
    if found is not None:
        return found
    named = {name: getattr(key, name) for name in key.__struct_fields__}
    record = CallRecord(id=call_id, state="started", epoch=epoch, started_at=at, **named, **fields)
    start_calls(connection, [record])
    return record


def start_calls(connection: Connection, records: list[CallRecord]) -> None:
    """Write intents. Must be committed before anything is sent."""
    add(connection, schema.call, records)


def set_call(connection: Connection, call_id: str, **fields: Any) -> None:
    """Change fields of a call that is not settled, or clear its pending ref.

    Raises `JournalError` when a settled call would be settled again.
    """
    query = update(schema.call).where(schema.call.c.id == call_id)
    if set(fields) != {"ref_pending"}:
        query = query.where(schema.call.c.state != "done")
    if connection.execute(query.values(**fields)).rowcount != 1:
        raise JournalError(f"call {call_id} is settled already; its outcome cannot change")


def begin_attempt(connection: Connection, call_id: str, at: float) -> int:
    """Write that a request goes out now, and return its number, from 1.

    An earlier attempt without a result was cut off by a crash: it becomes `lost`, its request may have been paid.
    """
    table = schema.attempt
    connection.execute(
        update(table)
        .where(and_(table.c.call_id == call_id, table.c.result.is_(None)))
        .values(result="lost", ended_at=at)
    )
    count = connection.execute(select(func.count()).where(table.c.call_id == call_id)).scalar_one()
    connection.execute(insert(table).values(call_id=call_id, n=count + 1, started_at=at))
    return int(count) + 1


def end_attempt(connection: Connection, call_id: str, n: int, at: float, result: str, detail: str = "") -> None:
    """Write how a request ended: ok, free (certainly not executed), ambiguous or refused."""
    table = schema.attempt
    connection.execute(
        update(table)
        .where(and_(table.c.call_id == call_id, table.c.n == n))
        .values(ended_at=at, result=result, detail=detail[:500])
    )


def attempts(connection: Connection, call_id: str) -> list[tuple[int, str | None]]:
    """Return (n, result) of a call's attempts."""
    table = schema.attempt
    query = select(table.c.n, table.c.result).where(table.c.call_id == call_id).order_by(table.c.n)
    return [(row.n, row.result) for row in connection.execute(query)]


def calls_of_step(connection: Connection, rollout: str, seq: int) -> list[CallRecord]:
    """Return a step's calls in the order in which they began."""
    table = schema.call
    query = select(table).where(and_(table.c.rollout == rollout, table.c.step == seq))
    return many(connection, query.order_by(table.c.id), CallRecord)


def calls_of_kind(connection: Connection, kind: str) -> list[CallRecord]:
    """Return the calls of one kind, oldest first."""
    return many(
        connection,
        select(schema.call).where(schema.call.c.kind == kind).order_by(schema.call.c.id),
        CallRecord,
    )


def pending_refs(connection: Connection) -> list[CallRecord]:
    """Return the settled calls whose git ref may not have moved yet, oldest first."""
    query = select(schema.call).where(schema.call.c.ref_pending == 1).order_by(schema.call.c.id)
    return many(connection, query, CallRecord)


def in_flight(connection: Connection) -> int:
    """Count the calls that began and are not settled."""
    return int(connection.execute(select(func.count()).where(schema.call.c.state != "done")).scalar_one())


def spend(connection: Connection) -> Spend:
    """Sum up what was used, over all rollouts."""
    c = schema.call.c
    priced = and_(c.model.is_not(None), c.ok == 1)
    row = connection.execute(
        select(
            func.coalesce(func.sum(case((c.model.is_not(None), 1), else_=0)), 0),
            func.coalesce(func.sum(c.cost_usd), 0.0),
            func.coalesce(func.sum(c.tokens_in), 0),
            func.coalesce(func.sum(c.tokens_out), 0),
            func.coalesce(func.sum(case((and_(priced, c.cost_usd.is_(None)), 1), else_=0)), 0),
        ).where(c.kind != "rlm")
    ).one()
    twice = connection.execute(
        select(func.count()).where(schema.attempt.c.result.in_(("lost", "ambiguous")))
    ).scalar_one()
    return Spend(int(row[0]), float(row[1]), int(row[2]), int(row[3]), int(row[4]), int(twice))


def _is(key: CallKey) -> Any:
    c = schema.call.c
    return and_(
        c.rollout == key.rollout,
        c.step == key.step,
        c.kind == key.kind,
        c.args_hash == key.args_hash,
        c.n == key.n,
    )
