"""Calls in the journal: the intent before the effect, the outcome after, each settled exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Update, and_, bindparam, case, func, insert, literal_column, select, update

from state import schema
from state.errors import JournalError
from state.records import CallKey, CallRecord, Spend
from state.rows import add, many, one

_CHUNK = 500  # hashes that one statement asks for
_CALL, _ATTEMPT = schema.call.c, schema.attempt.c
_OF_STEP = [getattr(_CALL, name) == bindparam(f"a_{name}") for name in ("rollout", "step", "kind")]
_BY_KEY = select(schema.call).where(*_OF_STEP, _CALL.args_hash == bindparam("a_args_hash"), _CALL.n == bindparam("a_n"))
_BY_HASHES = select(schema.call).where(*_OF_STEP, _CALL.args_hash.in_(bindparam("hashes", expanding=True)))
_ATTEMPT_ENDS = (
    update(schema.attempt)
    .where(_ATTEMPT.call_id == bindparam("of"), _ATTEMPT.n == bindparam("number"))
    .values(ended_at=bindparam("at"), result=bindparam("how"), detail=bindparam("why"))
)


def find_call(connection: Connection, key: CallKey) -> CallRecord | None:
    """Return the call with this key, settled or not."""
    return one(connection, _BY_KEY, CallRecord, **{f"a_{name}": getattr(key, name) for name in key.__struct_fields__})


def find_or_start(
    connection: Connection, key: CallKey, call_id: str, epoch: int, at: float, **fields: Any
) -> CallRecord:
    """Return the call with this key; one that is new is written as `started`, under the id that was brought along."""
    return find_or_start_all(connection, [intent(key, call_id, epoch, at, **fields)])[0]


def intent(key: CallKey, call_id: str, epoch: int, at: float, **fields: Any) -> CallRecord:
    """Return the record of a call that is about to be made."""
    named = {name: getattr(key, name) for name in key.__struct_fields__}
    return CallRecord(id=call_id, state="started", epoch=epoch, started_at=at, **named, **fields)


def find_or_start_all(connection: Connection, wanted: Sequence[CallRecord]) -> list[CallRecord]:
    """Return the call of each wanted key, in order; those that are new are written, with one statement.

    Must be committed before anything is sent.
    """
    found: dict[CallKey, CallRecord] = {}
    groups: dict[tuple[str, int, str], set[str]] = {}
    for record in wanted:
        groups.setdefault((record.rollout, record.step, record.kind), set()).add(record.args_hash)
    for (rollout, step, kind), wanted_hashes in groups.items():
        hashes = sorted(wanted_hashes)
        for start in range(0, len(hashes), _CHUNK):
            values = {"a_rollout": rollout, "a_step": step, "a_kind": kind, "hashes": hashes[start : start + _CHUNK]}
            found.update((key_of(row), row) for row in many(connection, _BY_HASHES, CallRecord, **values))
    fresh: dict[CallKey, CallRecord] = {}
    for record in wanted:
        if key_of(record) not in found:
            fresh.setdefault(key_of(record), record)
    add(connection, schema.call, fresh.values())
    found.update(fresh)
    return [found[key_of(record)] for record in wanted]


def key_of(record: CallRecord) -> CallKey:
    """Return what makes this call the same call when its cell is run again."""
    return CallKey(record.rollout, record.step, record.kind, record.args_hash, record.n)


def answered(connection: Connection, kind: str, args_hash: str) -> CallRecord | None:
    """Return a good answer that some rollout got to this very question, or None."""
    c = schema.call.c
    same = and_(c.kind == kind, c.args_hash == args_hash, c.state == "done", c.ok == 1)
    return one(connection, select(schema.call).where(same).order_by(c.id).limit(1), CallRecord)


def set_call(connection: Connection, call_id: str, **fields: Any) -> None:
    """Change fields of a call that is not settled, or clear its pending ref.

    Raises `JournalError` when a settled call would be settled again.
    """
    query = update(schema.call).where(schema.call.c.id == call_id)
    if set(fields) != {"ref_pending"}:
        query = query.where(schema.call.c.state != "done")
    if connection.execute(query.values(**fields)).rowcount != 1:
        raise JournalError(f"call {call_id} is settled already; its outcome cannot change")


def settle_calls(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Write the outcomes of many calls with one statement; each row has the same fields, `id` among them.

    Raises `JournalError` when one of them is settled already.
    """
    if not rows:
        return
    values = [{f"new_{name}": value for name, value in row.items()} for row in rows]
    if connection.execute(_settling(tuple(rows[0])), values).rowcount != len(rows):
        raise JournalError("a settled call would be settled again; its outcome cannot change")


@cache
def _settling(fields: tuple[str, ...]) -> Update:
    query = update(schema.call).where(schema.call.c.id == bindparam("new_id"), schema.call.c.state != "done")
    changed: dict[str, Any] = {name: bindparam(f"new_{name}") for name in fields if name != "id"}
    return query.values(state="done", **changed)


