"""The many ways in which providers say how long to wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.models.retry_after import pause_from, pause_from_text

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z


@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"Retry-After": "Fri, 15 Jan 2027 08:02:00 GMT"}, 120.0),
        ({"Retry-After": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"llm_provider-retry-after": "3"}, 3.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "1e99"}, None),
        ({"x-ratelimit-reset-requests": "1m30s"}, 90.0),
        ({"x-ratelimit-reset": "1800000042"}, 42.0),
        ({"x-ratelimit-reset": "1800000042000"}, 42.0),
        (
            {"anthropic-ratelimit-tokens-reset": "2027-01-15T08:00:09Z", "anthropic-ratelimit-tokens-remaining": "0"},
            9.0,
        ),
        (
            {
                "x-ratelimit-reset-requests": "8h",
                "x-ratelimit-remaining-requests": "900",
                "x-ratelimit-reset-tokens": "2s",
                "x-ratelimit-remaining-tokens": "0",
            },
            2.0,
        ),
        ({}, None),
        ({"content-type": "text/html"}, None),
    ],
)
def test_headers(headers: dict[str, str], pause: float | None) -> None:
    assert pause_from(headers, NOW) == pause


def test_resets_count_only_for_a_429() -> None:
    assert pause_from({"x-ratelimit-reset-requests": "8h"}, NOW, limited=False) is None
    assert pause_from({"retry-after": "8"}, NOW, limited=False) == 8.0


@pytest.mark.parametrize(
    ("text", "pause"),
    [
        ("Rate limit reached. Please try again in 6m0s.", 360.0),
        ("Please try again in 20ms.", 0.02),
        ("Please retry in 34.074824224s.", 34.074824224),
        ('{"@type": "RetryInfo", "retryDelay": "34s"}', 34.0),
        ("try again later", None),
    ],
)
def test_words(text: str, pause: float | None) -> None:
    assert pause_from_text(text) == pause


@given(
    st.dictionaries(
        st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset", "anthropic-ratelimit-x-reset"]),
        st.text(),
    )
)
def test_nonsense_is_none_or_a_sane_number(headers: dict[str, str]) -> None:
    pause = pause_from(headers, NOW)
    assert pause is None or 0 <= pause <= 366 * 86400
