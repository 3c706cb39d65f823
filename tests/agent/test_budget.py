"""Budgets as a tree: reserved before, settled after, at every level, and cancelled downwards."""

from __future__ import annotations

import pytest

from agent.budget import Budget, Grant
from agent.errors import BudgetSpent, Stopped
from state.records import Spend


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def root(clock: Clock, **caps: float) -> Budget:
    return Budget(Grant(**caps), Spend(), 0.0, clock)  # type: ignore[arg-type]


def test_what_is_in_flight_counts_before_it_is_settled(clock: Clock) -> None:
    budget = root(clock, tokens=100)
    budget.reserve("a", 0.0, 60)
    with pytest.raises(BudgetSpent, match=r"limits\.tokens: 100 is spent"):
        budget.reserve("b", 0.0, 60)
    budget.settle("a", 0.0, 10)
    budget.reserve("b", 0.0, 60)


def test_a_child_spends_from_all_above_it_and_siblings_share_the_rest(clock: Clock) -> None:
    budget = root(clock, calls=3)
    one, two = budget.child(Grant()), budget.child(Grant(calls=1))
    two.reserve("x", 0.0, 1)
    with pytest.raises(BudgetSpent, match="granted to this rollout are spent"):
        two.reserve("y", 0.0, 1)
    one.reserve("y", 0.0, 1)
    one.reserve("z", 0.0, 1)
    with pytest.raises(BudgetSpent, match=r"limits\.calls"):
        one.reserve("w", 0.0, 1)
    assert budget.left()["calls"] == 3, "nothing is settled yet"
    for call, level in (("x", two), ("y", one), ("z", one)):
        level.settle(call, 0.1, 5)
    assert (budget.left()["calls"], one.left()["calls"], two.left()["calls"]) == (0, 0, 0)


def test_a_failed_reservation_holds_nothing_anywhere(clock: Clock) -> None:
    budget = root(clock, tokens=100)
    child = budget.child(Grant(tokens=10))
    with pytest.raises(BudgetSpent):
        child.reserve("a", 0.0, 50)
    budget.reserve("b", 0.0, 100)


def test_what_an_earlier_process_spent_counts(clock: Clock) -> None:
    budget = root(clock, calls=10)
    child = budget.child(Grant(calls=4, seconds=100), Spend(calls=3), active_s=90)
    assert child.left()["calls"] == 1
    clock.now = 11
    with pytest.raises(BudgetSpent, match="seconds"):
        child.check_time()
    budget.check_time()


def test_the_least_of_all_levels_is_what_is_left(clock: Clock) -> None:
    child = root(clock, tokens=100, usd=1.0).child(Grant(tokens=500, usd=0.5))
    assert child.left() == {"calls": None, "tokens": 100, "usd": 0.5, "seconds": None}


def test_cancelling_reaches_all_below_and_those_that_come_later_and_none_beside(clock: Clock) -> None:
    budget = root(clock)
    one, two = budget.child(Grant()), budget.child(Grant())
    below = one.child(Grant())
    told: list[str] = []
    below.when_cancelled(lambda: told.append("below"))
    one.cancel()
    assert told == ["below"]
    for level in (one, below, one.child(Grant()), below.child(Grant())):
        with pytest.raises(Stopped):
            level.check_cancelled()
    two.check_cancelled()
    budget.check_cancelled()


def test_an_exhausted_budget_is_seen_before_a_child_is_started(clock: Clock) -> None:
    child = root(clock, calls=1).child(Grant())
    child.check_open()
    child.reserve("a", 0.0, 1)
    with pytest.raises(BudgetSpent):
        child.check_open()
