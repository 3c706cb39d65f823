"""Which ranges are folded when, and which summaries are refused."""

from __future__ import annotations

import itertools
import math

import pytest

from agent.folding import BLOCK, FANOUT, due, problem_of
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
    "summary", ["", "  \n", "null", "None", "Error: connection reset", "<!DOCTYPE html>", "word " * 200]
)
def test_summaries_that_would_lose_the_record_are_refused(summary: str) -> None:
    assert problem_of(summary, "step 1: " + "found a fact. " * 30)


def test_a_short_true_summary_is_taken() -> None:
    assert problem_of("Found the default in json/__init__.py.", "step 1: " + "found a fact. " * 30) == ""