def first_attempts(connection: Connection, call_ids: Sequence[str], at: float) -> None:
    """Write that the first request of each of these new calls goes out now."""
    if call_ids:
        connection.execute(insert(schema.attempt), [{"call_id": i, "n": 1, "started_at": at} for i in call_ids])


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


def end_attempts(connection: Connection, ended: Sequence[tuple[str, int, str, str]], at: float) -> None:
    """Write how requests ended, as (call, number, result, detail): ok, free (certainly not executed), ambiguous or refused."""
    if not ended:
        return
    rows = [{"of": call, "number": n, "at": at, "how": how, "why": why[:500]} for call, n, how, why in ended]
    connection.execute(_ATTEMPT_ENDS, rows)


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
    query = select(schema.call).where(schema.call.c.ref_pending == literal_column("1")).order_by(schema.call.c.id)
    return many(connection, query, CallRecord)


def landings(connection: Connection) -> list[Any]:
    """Return every call that made a commit: id, ref, git_after, ref_pending, and whether a rewind undid it (`archived`)."""
    undone = select(schema.rollout.c.id).where(schema.rollout.c.outcome == "rewound")
    tree = undone.cte("undone", recursive=True)
    tree = tree.union_all(select(schema.rollout.c.id).join(tree, schema.rollout.c.parent == tree.c.id))
    archived = _CALL.rollout.in_(select(tree.c.id)).label("archived")
    query = select(_CALL.id, _CALL.ref, _CALL.git_after, _CALL.ref_pending, archived)
    return list(connection.execute(query.where(_CALL.git_after.is_not(None)).order_by(_CALL.id)))


def last_landing(connection: Connection, ref: str) -> tuple[str, float] | None:
    """Return (commit, when) of the newest call that moved a ref, or None when none did."""
    query = select(_CALL.git_after, _CALL.ended_at).where(_CALL.ref == ref, _CALL.git_after.is_not(None))
    row = connection.execute(query.order_by(_CALL.id.desc()).limit(1)).first()
    return (str(row[0]), float(row[1] or 0.0)) if row is not None else None


def in_flight(connection: Connection) -> int:
    """Count the calls that began and are not settled."""
    return int(connection.execute(select(func.count()).where(_CALL.state != literal_column("'done'"))).scalar_one())


def spend(connection: Connection, below: str | None = None) -> Spend:
    """Sum up what was used, over all rollouts, or over the rollout `below` and all that came from it."""
    totals, lost = _SPENT if below is None else _SPENT_BELOW
    values = {} if below is None else {"top": below}
    row = connection.execute(totals, values).one()
    twice = connection.execute(lost, values).scalar_one()
    return Spend(int(row[0]), float(row[1]), int(row[2]), int(row[3]), int(row[4]), int(twice))


def count_below(connection: Connection, rollout: str) -> int:
    """Count the model calls of a rollout and all that came from it."""
    return int(connection.execute(_COUNT_BELOW, {"top": rollout}).scalar_one())


def _below() -> Any:
    """Return a query for the ids of the rollout `top` and all that came from it."""
    table = schema.rollout
    tree = select(table.c.id).where(table.c.id == bindparam("top")).cte("tree", recursive=True)
    return select(tree.union_all(select(table.c.id).join(tree, table.c.parent == tree.c.id)).c.id)


def _spent(tree: Any = None) -> tuple[Any, Any]:
    """Return the queries for totals and for attempts that may have been paid in vain. Built once, being costly to build."""
    c = schema.call.c
    priced = and_(c.model.is_not(None), c.ok == 1)
    sent = select(schema.attempt.c.n).where(schema.attempt.c.call_id == c.id).exists()  # not refused, merged or reused
    totals = select(
        func.coalesce(func.sum(case((sent, 1), else_=0)), 0),
        func.coalesce(func.sum(c.cost_usd), 0.0),
        func.coalesce(func.sum(c.tokens_in), 0),
        func.coalesce(func.sum(c.tokens_out), 0),
        func.coalesce(func.sum(case((and_(priced, c.cost_usd.is_(None)), 1), else_=0)), 0),
    ).where(c.kind != "rlm")
    lost = select(func.count()).where(schema.attempt.c.result.in_(("lost", "ambiguous")))
    if tree is not None:
        totals = totals.where(c.rollout.in_(tree))
        lost = lost.where(schema.attempt.c.call_id.in_(select(c.id).where(c.rollout.in_(tree))))
    return totals, lost


_SPENT, _SPENT_BELOW = _spent(), _spent(_below())
_COUNT_BELOW = select(func.count()).where(
    schema.call.c.model.is_not(None), schema.call.c.kind != "rlm", schema.call.c.rollout.in_(_below())
)
