"""Which ranges are folded when, and which summaries are refused."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.folding import BLOCK, FANOUT, due, uncovered
from agent.foldtext import KEPT_TOKENS, marked, problem_of, with_marked
from agent.tokens import count_tokens
from state.records import FoldRecord


def run_folds(steps: int, keep: int) -> list[FoldRecord]:
    """Fold as a run of that many steps does and return the folds shown at its end."""
    folds: list[FoldRecord] = []
    for last in range(1, steps + 1):
        wanted = due(folds, last, keep)
        if wanted is None:
            continue
        made = FoldRecord(
            f"{wanted.first}-{wanted.last}", "R", wanted.first, wanted.last, wanted.level, "s", "m", 1, 9, 1.0
        )
        folds = sorted([f for f in folds if f.id not in wanted.merged] + [made], key=lambda f: f.first)
    return folds


def test_nothing_is_folded_while_the_steps_are_few() -> None:
    assert due([], BLOCK + 4, keep=5) is None
    wanted = due([], BLOCK + 5, keep=5)
    assert wanted is not None and (wanted.first, wanted.last, wanted.level) == (1, BLOCK, 0)


@pytest.mark.parametrize("steps", [10, 57, 300, 2000, 10_000])
def test_folds_are_contiguous_and_few(steps: int) -> None:
    folds = run_folds(steps, keep=5)
    assert folds[0].first == 1
    for before, after in itertools.pairwise(folds):
        assert after.first == before.last + 1
        assert after.level <= before.level, "old is coarse, recent is fine"
    assert steps - folds[-1].last <= 5 + 2 * BLOCK
    levels = math.log(max(2, steps / BLOCK), FANOUT - 1) + 2
    assert len(folds) <= (FANOUT + 1) * levels


@pytest.mark.parametrize(
    "summary",
    [
        "",
        "  \n",
        "null",
        "None",
        "Error: connection reset",
        "<!DOCTYPE html>",
        "word " * 200,
        "I'm sorry, I cannot summarise this.",
        "so it is\n" * 6,
    ],
)
def test_summaries_that_would_lose_the_record_are_refused(summary: str) -> None:
    assert problem_of(summary, "step 1: " + "found a fact. " * 30)


def test_a_short_true_summary_is_taken() -> None:
    assert problem_of("Found the default in json/__init__.py.", "step 1: " + "found a fact. " * 30) == ""


def test_marked_lines_outlive_a_summary_that_drops_them() -> None:
    record = (
        "TODO: mend the parser\nFACT: the port is 8443\n- [ ] write docs\nDECISION: use SQLite\n- [x] write docs\nnoise "
        + "x " * 300
    )
    text = with_marked("They worked on the parser.", record, 40)
    assert marked(record) == ["TODO: mend the parser", "FACT: the port is 8443", "DECISION: use SQLite"]
    assert all(line in text for line in marked(record)) and "write docs" not in text
    assert marked(with_marked("Again.", text + "\nDONE: mend the parser", 40)) == [
        "FACT: the port is 8443",
        "DECISION: use SQLite",
    ]


def test_marked_lines_are_bounded_and_say_what_is_left_out() -> None:
    text = with_marked("Many.", "\n".join(f"FACT: number {n} is {n * n}" for n in range(200)), 40)
    assert count_tokens(text) <= 40 + KEPT_TOKENS + 30
    assert "FACT: number 199" in text and "more marked lines: CONTEXT(find=" in text


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 12)), max_size=40), st.integers(50, 400))
def test_odd_folds_of_the_model_are_merged_all_the_same(odd: list[tuple[int, int]], steps: int) -> None:
    """Whatever ranges the model folds, no step is hidden, folds never overlap, and they stay few."""
    folds: list[FoldRecord] = []
    for last in range(1, steps + 1):
        for length, back in odd[last % max(1, len(odd)) :][:1]:
            first, end = last - back - length, last - back - 1
            if first >= 1 and not any(f.first <= end and first <= f.last for f in folds):
                made = FoldRecord(f"m{first}-{end}", "R", first, end, 0, "s", "model", 1, 9, 1.0)
                folds = sorted([*folds, made], key=lambda f: f.first)
        for _ in range(2):
            wanted = due(folds, last, 5)
            if wanted is not None:
                inside = [f for f in folds if f.id in wanted.merged]
                assert [f for f in folds if f.first <= wanted.last and wanted.first <= f.last] == inside
                made = FoldRecord(
                    f"{wanted.first}-{wanted.last}-{last}",
                    "R",
                    wanted.first,
                    wanted.last,
                    wanted.level,
                    "s",
                    "m",
                    1,
                    9,
                    1.0,
                )
                folds = sorted([f for f in folds if f not in inside] + [made], key=lambda f: f.first)
    shown = {n for f in folds for n in range(f.first, f.last + 1)}
    hidden = {n for a, b in uncovered(folds, steps) for n in range(a, b + 1)}
    assert shown | hidden == set(range(1, steps + 1)) and not shown & hidden
    assert len(folds) <= 40
