"""Going back to an earlier step without losing a later one: what came after it is moved to a rollout of its own.

The archived rollout has the outcome `rewound` and hangs below the root, with all that its steps started. Their calls lie under
other keys now, so that the root's next step is asked and paid anew.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, func, select, update

from state import runs, schema, search, steps
from state.records import RolloutRecord

_STEP, _CALL, _FOLD, _EVENT = schema.step.c, schema.call.c, schema.fold.c, schema.event.c
_BRANCH, _ROLLOUT = schema.branch.c, schema.rollout.c


def archive_after(connection: Connection, root: RolloutRecord, step: int, archived: str, at: float) -> None:
    """Move all steps of `root` behind `step`, and what belongs to them, to the rollout `archived`."""
    last = steps.last_step(connection, root.id)
    reason = f"steps {step + 1} to {last.seq if last else step}, undone by a rewind to step {step}"
    row = RolloutRecord(archived, root.id, None, 0, root.model, root.prompt, root.context, at, "rewound", reason)
    runs.create_rollout(connection, row)
    for table, column in ((schema.step, _STEP.seq), (schema.call, _CALL.step), (schema.event, _EVENT.step)):
        moved = update(table).where(table.c.rollout == root.id, column > step)
        connection.execute(moved.values(rollout=archived))
    search.rename(connection, root.id, step, archived)
    started = select(_CALL.id).where(_CALL.rollout == archived)
    below = update(schema.rollout).where(_ROLLOUT.parent == root.id, _ROLLOUT.call_id.in_(started))
    connection.execute(below.values(parent=archived))
    _archive_folds(connection, root.id, step, archived)
    _archive_branches(connection, root.id, step, archived)
    stored = select(func.max(_STEP.seq)).where(
        _STEP.rollout == root.id, _STEP.seq <= step, _STEP.namespace.is_not(None)
    )
    base = connection.execute(stored).scalar()
    steps.set_step(connection, root.id, step, base=base, ref_pending=0, answer=None)


def heads_before(connection: Connection, archived: str) -> dict[str, tuple[str | None, str]]:
    """Return for each ref that an archived rollout, or one below it, moved: (where it was before, where it was left)."""
    c = schema.call.c
    query = select(c.ref, c.git_before, c.git_after).where(c.rollout.in_(_tree(archived)), c.git_after.is_not(None))
    found: dict[str, tuple[str | None, str]] = {}
    for ref, before, after in connection.execute(query.order_by(c.id)):
        found[ref] = (found[ref][0] if ref in found else before, after)
    return found


def _archive_folds(connection: Connection, root: str, step: int, archived: str) -> None:
    connection.execute(update(schema.fold).where(_FOLD.rollout == root, _FOLD.last > step).values(rollout=archived))
    gone = select(_FOLD.id).where(_FOLD.rollout == archived)
    alive = update(schema.fold).where(_FOLD.rollout == root, _FOLD.merged_into.in_(gone))
    connection.execute(alive.values(merged_into=None))


def _archive_branches(connection: Connection, root: str, step: int, archived: str) -> None:
    """Give commits and log entries of the undone steps the name of a branch that is gone, so that the name is free again."""
    prefix = f"rewound/{archived}/"
    tree = _tree(archived)
    m, entry = schema.milestone, schema.log
    later = (m.c.rollout == root) & (m.c.step > step)
    moved: dict[str, Any] = {"branch": prefix + m.c.branch}
    connection.execute(update(m).where(m.c.rollout.in_(tree) | later).values(moved))
    connection.execute(update(m).where(m.c.rollout == root, m.c.step > step).values(rollout=archived))
    logged = (entry.c.by_rollout == root) & (entry.c.by_step > step)
    connection.execute(
        update(entry).where(entry.c.by_rollout.in_(tree) | logged).values({"branch": prefix + entry.c.branch})
    )
    for column, owner in ((entry.c.rollout, entry.c.step), (entry.c.by_rollout, entry.c.by_step)):
        connection.execute(update(entry).where(column == root, owner > step).values({column.name: archived}))
    made = (_BRANCH.rollout == root) & (_BRANCH.step > step)
    undone = update(schema.branch).where(_BRANCH.rollout.in_(tree) | made)
    connection.execute(undone.values(state="rewound", merging=None))
    reopened = update(schema.branch).where(_BRANCH.state.in_(("merged", "abandoned")), _BRANCH.ended_step > step)
    connection.execute(reopened.values(state="open", summary=None, ended_step=None))


def _tree(top: str) -> Any:
    """Return a query for the ids of a rollout and all below it."""
    table = schema.rollout
    tree = select(table.c.id).where(table.c.id == top).cte("below", recursive=True)
    return select(tree.union_all(select(table.c.id).join(tree, table.c.parent == tree.c.id)).c.id)
