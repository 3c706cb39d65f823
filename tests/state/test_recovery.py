"""The recovery plan, for every state a step can be found in and for random histories of ref moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.records import CallRecord, StepRecord
from state.recovery import RefMove, StepPlan, plan_refs, plan_step


def root_call(state: str, ok: int | None) -> CallRecord:
    return CallRecord("C", "R", 4, "root", "", 0, state, 1, 1.0, ok=ok)


@pytest.mark.parametrize(
    ("state", "call", "plan"),
    [
        ("planned", None, StepPlan("plan", 4, False)),
        ("asked", None, StepPlan("plan", 4, False)),
        ("asked", root_call("started", None), StepPlan("plan", 4, False)),
        ("asked", root_call("done", 1), StepPlan("ask", 4, False)),
        ("replied", root_call("done", 1), StepPlan("run", 4, False)),
        ("running", root_call("done", 1), StepPlan("rerun", 4, True)),
        ("done", root_call("done", 1), StepPlan("plan", 5, False)),
    ],
)
def test_each_state_has_one_way_on(state: str, call: CallRecord | None, plan: StepPlan) -> None:
    assert plan_step(StepRecord("R", 4, state, 1.0), call) == plan


def test_an_empty_journal_starts_at_step_one() -> None:
    assert plan_step(None, None) == StepPlan("plan", 1, False)


def test_an_unknown_state_is_an_error_not_a_guess() -> None:
    with pytest.raises(ValueError, match="sleeping"):
        plan_step(StepRecord("R", 4, "sleeping", 1.0), None)


@given(st.integers(1, 8), st.integers(0, 8), st.booleans())
def test_refs_end_where_the_journal_says_however_many_had_moved(length: int, moved: int, foreign: bool) -> None:
    """A linear history 0→1→…→length, of which the first `moved` moves reached git before the crash."""
    moved = min(moved, length)
    pending = [RefMove("refs/heads/main", str(i + 1), str(i), f"call:{i}") for i in range(length)]
    at = "elsewhere" if foreign else str(moved)

    def is_ancestor(a: str, b: str) -> bool:
        return b != "elsewhere" and int(a) <= int(b)

    plan = plan_refs(pending, {"refs/heads/main": at}, is_ancestor)
    assert len(plan.move) + len(plan.settled) + len(plan.conflicts) == length
    if foreign:
        assert len(plan.conflicts) == length and not plan.move
    else:
        assert [m.new for m in plan.move] == [str(i) for i in range(moved + 1, length + 1)]
        assert not plan.conflicts
        end = plan.move[-1].new if plan.move else at
        assert end == str(length)
