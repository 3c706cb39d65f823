"""Trajectories that go round in circles, and those that only look like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.stuck import signs_in, told
from state.records import StepRecord


def step(seq: int, cell: str, shown: str, tree: str | None = "T", failed: int = 0, variables: str = "[]") -> StepRecord:
    return StepRecord(
        "R", seq, "done", 1.0, reply="r", cell=cell, observation=shown, tree=tree, failed=failed, variables=variables
    )


def level(rows: list[StepRecord], commits: tuple[int, ...] = ()) -> int:
    return signs_in(rows, commits).level


START = [step(1, "look()", "files", "A"), step(2, "write()", "done", "T")]


@pytest.mark.parametrize(("times", "wanted"), [(1, 0), (2, 0), (3, 1), (5, 1), (6, 2), (9, 2), (10, 3), (40, 3)])
def test_the_same_cell_with_the_same_observation(times: int, wanted: int) -> None:
    rows = START + [step(3 + n, "check()", "not yet") for n in range(times)]
    found = signs_in(rows)
    assert found.level == wanted
    if 0 < wanted < 3:
        assert found.since == 3 and f"{times} times" in told(found)
        assert ("REWIND(2)" in told(found)) == (wanted == 2)


@pytest.mark.parametrize(("times", "wanted"), [(5, 0), (9, 1), (18, 2), (30, 3)])
def test_one_who_waits_has_more_patience(times: int, wanted: int) -> None:
    assert level(START + [step(3 + n, "time.sleep(60); print(state())", "building") for n in range(times)]) == wanted


@pytest.mark.parametrize(
    ("pattern", "turns", "wanted"),
    [("ab", 2, 0), ("ab", 3, 1), ("ab", 5, 2), ("ab", 8, 3), ("abc", 2, 0), ("abc", 3, 1), ("abc", 8, 3)],
)
def test_the_same_steps_in_turn(pattern: str, turns: int, wanted: int) -> None:
    rows = START + [step(3 + n, f"{letter}()", f"saw {letter}") for n, letter in enumerate(pattern * turns)]
    assert level(rows) == wanted


def test_files_that_swing_to_and_fro_are_a_circle_too() -> None:
    rows = START + [step(3 + n, f"set({n % 2})", "set", tree="TU"[n % 2]) for n in range(10)]
    assert level(rows) == 2


@pytest.mark.parametrize(("times", "wanted"), [(2, 0), (3, 1), (5, 2), (8, 3)])
def test_the_same_error_from_different_cells(times: int, wanted: int) -> None:
    shown = "Traceback\n  File '/w/a.py', line {0}\nImportError: no module named 'yaml' ({0})"
    assert level(START + [step(3 + n, f"try_{n}()", shown.format(n), failed=1) for n in range(times)]) == wanted


@pytest.mark.parametrize(("times", "wanted"), [(4, 0), (5, 1), (8, 2), (38, 2)])
def test_the_same_error_in_spite_of_edits_is_never_the_end_by_itself(times: int, wanted: int) -> None:
    rows = [step(1 + n, f"edit_{n}()", "AssertionError: 3 != 4", tree=f"T{n}", failed=1) for n in range(times)]
    assert level(rows) == wanted


@pytest.mark.parametrize(("times", "wanted"), [(11, 0), (12, 1), (24, 2), (36, 3)])
def test_nothing_new_over_many_different_cells(times: int, wanted: int) -> None:
    assert level([step(1 + n, f"think_{n}", "(the cell printed nothing)") for n in range(times + 1)]) == wanted


def test_work_is_no_circle() -> None:
    batch = [step(n, "n += 1; work(n)", f"did {n}") for n in range(1, 101)]
    files = [step(n, "write()", "ok", tree=f"T{n}") for n in range(1, 101)]
    facts = [step(n, "collect()", "ok", variables=f'[["facts", "list", {n}]]') for n in range(1, 101)]
    fixing = [
        step(n, "fix()" if n % 2 else "test()", f"{20 - n // 2} failed", f"T{n // 2}", failed=n % 2)
        for n in range(1, 31)
    ]
    for rows in (batch, files, facts, fixing):
        assert level(rows) == 0
    same = [step(n, f"think_{n}", "ok") for n in range(1, 31)]
    assert level(same, commits=tuple(range(5, 31, 5))) == 0


def test_errors_far_apart_are_not_one_stretch() -> None:
    rows = [
        step(n, f"c{n}", "KeyError: 'a'" if n % 9 == 0 else f"new {n}", failed=int(n % 9 == 0)) for n in range(1, 37)
    ]
    assert level(rows) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y"])), max_size=60))
def test_who_changes_files_at_each_step_is_not_stuck(steps: list[tuple[str, str]]) -> None:
    rows = [step(1 + n, cell, shown, tree=f"T{n}") for n, (cell, shown) in enumerate(steps)]
    assert level(rows) == 0
