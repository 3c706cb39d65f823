"""Whether a schema is held to by the provider is learnt once."""

from __future__ import annotations

import pytest

from agent.errors import Ambiguous, ContextOverflow, ProviderError, RequestRejected
from agent.models.base import ModelSpec
from agent.models.schemas import NativeSchema


@pytest.mark.parametrize("known", [True, False])
def test_what_is_known_is_asked_for_once(known: bool) -> None:
    asked: list[bool] = []
    memory = NativeSchema(ModelSpec("openai/m"))
    answers = [memory.holds(lambda: asked.append(known) or known) for _ in range(3)]  # type: ignore[func-returns-value]
    assert answers == [known] * 3
    assert len(asked) == 1


def test_the_task_s_word_counts() -> None:
    assert NativeSchema(ModelSpec("openai/m", params={"native_schema": True})).holds(lambda: False)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (RequestRejected("m: Unknown parameter: 'response_format'"), True),
        (RequestRejected("m: json_schema is not supported by this model"), True),
        (RequestRejected("m: Invalid schema for structured outputs"), True),
        (RequestRejected("m: the temperature is too high"), False),
        (ContextOverflow("m: response_format and all are too long"), False),
        (Ambiguous("m: response_format"), False),
    ],
)
def test_only_a_refusal_of_the_field_counts(error: ProviderError, refused: bool) -> None:
    memory = NativeSchema(ModelSpec("openai/m"))
    assert memory.holds(lambda: True)
    assert memory.was_refused(error) is refused
    assert memory.holds(lambda: True) is not refused
