"""Branches in the journal: their purpose and end, their commits, and which steps their logs hold, merged ones included.

A branch's commits and log entries are numbered from 1 without gaps. A step is in a branch's log once, however often its branch
is merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, literal, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from state import schema
from state.records import BranchRecord, LogRow, MilestoneRecord, StepRecord
from state.rows import add, many, one

_B, _M, _L = schema.branch.c, schema.milestone.c, schema.log.c
_NEXT_COMMIT = select(_M.number + 1).where(_M.branch == bindparam("of")).order_by(_M.number.desc()).limit(1)
_NEXT_ENTRY = select(_L.number + 1).where(_L.branch == bindparam("of")).order_by(_L.number.desc()).limit(1)
_COMMITS = (
    select(schema.milestone).where(_M.branch == bindparam("of"), _M.number > bindparam("after")).order_by(_M.number)
)
_LAST_COMMIT = select(schema.milestone).where(_M.branch == bindparam("of")).order_by(_M.number.desc()).limit(1)
_LAST_OWN = (
    select(schema.milestone).where(_M.branch == bindparam("of"), _M.own == 1).order_by(_M.number.desc()).limit(1)
)
_STEP = schema.step.c
_ENTRIES = (
    select(_L.number, _L.origin, _STEP.seq, _STEP.reply, _STEP.cell, _STEP.observation)
    .join_from(schema.log, schema.step, (_STEP.rollout == _L.rollout) & (_STEP.seq == _L.step))
    .where(_L.branch == bindparam("of"), _L.number > bindparam("after"))
    .order_by(_L.number)
)
_ADD_ENTRY = insert_or(schema.log).on_conflict_do_nothing()


def add_branch(connection: Connection, record: BranchRecord) -> None:
    """Write a branch that was made."""
    add(connection, schema.branch, [record])


def find_branch(connection: Connection, name: str) -> BranchRecord | None:
    """Return the branch of this name, whatever became of it, unless its making was undone."""
    query = select(schema.branch).where(_B.name == bindparam("of"), _B.state != "rewound")
    return one(connection, query, BranchRecord, of=name)


def all_branches(connection: Connection) -> list[BranchRecord]:
    """Return the branches that were made, oldest first, those undone left out."""
    return many(connection, select(schema.branch).where(_B.state != "rewound").order_by(_B.id), BranchRecord)


def set_branch(connection: Connection, name: str, **fields: Any) -> None:
    """Change fields of a branch: state, summary, ended_step, merging, theirs."""
    connection.execute(update(schema.branch).where(_B.name == name, _B.state != "rewound").values(**fields))


def end_merge(connection: Connection, name: str, summary: str, step: int) -> None:
    """Write that a branch was merged, at a step and with what it had reached."""
    set_branch(connection, name, state="merged", summary=summary, ended_step=step, merging=None, theirs=None)


def pending_merge(connection: Connection, into: str) -> BranchRecord | None:
    """Return the branch whose merge into `into` waits for its conflicts to be resolved."""
    return one(connection, select(schema.branch).where(_B.merging == bindparam("of")), BranchRecord, of=into)


def next_commit(connection: Connection, branch: str) -> int:
    """Return the number that the next commit of a branch gets."""
    return int(connection.execute(_NEXT_COMMIT, {"of": branch}).scalar() or 1)


def add_commit(connection: Connection, record: MilestoneRecord) -> None:
    """Write a commit; one that is there already stays as it is."""
    connection.execute(insert_or(schema.milestone).on_conflict_do_nothing(), [_row(record)])


def read_commit(connection: Connection, call_id: str) -> MilestoneRecord | None:
    """Return the commit that a call made."""
    query = select(schema.milestone).where(_M.id == bindparam("of"))
    return one(connection, query, MilestoneRecord, of=call_id)


def last_commit(connection: Connection, branch: str, own: bool = False) -> MilestoneRecord | None:
    """Return a branch's newest commit, or the newest that the model itself asked for."""
    return one(connection, _LAST_OWN if own else _LAST_COMMIT, MilestoneRecord, of=branch)


def commits_after(connection: Connection, branch: str, number: int) -> list[MilestoneRecord]:
    """Return a branch's commits behind the one of this number, in order."""
    return many(connection, _COMMITS, MilestoneRecord, of=branch, after=number)


def commit_steps(connection: Connection, rollout: str, after: int) -> list[int]:
    """Return the steps of a rollout behind step `after` at which something was committed."""
    query = select(_M.step).where(_M.rollout == rollout, _M.step > after).order_by(_M.step)
    return [int(row.step) for row in connection.execute(query)]


def log_step(connection: Connection, step: StepRecord, branch: str) -> None:
    """Put a done step at the end of its branch's log, unless it is there."""
    row = LogRow(branch, next_entry(connection, branch), step.rollout, step.seq, step.rollout, step.seq)
    connection.execute(_ADD_ENTRY, [_row(row)])


def next_entry(connection: Connection, branch: str) -> int:
    """Return the number that the next entry of a branch's log gets."""
    return int(connection.execute(_NEXT_ENTRY, {"of": branch}).scalar() or 1)


def unite_logs(connection: Connection, branch: str, theirs: str, by_rollout: str, by_step: int) -> int:
    """Put what the log of `theirs` has and that of `branch` lacks at its end, told where it is from; returns how many entries."""
    mine = schema.log.alias()
    have = select(literal(1)).where(mine.c.branch == branch, mine.c.rollout == _L.rollout, mine.c.step == _L.step)
    origin = func.coalesce(func.nullif(_L.origin, ""), literal(theirs))
    number = next_entry(connection, branch) - 1 + func.row_number().over(order_by=_L.number)
    new = select(literal(branch), number, _L.rollout, _L.step, origin, literal(by_rollout), literal(by_step)).where(
        _L.branch == theirs, ~have.exists()
    )
    names = ["branch", "number", "rollout", "step", "origin", "by_rollout", "by_step"]
    return int(connection.execute(insert(schema.log).from_select(names, new)).rowcount)


def entries_after(connection: Connection, branch: str, number: int) -> Sequence[Any]:
    """Return the entries of a branch's log behind this number: number, origin, seq, reply, cell, observation."""
    return connection.execute(_ENTRIES, {"of": branch, "after": number}).all()


def _row(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}
