"""The journal against a real SQLite file: durability settings, groups, fencing, versions, and what a second process sees."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from state import branches, calls, runs, steps
from state.errors import JournalError, LeaseLost, RunHeld
from state.journal import Journal, integrity_problems, open_reader
from state.lease import RunLock, read_owner, take_lease
from state.records import CallKey, CallRecord, RolloutRecord, RunRecord, StepRecord


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal.db")
    yield made
    made.close()


def a_call(call_id: str = "C1", n: int = 0, **fields: object) -> CallRecord:
    given = {
        "rollout": "R",
        "step": 1,
        "kind": "llm",
        "args_hash": "h",
        "state": "started",
        "epoch": 1,
        "started_at": 1.0,
    }
    return CallRecord(id=call_id, n=n, **{**given, **fields})  # type: ignore[arg-type]


def test_pragmas_are_what_was_asked_for(journal: Journal) -> None:
    found = journal.read(lambda c: [c.exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("journal_mode", "synchronous")])
    assert found == ["wal", 2]


def test_a_failing_writer_undoes_only_itself(journal: Journal) -> None:
    def bad(connection: object) -> None:
        runs.add_event(connection, 1.0, "bad")  # type: ignore[arg-type]
        raise ValueError("no")

    threads = [
        threading.Thread(target=lambda i=i: journal.write(lambda c: runs.add_event(c, 1.0, "good", i=i)))
        for i in range(20)
    ]
    for thread in threads:
        thread.start()
    with pytest.raises(ValueError, match="no"):
        journal.write(bad)
    for thread in threads:
        thread.join()
    kinds = [e.kind for e in journal.read(runs.events)]
    assert kinds.count("good") == 20 and "bad" not in kinds


def test_a_settled_call_cannot_be_settled_again(journal: Journal) -> None:
    journal.write(lambda c: calls.find_or_start_all(c, [a_call()]))
    journal.write(lambda c: calls.set_call(c, "C1", state="done", ok=1, outcome=b"x"))
    with pytest.raises(JournalError, match="settled already"):
        journal.write(lambda c: calls.set_call(c, "C1", state="done", ok=0))
    journal.write(lambda c: calls.set_call(c, "C1", ref_pending=0))
    found = journal.read(lambda c: calls.find_call(c, CallKey("R", 1, "llm", "h", 0)))
    assert found is not None and found.settled and found.outcome == b"x"


def test_a_call_is_found_again_by_its_key_and_written_once(journal: Journal) -> None:
    first = journal.write(lambda c: calls.find_or_start_all(c, [a_call("C1"), a_call("C2", n=1), a_call("C9")]))
    assert [record.id for record in first] == ["C1", "C2", "C1"]
    again = journal.write(lambda c: calls.find_or_start_all(c, [a_call("C3"), a_call("C4", n=2)]))
    assert [record.id for record in again] == ["C1", "C4"]


def test_many_calls_are_settled_by_one_statement_each_once(journal: Journal) -> None:
    journal.write(lambda c: calls.find_or_start_all(c, [a_call("C1"), a_call("C2", n=1)]))
    rows = [{"id": i, "ok": 1, "outcome": i.encode()} for i in ("C1", "C2")]
    journal.write(lambda c: calls.settle_calls(c, rows))
    found = journal.read(lambda c: calls.calls_of_step(c, "R", 1))
    assert [(r.id, r.state, r.outcome) for r in found] == [("C1", "done", b"C1"), ("C2", "done", b"C2")]
    with pytest.raises(JournalError, match="cannot change"):
        journal.write(lambda c: calls.settle_calls(c, [{"id": "C1", "ok": 0, "outcome": b"other"}]))
    assert journal.read(lambda c: calls.calls_of_step(c, "R", 1))[0].outcome == b"C1"


def test_a_good_answer_to_the_same_question_is_found(journal: Journal) -> None:
    journal.write(lambda c: calls.find_or_start_all(c, [a_call("C1"), a_call("C2", n=1)]))
    journal.write(lambda c: calls.settle_calls(c, [{"id": "C1", "ok": 0, "outcome": b"failed"}]))
    assert journal.read(lambda c: calls.answered(c, "llm", "h")) is None
    journal.write(lambda c: calls.settle_calls(c, [{"id": "C2", "ok": 1, "outcome": b"good"}]))
    found = journal.read(lambda c: calls.answered(c, "llm", "h"))
    assert found is not None and found.outcome == b"good"


def test_spend_of_a_rollout_is_that_of_all_below_it(journal: Journal) -> None:
    def build(c: Any) -> None:
        for name, parent in (("R", None), ("A", "R"), ("AA", "A"), ("B", "R")):
            runs.create_rollout(c, RolloutRecord(name, parent, None, 0, "m", "p", None, 1.0))
        made = [msgspec.structs.replace(a_call(f"C-{r}", model="m"), rollout=r) for r in ("R", "A", "AA", "B")]
        calls.find_or_start_all(c, made)
        calls.first_attempts(c, [r.id for r in made], 1.0)
        calls.settle_calls(c, [{"id": r.id, "ok": 1, "tokens_in": 10} for r in made])

    journal.write(build)
    below = {r: journal.read(lambda c, r=r: calls.spend(c, r)).calls for r in ("R", "A", "AA", "B")}
    assert below == {"R": 4, "A": 2, "AA": 1, "B": 1}
    assert journal.read(calls.spend).tokens_in == 40


#: What version 3 brought, undone.
TO_VERSION_2 = (
    "DROP TABLE branch",
    "DROP TABLE milestone",
    "DROP TABLE log",
    "DROP INDEX event_by_kind",
    "DROP INDEX step_pending",
    "DROP INDEX step_stored",
    "DROP INDEX call_pending",
    "DROP INDEX call_open",
    "DROP INDEX call_by_ref",
    "ALTER TABLE rollout DROP COLUMN branch",
    "ALTER TABLE step DROP COLUMN branch",
    "INSERT INTO rollout (id, depth, model, prompt, created_at) VALUES ('R', 0, 'm', 'p', 1.0)",
    "PRAGMA user_version=2",
)
TO_VERSION_1 = (
    "DROP INDEX call_by_question",
    "DROP INDEX rollout_by_parent",
    'ALTER TABLE rollout DROP COLUMN "grant"',
    "ALTER TABLE rollout DROP COLUMN number",
    "ALTER TABLE step DROP COLUMN partial",
    "PRAGMA user_version=1",
)


def older(path: Path, *ladders: tuple[str, ...]) -> sqlite3.Connection:
    """Make a journal as an older version left it, and return it open."""
    Journal(path).close()
    db = sqlite3.connect(path, isolation_level=None)
    for statement in (s for ladder in ladders for s in ladder):
        db.execute(statement)
    return db


def test_a_journal_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    older(path, TO_VERSION_2, TO_VERSION_1).close()
    journal = Journal(path)
    root = journal.read(runs.root_rollout)
    assert root is not None and root.id == "R" and root.grant is None
    journal.write(lambda c: steps.begin_step(c, StepRecord("R", 0, "done", 1.0, partial="so far")))
    assert journal.read(lambda c: steps.last_step(c, "R")).partial == "so far"  # type: ignore[union-attr]
    journal.close()


def test_commits_and_steps_of_the_second_version_are_on_the_main_branch(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    db = older(path, TO_VERSION_2)
    for seq in range(4):
        state = "done" if seq < 3 else "running"
        values = f"('R', {seq}, '{state}', 'said {seq}', 'sha', 1.0)"
        db.execute(f'INSERT INTO step (rollout, seq, state, reply, "commit", started_at) VALUES {values}')
    told = {"seq": 1, "summary": "S", "contribution": "C", "progress": "P", "step": 2, "log_first": 1, "log_last": 1}
    insert = "INSERT INTO call (id, rollout, step, kind, args_hash, n, state, outcome, epoch, started_at)"
    db.execute(f"{insert} VALUES ('K', 'R', 2, 'commit', 'h', 0, 'done', ?, 1, 1.0)", (msgspec.msgpack.encode(told),))
    db.close()
    journal = Journal(path)
    made = journal.read(lambda c: branches.commits_after(c, "main", 0))
    assert [(m.id, m.number, m.summary, m.log_last) for m in made] == [("K", 1, "S", 1)]
    entries = journal.read(lambda c: branches.entries_after(c, "main", 0))
    assert [(row.number, row.seq, row.reply) for row in entries] == [(1, 1, "said 1"), (2, 2, "said 2")]
    assert journal.read(lambda c: steps.read_step(c, "R", 2)).branch == "main"  # type: ignore[union-attr]
    journal.close()


def test_attempts_cut_off_by_a_crash_count_as_perhaps_paid(journal: Journal) -> None:
    journal.write(lambda c: calls.find_or_start_all(c, [a_call(model="m")]))
    assert journal.write(lambda c: calls.begin_attempt(c, "C1", 1.0)) == 1
    assert journal.write(lambda c: calls.begin_attempt(c, "C1", 2.0)) == 2
    journal.write(lambda c: calls.end_attempts(c, [("C1", 2, "ok", "")], 3.0))
    assert journal.read(lambda c: calls.attempts(c, "C1")) == [(1, "lost"), (2, "ok")]
    assert journal.read(calls.spend).maybe_paid_twice == 1


def test_an_unknown_price_is_unknown_and_counted(journal: Journal) -> None:
    journal.write(lambda c: calls.find_or_start_all(c, [a_call(f"C{n}", n=n, model="m") for n in (1, 2, 3)]))
    journal.write(lambda c: calls.first_attempts(c, ["C1", "C2"], 1.0))
    journal.write(lambda c: calls.set_call(c, "C3", state="done", ok=0, cost_usd=0.0))  # refused: it was never sent
    journal.write(lambda c: calls.set_call(c, "C1", state="done", ok=1, cost_usd=0.5, tokens_in=10))
    journal.write(lambda c: calls.set_call(c, "C2", state="done", ok=1, tokens_in=5))
    spent = journal.read(calls.spend)
    assert (spent.usd, spent.tokens_in, spent.unpriced_calls, spent.calls) == (0.5, 15, 1, 2)


def test_a_stale_lease_changes_no_row(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    old, new = Journal(path), Journal(path)
    take_lease(old, lambda: 1.0)
    take_lease(new, lambda: 2.0)
    with pytest.raises(LeaseLost, match="epoch 1"):
        old.write(lambda c: runs.add_event(c, 1.0, "from the dead"))
    new.write(lambda c: runs.add_event(c, 1.0, "from the living"))
    assert [e.kind for e in new.read(runs.events)] == ["from the living"]
    old.close()
    new.close()


def test_a_second_holder_is_refused_and_a_dead_one_is_not_alive(tmp_path: Path) -> None:
    lock = RunLock(tmp_path / "lock")
    with pytest.raises(RunHeld):
        RunLock(tmp_path / "lock")
    lock.release()
    code = (
        "import os, sys, time; from pathlib import Path; from state.journal import Journal; from state.lease import *\n"
        "lock = RunLock(Path(sys.argv[1]) / 'lock'); j = Journal(Path(sys.argv[1]) / 'journal.db')\n"
        "take_lease(j, time.time); print('held', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"held\n"
    reader = open_reader(tmp_path / "journal.db")
    with reader.connect() as connection:
        owner = read_owner(connection)
    assert owner is not None and owner.pid == child.pid and owner.alive()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    reader.dispose()
    assert not owner.alive()
    RunLock(tmp_path / "lock").release()


def test_kill_9_keeps_every_acknowledged_write(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from state.journal import Journal; from state import runs\n"
        "j = Journal(Path(sys.argv[1]))\n"
        "for i in range(100000):\n    j.write(lambda c: runs.add_event(c, float(i), 'e')); print(i, flush=True)\n"
    )
    path = tmp_path / "journal.db"
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    acknowledged = [int(child.stdout.readline()) for _ in range(50)]
    os.kill(child.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in child.stdout.read().split(b"\n")[:-1]]
    child.wait()
    child.stdout.close()
    assert integrity_problems(path) == []
    survivor = Journal(path)
    assert len(survivor.read(runs.events)) >= len(acknowledged)
    survivor.close()


def test_a_newer_journal_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(JournalError, match="newer rlm-agent"):
        Journal(path)


def test_a_damaged_file_is_named_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"this is no database, but it is somebody's" * 100)
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"journal\.db"):
        Journal(path)
    assert path.read_bytes() == before


def test_reading_where_there_is_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no journal here"):
        open_reader(tmp_path / "journal.db")


def test_errors_in_a_row_are_reset_by_success(journal: Journal) -> None:
    for seq, failed in enumerate([1, 0, 1, 1], 1):
        journal.write(lambda c, s=seq, f=failed: steps.begin_step(c, StepRecord("R", s, "done", 1.0, failed=f)))  # type: ignore[misc]
    assert journal.read(lambda c: steps.errors_in_a_row(c, "R")) == 2
    journal.write(lambda c: steps.begin_step(c, StepRecord("R", 5, "done", 1.0)))
    assert journal.read(lambda c: steps.errors_in_a_row(c, "R")) == 0


def test_a_run_is_written_once(journal: Journal) -> None:
    journal.write(lambda c: runs.create_run(c, RunRecord("1", "n", "g", "d", 1.0)))
    with pytest.raises(JournalError):
        journal.write(lambda c: runs.create_run(c, RunRecord("1", "n", "g", "d", 1.0)))
