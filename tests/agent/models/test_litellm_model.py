"""What is litellm's alone: keys that are found or missing, and names that it knows."""

from __future__ import annotations

import pytest

from agent.errors import KeyRejected, UsageError
from agent.models.base import Message, ModelRequest, ModelSpec, complete
from agent.models.litellm_model import LitellmModel

REQUEST = ModelRequest((Message("system", "Be brief."), Message("user", "ping")), max_tokens=50, timeout=10)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydantic", "ignore::UserWarning:litellm")


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai/gpt-5", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.5-flash", "GEMINI_API_KEY"),
    ],
)
def test_a_missing_key_is_named_before_anything_is_asked(model: str, variable: str) -> None:
    with pytest.raises(KeyRejected) as caught:
        LitellmModel(ModelSpec(model)).check()
    assert variable in caught.value.hint
    with pytest.raises(KeyRejected):  # and so it is when nobody checked, though litellm calls it a 500
        complete(LitellmModel(ModelSpec(model)), REQUEST)


def test_check_asks_litellm_for_providers_that_are_less_common() -> None:
    with pytest.raises(KeyRejected) as caught:
        LitellmModel(ModelSpec("together_ai/some-model")).check()
    assert "TOGETHERAI_API_KEY" in caught.value.hint


def test_check_names_the_variable_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LitellmModel(ModelSpec("openai/gpt-5", api_key_env="WORK_KEY"))
    with pytest.raises(KeyRejected, match="no API key") as caught:
        model.check()
    assert "WORK_KEY" in caught.value.hint
    monkeypatch.setenv("WORK_KEY", "sk-1")
    model.check()


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (ModelSpec("openai/m", api_base="127.0.0.1:80"), "http"),
        (ModelSpec("openai/m", api_base="http://127.0.0.1/v1", params={"api_key": "x"}), "api_key_env"),
        (ModelSpec("no-such-provider/m"), "provider/model"),
    ],
)
def test_check_refuses_what_cannot_work(wrong: ModelSpec, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        LitellmModel(wrong).check()
    assert what in caught.value.hint
