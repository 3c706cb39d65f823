"""Branches in a real journal: numbers without gaps, and logs that are united once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from state import branches, steps
from state.journal import Journal
from state.records import BranchRecord, MilestoneRecord, StepRecord


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal.db")
    yield made
    made.close()


def walk(connection: Any, branch: str, numbers: range, rollout: str = "R") -> None:
    for seq in numbers:
        step = StepRecord(rollout, seq, "done", 1.0, reply=f"{branch} {seq}")
        steps.begin_step(connection, step)
        branches.log_step(connection, step, branch)


def log_of(journal: Journal, branch: str) -> list[tuple[int, int, str]]:
    rows = journal.read(lambda c: branches.entries_after(c, branch, 0))
    return [(row.number, row.seq, row.origin) for row in rows]


def test_logs_are_united_once_with_where_each_step_comes_from(journal: Journal) -> None:
    journal.write(lambda c: walk(c, "main", range(1, 3)))
    journal.write(lambda c: walk(c, "idea", range(3, 5)))
    journal.write(lambda c: walk(c, "idea/deep", range(1, 3), "CHILD"))
    assert journal.write(lambda c: branches.unite_logs(c, "idea", "idea/deep", "R", 5)) == 2
    assert journal.write(lambda c: branches.unite_logs(c, "main", "idea", "R", 6)) == 4
    assert journal.write(lambda c: branches.unite_logs(c, "main", "idea", "R", 6)) == 0
    journal.write(lambda c: walk(c, "idea", range(7, 8)))
    assert journal.write(lambda c: branches.unite_logs(c, "main", "idea", "R", 8)) == 1
    assert log_of(journal, "main") == [
        (1, 1, ""), (2, 2, ""), (3, 3, "idea"), (4, 4, "idea"), (5, 1, "idea/deep"), (6, 2, "idea/deep"), (7, 7, "idea"),
    ]  # fmt: skip


def test_a_step_is_logged_once(journal: Journal) -> None:
    journal.write(lambda c: walk(c, "main", range(1, 2)))
    journal.write(lambda c: branches.log_step(c, StepRecord("R", 1, "done", 1.0), "main"))
    assert log_of(journal, "main") == [(1, 1, "")]


def test_commits_are_numbered_by_branch_and_written_once(journal: Journal) -> None:
    def commit(c: Any, call: str, branch: str) -> None:
        number = branches.next_commit(c, branch)
        branches.add_commit(c, MilestoneRecord(call, branch, number, "R", 4, f"did {call}", "c", "p", 1, 3))

    for call, branch in (("A", "main"), ("B", "x"), ("C", "main"), ("C", "main")):
        journal.write(lambda c, call=call, branch=branch: commit(c, call, branch))
    assert [(m.id, m.number) for m in journal.read(lambda c: branches.commits_after(c, "main", 0))] == [
        ("A", 1),
        ("C", 2),
    ]
    assert journal.read(lambda c: branches.last_commit(c, "x")).id == "B"  # type: ignore[union-attr]
    assert journal.read(lambda c: branches.commits_after(c, "main", 1))[0].id == "C"
    assert journal.read(lambda c: branches.commit_steps(c, "R", 0)) == [4, 4, 4]


def test_the_name_of_a_branch_whose_making_was_undone_is_free(journal: Journal) -> None:
    made = BranchRecord("1", "x", "why", "main", None, "R", 3, "open", 1.0)
    journal.write(lambda c: branches.add_branch(c, made))
    journal.write(lambda c: branches.set_branch(c, "x", merging="main", theirs="sha"))
    assert journal.read(lambda c: branches.pending_merge(c, "main")).name == "x"  # type: ignore[union-attr]
    journal.write(lambda c: branches.set_branch(c, "x", state="rewound", merging=None))
    assert journal.read(lambda c: branches.find_branch(c, "x")) is None
    assert journal.read(branches.all_branches) == []
