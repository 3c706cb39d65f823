"""Steps and folds in the journal: the trajectory, and the ranges of it that are shown as summaries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Update, and_, bindparam, delete, func, literal_column, select, update

from state import schema
from state.records import FoldRecord, StepRecord
from state.rows import add, many, one

# Statements that each step needs are built once: building one costs SQLAlchemy more than running it.
_STEP = schema.step.c
_IS = and_(_STEP.rollout == bindparam("of"), _STEP.seq == bindparam("at"))
_ONE = select(schema.step).where(_IS)
_LAST = select(schema.step).where(_STEP.rollout == bindparam("of")).order_by(_STEP.seq.desc()).limit(1)
_RANGE = and_(_STEP.rollout == bindparam("of"), _STEP.seq >= bindparam("first"), _STEP.seq <= bindparam("last"))
_BETWEEN = select(schema.step).where(_RANGE).order_by(_STEP.seq)
_SHOWN = ("seq", "state", "started_at", "reply", "cell", "observation", "failed", "tree", "partial", "variables")
_RECENT = select(*(getattr(_STEP, name) for name in _SHOWN)).where(_RANGE).order_by(_STEP.seq)
_FAILED = (
    select(_STEP.failed)
    .where(_STEP.rollout == bindparam("of"), _STEP.seq > bindparam("after"), _STEP.state == "done")
    .order_by(_STEP.seq.desc())
)
_LIVE = and_(schema.fold.c.rollout == bindparam("of"), schema.fold.c.merged_into.is_(None))
_LIVE_FOLDS = select(schema.fold).where(_LIVE).order_by(schema.fold.c.first)


def begin_step(connection: Connection, record: StepRecord) -> None:
    """Write a step's first row."""
    add(connection, schema.step, [record])


def plan_step(connection: Connection, record: StepRecord) -> None:
    """Write a step `planned`; one that was planned before a crash gets the new prompt."""
    if read_step(connection, record.rollout, record.seq) is None:
        begin_step(connection, record)
    else:
        changed = {"state": record.state, "prompt_hash": record.prompt_hash, "prompt_tokens": record.prompt_tokens}
        set_step(connection, record.rollout, record.seq, **changed)


def set_step(connection: Connection, rollout: str, seq: int, **fields: Any) -> None:
    """Change fields of one step."""
    connection.execute(_update(tuple(fields)), {"of": rollout, "at": seq, **fields})


def read_step(connection: Connection, rollout: str, seq: int) -> StepRecord | None:
    """Return one step in full."""
    return one(connection, _ONE, StepRecord, of=rollout, at=seq)


def last_step(connection: Connection, rollout: str) -> StepRecord | None:
    """Return the newest step, whatever its state."""
    return one(connection, _LAST, StepRecord, of=rollout)


def last_partial(connection: Connection, rollout: str) -> str:
    """Return the answer that stood there, ready or not, when a rollout's last step was done; empty when there was none."""
    table = schema.step
    done = select(table.c.partial).where(and_(table.c.rollout == rollout, table.c.state == "done"))
    return str(connection.execute(done.order_by(table.c.seq.desc()).limit(1)).scalar() or "")


def steps_between(connection: Connection, rollout: str, first: int, last: int) -> list[StepRecord]:
    """Return the steps first..last (both included), oldest first."""
    return many(connection, _BETWEEN, StepRecord, of=rollout, first=first, last=last)


def recent(connection: Connection, rollout: str, first: int, last: int) -> list[StepRecord]:
    """Return the steps first..last, oldest first, as prompts and signs need them: without what a restart needs."""
    rows = connection.execute(_RECENT, {"of": rollout, "first": first, "last": last})
    return [StepRecord(rollout, **row._mapping) for row in rows]


def pending_refs(connection: Connection) -> list[StepRecord]:
    """Return the done steps whose checkpoint's ref may not have moved yet, oldest first."""
    table = schema.step
    query = select(table).where(table.c.ref_pending == literal_column("1")).order_by(table.c.rollout, table.c.seq)
    return many(connection, query, StepRecord)


def errors_in_a_row(connection: Connection, rollout: str, after: int = 0) -> int:
    """Count the newest steps behind step `after` that failed without a success between."""
    count = 0
    for row in connection.execute(_FAILED, {"of": rollout, "after": after}):
        if not row.failed:
            break
        count += 1
    return count


def seconds_worked(connection: Connection, rollout: str) -> float:
    """Sum up how long a rollout's done steps took, from plan to checkpoint."""
    table = schema.step
    took = func.sum(table.c.ended_at - table.c.started_at)
    return float(connection.execute(select(took).where(table.c.rollout == rollout)).scalar() or 0.0)


def last_stretch(connection: Connection, rollout: str, branch: str) -> tuple[int, int] | None:
    """Return the first and last of the newest done steps in a row that ended on a branch, or None when none did."""
    query = select(_STEP.seq).where(
        _STEP.rollout == rollout, _STEP.branch == branch, _STEP.state == "done", _STEP.seq > 0
    )
    found = [int(row.seq) for row in connection.execute(query.order_by(_STEP.seq.desc()))]
    if not found:
        return None
    first = next((a for a, b in zip(found, [*found[1:], -1], strict=True) if a - b != 1), found[-1])
    return first, found[0]


