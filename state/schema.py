"""The journal's tables, in SQLAlchemy Core, and the ladder of their versions.

One SQLite file per run. `call` is the heart: one row per request that is paid or cannot be undone, its intent written
before the effect and its outcome after, unique by (rollout, step, kind, args_hash, n).
"""

from __future__ import annotations

import msgspec
from sqlalchemy import (
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    insert,
    select,
    text,
)

from state import search
from state.errors import JournalError

VERSION = 3
metadata = MetaData()

run = Table(
    "run",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("goal", Text, nullable=False),
    Column("task_digest", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("active_s", Float, nullable=False, server_default="0"),
    Column("outcome", Text),
    Column("reason", Text),
    Column("answer", Text),
)
lease = Table(
    "lease",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("epoch", Integer, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started", Text, nullable=False),
    Column("boot", Text, nullable=False),
    Column("taken_at", Float, nullable=False),
)
rollout = Table(
    "rollout",
    metadata,
    Column("id", Text, primary_key=True),
    Column("parent", Text),
    Column("call_id", Text, unique=True),
    Column("depth", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("prompt", Text, nullable=False),
    Column("context", LargeBinary),
    Column("grant", LargeBinary),
    Column("number", Integer, nullable=False, server_default="0"),
    Column("branch", Text),
    Column("outcome", Text),
    Column("reason", Text),
    Column("answer", Text),
    Column("created_at", Float, nullable=False),
)
step = Table(
    "step",
    metadata,
    Column("rollout", Text, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("state", Text, nullable=False),
    Column("prompt_hash", Text),
    Column("prompt_tokens", Integer),
    Column("reply", Text),
    Column("cell", Text),
    Column("observation", Text),
    Column("failed", Integer, nullable=False, server_default="0"),
    Column("answer", Text),
    Column("partial", Text),
    Column("tree", Text),
    Column("commit", Text),
    Column("branch", Text),
    Column("ref_pending", Integer, nullable=False, server_default="0"),
    Column("base", Integer),
    Column("namespace", LargeBinary),
    Column("variables", Text),
    Column("compute_s", Float, nullable=False, server_default="0"),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
)
call = Table(
    "call",
    metadata,
    Column("id", Text, primary_key=True),
    Column("rollout", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("args_hash", Text, nullable=False),
    Column("n", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("model", Text),
    Column("request", LargeBinary),
    Column("outcome", LargeBinary),
    Column("ok", Integer),
    Column("tokens_in", Integer, nullable=False, server_default="0"),
    Column("tokens_out", Integer, nullable=False, server_default="0"),
    Column("cost_usd", Float),
    Column("reserved_usd", Float, nullable=False, server_default="0"),
    Column("git_before", Text),
    Column("git_after", Text),
    Column("ref", Text),
    Column("ref_pending", Integer, nullable=False, server_default="0"),
    Column("epoch", Integer, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    UniqueConstraint("rollout", "step", "kind", "args_hash", "n", name="call_key"),
)
attempt = Table(
    "attempt",
    metadata,
    Column("call_id", Text, primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("result", Text),
    Column("detail", Text),
)
fold = Table(
    "fold",
    metadata,
    Column("id", Text, primary_key=True),
    Column("rollout", Text, nullable=False),
    Column("first", Integer, nullable=False),
    Column("last", Integer, nullable=False),
    Column("level", Integer, nullable=False),
    Column("summary", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("raw_tokens", Integer, nullable=False),
    Column("call_id", Text),
    Column("merged_into", Text),
    Column("created_at", Float, nullable=False),
)
branch = Table(
    "branch",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("base", Text),
    Column("rollout", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("summary", Text),
    Column("ended_step", Integer),
    Column("merging", Text),
    Column("theirs", Text),
    Column("created_at", Float, nullable=False),
)
milestone = Table(
    "milestone",
    metadata,
    Column("id", Text, primary_key=True),
    Column("branch", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("rollout", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("summary", Text, nullable=False),
    Column("contribution", Text, nullable=False),
    Column("progress", Text, nullable=False),
    Column("log_first", Integer, nullable=False),
    Column("log_last", Integer, nullable=False),
    Column("origin", Text, nullable=False, server_default=""),
    Column("own", Integer, nullable=False, server_default="1"),
    UniqueConstraint("branch", "number", name="milestone_number"),
)
log = Table(
    "log",
    metadata,
    Column("branch", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("rollout", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("origin", Text, nullable=False, server_default=""),
    Column("by_rollout", Text, nullable=False),
    Column("by_step", Integer, nullable=False),
    UniqueConstraint("branch", "rollout", "step", name="log_once"),
)
event = Table(
    "event",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("rollout", Text),
    Column("step", Integer),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
)
value = Table(
    "value",
    metadata,
    Column("sha", Text, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
Index("call_by_step", call.c.rollout, call.c.step)
Index("call_by_question", call.c.kind, call.c.args_hash)
Index("rollout_by_parent", rollout.c.parent)
Index("fold_live", fold.c.rollout, fold.c.merged_into)
Index("branch_by_name", branch.c.name)
Index("event_by_kind", event.c.kind, event.c.rollout, event.c.seq)
Index("milestone_by_step", milestone.c.rollout, milestone.c.step)
# What a start has to look for among ten thousand steps and calls: each of these holds a handful of rows.
Index("step_pending", step.c.rollout, sqlite_where=step.c.ref_pending == 1)
Index("step_stored", step.c.rollout, step.c.seq, sqlite_where=step.c.namespace.is_not(None))
Index("call_pending", call.c.id, sqlite_where=call.c.ref_pending == 1)
Index("call_by_ref", call.c.ref, call.c.id, sqlite_where=call.c.ref.is_not(None))
Index("call_open", call.c.id, sqlite_where=call.c.state != "done")


def migrate(connection: Connection, path: str) -> None:
    """Bring an open journal to `VERSION` inside the caller's transaction.

    Raises `JournalError` when the file was written by a newer version.
    """
    found = int(connection.execute(text("PRAGMA user_version")).scalar_one())
    if found > VERSION:
        raise JournalError(
            f"{path}: written by a newer rlm-agent (journal version {found}, this one reads {VERSION})",
            "install the newer rlm-agent, or copy the workspace's git history",
        )
    if found == VERSION:
        return
    for version in range(found, VERSION) if found else ():
        for statement in _STEPS[version]:
            connection.execute(text(statement))
    metadata.create_all(connection, checkfirst=True)
    search.create(connection)
    if found in (1, 2):
        _fill_branches(connection)
    connection.execute(text(f"PRAGMA user_version={VERSION}"))


#: What leads from each version to the next, besides new tables, all inside one transaction.
_STEPS: dict[int, tuple[str, ...]] = {
    1: (
        'ALTER TABLE rollout ADD COLUMN "grant" BLOB',
        "ALTER TABLE rollout ADD COLUMN number INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE step ADD COLUMN partial TEXT",
        "CREATE INDEX IF NOT EXISTS call_by_question ON call (kind, args_hash)",
        "CREATE INDEX IF NOT EXISTS rollout_by_parent ON rollout (parent)",
    ),
    2: (
        "ALTER TABLE rollout ADD COLUMN branch TEXT",
        "ALTER TABLE step ADD COLUMN branch TEXT",
        "CREATE INDEX IF NOT EXISTS event_by_kind ON event (kind, rollout, seq)",
        "CREATE INDEX IF NOT EXISTS step_pending ON step (rollout) WHERE ref_pending = 1",
        "CREATE INDEX IF NOT EXISTS step_stored ON step (rollout, seq) WHERE namespace IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS call_pending ON call (id) WHERE ref_pending = 1",
        "CREATE INDEX IF NOT EXISTS call_by_ref ON call (ref, id) WHERE ref IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS call_open ON call (id) WHERE state != 'done'",
    ),
}


def _fill_branches(connection: Connection) -> None:
    """Fill the tables that version 3 brought: until then there was one branch, and its commits stood in their calls alone."""
    tree = 'rollout IN (SELECT id FROM rollout WHERE parent IS NULL) AND "commit" IS NOT NULL'
    connection.execute(text(f"UPDATE step SET branch = 'main' WHERE {tree}"))
    connection.execute(
        text(
            "INSERT INTO log SELECT 'main', row_number() OVER (ORDER BY seq), rollout, seq, '', rollout, seq FROM step"
            f" WHERE {tree} AND seq > 0 AND state = 'done'"
        )
    )
    done = select(call).where(call.c.kind == "commit", call.c.state == "done").order_by(call.c.id)
    for row in connection.execute(done).mappings().all():
        told = msgspec.msgpack.decode(row["outcome"])
        fields = ("summary", "contribution", "progress", "log_first", "log_last")
        values = {name: told[name] for name in fields} | {"branch": "main", "number": told["seq"]}
        connection.execute(insert(milestone).values(id=row["id"], rollout=row["rollout"], step=row["step"], **values))
