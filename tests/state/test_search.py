"""Search over a run's own past, in a real journal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from state import branches, runs, search, steps
from state.journal import Journal
from state.records import FoldRecord, MilestoneRecord, StepRecord

SEEN = {
    3: "parse_url failed with E1234 in /var/log/x-1.txt",
    5: "the quick brown fox; TODO: mend the timeout",
    7: "fox quick, not brown at all",
    9: "entirely unrelated déjà vu 🦊",
}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal.db")

    def fill(c: Any) -> None:
        for seq in range(1, 11):
            steps.begin_step(
                c, StepRecord("R", seq, "done", 1.0, reply=f"thought {seq}", observation=SEEN.get(seq, ""))
            )
        steps.begin_step(c, StepRecord("R", 11, "running", 1.0, reply="not done zebra"))
        steps.add_fold(c, FoldRecord("F", "R", 1, 5, 0, "a summary about giraffes", "m", 1, 9, 1.0), [])
        branches.add_commit(c, MilestoneRecord("C", "idea/x", 1, "R", 6, "Tried okapis", "none found", "p", 1, 5))
        runs.add_event(c, 1.0, "said", "R", 8, id="1", text="please mind the lemurs")

    made.write(fill)
    yield made
    made.close()


def found(journal: Journal, query: str) -> list[tuple[str, int]]:
    def look(c: Any) -> list[search.Hit]:
        search.index_new(c)
        return search.find(c, query)

    return [(hit.kind, hit.step) for hit in journal.write(look)]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("parse_url", [("step", 3)]),
        ("E1234", [("step", 3)]),
        ("/var/log/x-1.txt", [("step", 3)]),
        ('"quick brown"', [("step", 5)]),
        ("quick fox brown", [("step", 7), ("step", 5)]),
        ("déjà", [("step", 9)]),
        ("giraffes", [("fold", 5)]),
        ("okapis", [("commit", 6)]),
        ("lemurs", [("said", 8)]),
        ("timeou", [("step", 5)]),
        ("arse_ur", [("step", 3)]),
        ("fox -brown AND (NOT", [("step", 7), ("step", 5)]),
        ("zebra", []),
        ("nowhere", []),
    ],
)
def test_what_is_looked_for_is_found(journal: Journal, query: str, wanted: list[tuple[str, int]]) -> None:
    assert sorted(found(journal, query)) == sorted(wanted)


@pytest.mark.parametrize("query", ["", "  ", '""', "-- * ( )"])
def test_a_query_without_a_word_says_so(journal: Journal, query: str) -> None:
    with pytest.raises(ValueError, match="give words"):
        found(journal, query)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.text(max_size=60))
def test_no_query_is_a_syntax_error(journal: Journal, query: str) -> None:
    if search._terms(query):
        found(journal, query)
    else:
        with pytest.raises(ValueError, match="give words"):
            found(journal, query)


def test_each_thing_is_indexed_once_and_what_comes_later_too(journal: Journal) -> None:
    assert journal.write(lambda c: search.index_new(c)) == 13
    assert journal.write(lambda c: search.index_new(c)) == 0
    journal.write(lambda c: steps.set_step(c, "R", 11, state="done", observation="zebra seen"))
    assert found(journal, "zebra") == [("step", 11)]


def test_a_step_that_was_moved_is_found_where_it_is(journal: Journal) -> None:
    found(journal, "fox")
    journal.write(lambda c: c.exec_driver_sql("UPDATE step SET rollout = 'OLD' WHERE seq > 6"))
    journal.write(lambda c: search.rename(c, "R", 6, "OLD"))
    hits = journal.read(lambda c: search.find(c, "fox"))
    assert sorted((hit.rollout, hit.step) for hit in hits) == [("OLD", 7), ("R", 5)]


def test_ten_thousand_steps_are_searched(journal: Journal) -> None:
    words = " ".join(f"word{n}" for n in range(250))

    def fill(c: Any) -> None:
        for seq in range(20, 10_020):
            steps.begin_step(c, StepRecord("R", seq, "done", 1.0, reply="r", observation=f"{words} needle{seq}"))

    journal.write(fill)
    while journal.write(lambda c: search.index_new(c)):
        pass
    began = time.perf_counter()
    assert [h.step for h in journal.read(lambda c: search.find(c, "needle7777"))] == [7777]
    assert len(journal.read(lambda c: search.find(c, "word7", limit=5))) == 5
    print(f"two searches took {time.perf_counter() - began:.3f} s")