def checkpointed(connection: Connection, rollout: str) -> list[tuple[int, str]]:
    """Return (seq, commit) of the done steps that have a checkpoint, oldest first."""
    query = select(_STEP.seq, _STEP.commit).where(_STEP.rollout == rollout, _STEP.commit.is_not(None))
    return [(int(row.seq), str(row.commit)) for row in connection.execute(query.order_by(_STEP.seq))]


def replace_checkpoints(
    connection: Connection, rollout: str, gone: Sequence[int], moved: Sequence[tuple[int, str]]
) -> None:
    """Take the checkpoints of the steps `gone` away, and give others (seq, commit) their new commit."""
    is_it = and_(_STEP.rollout == rollout, _STEP.seq == bindparam("at"))
    if gone:
        connection.execute(update(schema.step).where(is_it).values(commit=None, tree=None), [{"at": s} for s in gone])
    if moved:
        named = update(schema.step).where(is_it).values(commit=bindparam("new"))
        connection.execute(named, [{"at": seq, "new": commit} for seq, commit in moved])


def kept_near(connection: Connection, rollout: str, seq: int) -> list[int]:
    """Return the nearest steps before and after this one that still have a checkpoint."""
    c = schema.step.c
    kept = and_(c.rollout == rollout, c.tree.is_not(None), c.state == "done")
    before = connection.execute(select(func.max(c.seq)).where(kept, c.seq < seq)).scalar()
    after = connection.execute(select(func.min(c.seq)).where(kept, c.seq > seq)).scalar()
    return [int(found) for found in (before, after) if found is not None]


def states(connection: Connection, rollout: str) -> list[tuple[int, str]]:
    """Return (seq, state) of all steps in order."""
    table = schema.step
    query = select(table.c.seq, table.c.state).where(table.c.rollout == rollout).order_by(table.c.seq)
    return [(row.seq, row.state) for row in connection.execute(query)]


def prompt_sizes(connection: Connection, rollout: str) -> tuple[int, int]:
    """Return the last and the largest prompt, in tokens."""
    table = schema.step
    last = connection.execute(
        select(table.c.prompt_tokens).where(table.c.rollout == rollout).order_by(table.c.seq.desc()).limit(1)
    ).scalar()
    largest = connection.execute(select(func.max(table.c.prompt_tokens)).where(table.c.rollout == rollout)).scalar()
    return int(last or 0), int(largest or 0)


def live_folds(connection: Connection, rollout: str) -> list[FoldRecord]:
    """Return the folds that are shown now, oldest range first."""
    return many(connection, _LIVE_FOLDS, FoldRecord, of=rollout)


def folds_made_at(connection: Connection, rollout: str, seq: int) -> list[FoldRecord]:
    """Return the folds whose call belongs to step `seq`, merged away or not."""
    called = select(schema.call.c.id).where(and_(schema.call.c.rollout == rollout, schema.call.c.step == seq))
    return many(connection, select(schema.fold).where(schema.fold.c.call_id.in_(called)), FoldRecord)


def add_fold(connection: Connection, record: FoldRecord, merged: list[str]) -> None:
    """Write a fold and let it take the place of the finer folds `merged`; nothing is deleted."""
    add(connection, schema.fold, [record])
    if merged:
        connection.execute(update(schema.fold).where(schema.fold.c.id.in_(merged)).values(merged_into=record.id))


def store_values(connection: Connection, values: dict[str, bytes]) -> None:
    """Keep REPL values by their hash; one that is there already is left alone."""
    if not values:
        return
    shas, have = list(values), set[str]()
    for start in range(0, len(shas), 500):
        query = select(schema.value.c.sha).where(schema.value.c.sha.in_(shas[start : start + 500]))
        have.update(connection.execute(query).scalars())
    rows = [{"sha": sha, "data": data} for sha, data in values.items() if sha not in have]
    if rows:
        connection.execute(schema.value.insert(), rows)


def load_values(connection: Connection, shas: list[str]) -> dict[str, bytes]:
    """Return the stored values among `shas`."""
    found: dict[str, bytes] = {}
    for start in range(0, len(shas), 500):
        query = select(schema.value).where(schema.value.c.sha.in_(shas[start : start + 500]))
        found.update({row.sha: row.data for row in connection.execute(query)})
    return found


def namespaces(connection: Connection) -> list[tuple[str, int, bytes]]:
    """Return (rollout, seq, namespace) of every step that still has a stored namespace."""
    table = schema.step
    query = select(table.c.rollout, table.c.seq, table.c.namespace).where(table.c.namespace.is_not(None))
    return [(row.rollout, row.seq, row.namespace) for row in connection.execute(query)]


def drop_values(connection: Connection, keep: set[str]) -> None:
    """Delete the stored values that no kept namespace names."""
    gone = [sha for sha in connection.execute(select(schema.value.c.sha)).scalars() if sha not in keep]
    for start in range(0, len(gone), 500):
        connection.execute(delete(schema.value).where(schema.value.c.sha.in_(gone[start : start + 500])))


@cache
def _update(fields: tuple[str, ...]) -> Update:
    return update(schema.step).where(_IS).values({field: bindparam(field) for field in fields})
