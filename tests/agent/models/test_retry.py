"""The policy of repeats: what is free goes on until the wait is used up, what may be paid three times, the rest never."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import (
    Ambiguous,
    KeyRejected,
    NotExecuted,
    ProviderError,
    QuotaExhausted,
    RequestRejected,
    ServerFailed,
)
from agent.models.retry import next_delay

HOUR = 3600.0


@given(attempt=st.integers(1, 10**6), waited=st.floats(0, HOUR), seed=st.integers())
def test_free_errors_wait_within_bounds(attempt: int, waited: float, seed: int) -> None:
    delay = next_delay(NotExecuted("x"), attempt, waited, HOUR, random.Random(seed))
    if waited >= HOUR:
        assert delay is None
    else:
        assert delay is not None
        assert 0 < delay <= 60
        assert waited + delay <= HOUR + 1e-6


@pytest.mark.parametrize("max_wait", [1.0, 60.0, 1800.0])
def test_a_provider_that_never_answers_is_given_up_when_the_wait_is_used_up(max_wait: float) -> None:
    rng, waited, attempt = random.Random(7), 0.0, 1
    while (delay := next_delay(NotExecuted("x"), attempt, waited, max_wait, rng)) is not None:
        waited += delay
        attempt += 1
    assert waited == pytest.approx(max_wait)
    assert attempt < 40 + max_wait / 10


def test_an_outage_of_the_provider_is_waited_out() -> None:
    assert next_delay(ServerFailed("502"), 40, 900, HOUR, random.Random(1)) is not None
    assert next_delay(ServerFailed("502"), 40, HOUR, HOUR, random.Random(1)) is None


def test_ambiguous_errors_are_sent_three_times_at_most() -> None:
    rng = random.Random(1)
    assert next_delay(Ambiguous("x"), 1, 0, HOUR, rng) is not None
    assert next_delay(Ambiguous("x"), 2, 0, HOUR, rng) is not None
    assert next_delay(Ambiguous("x"), 3, 0, HOUR, rng) is None


@pytest.mark.parametrize("kind", [KeyRejected, QuotaExhausted, RequestRejected, ProviderError])
def test_what_cannot_help_is_not_tried(kind: type[ProviderError]) -> None:
    assert next_delay(kind("x"), 1, 0, HOUR, random.Random(1)) is None


@given(asked=st.floats(0, 10 * HOUR), waited=st.floats(0, HOUR), seed=st.integers())
def test_the_provider_s_own_pause_is_kept(asked: float, waited: float, seed: int) -> None:
    error = NotExecuted("x")
    error.retry_after = asked
    delay = next_delay(error, 1, waited, HOUR, random.Random(seed))
    if asked > HOUR - waited or waited >= HOUR:
        assert delay is None
    else:
        assert delay is not None
        assert asked <= delay <= HOUR - waited + 1e-6


def test_callers_that_failed_together_do_not_come_back_together() -> None:
    error = NotExecuted("x")
    error.retry_after = 10.0
    assert len({next_delay(error, 3, 0, HOUR, random.Random(seed)) for seed in range(20)}) == 20
