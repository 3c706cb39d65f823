"""Windows and prices out of litellm's table, without litellm."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent.models.base import ModelSpec
from agent.models.costmap import context_window, cost_at, most_cost


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash"])
def test_a_known_model_has_a_window_and_a_price(model: str) -> None:
    window = context_window(ModelSpec(model))
    assert window is not None
    assert 100_000 <= window <= 10_000_000
    assert 0.1 < most_cost(ModelSpec(model), 1_000_000, 1_000_000) < 1000


def test_the_task_s_own_price_comes_first() -> None:
    priced = ModelSpec("openai/gpt-4o-mini", price={"input": 2.0, "output": 20.0})
    assert most_cost(priced, 1_000_000, 100_000) == pytest.approx(4.0)


@pytest.mark.parametrize(
    "model", ["openai/my-own", "mistral/gpt-4o-mini", "offline/explorer", "openai/sample_spec", "x"]
)
def test_an_unknown_model_has_neither(model: str) -> None:
    assert context_window(ModelSpec(model)) is None
    assert most_cost(ModelSpec(model), 1, 1) == 0


def test_a_local_model_holds_what_a_slot_does() -> None:
    assert context_window(ModelSpec("local/smollm2")) == 8192
    assert context_window(ModelSpec("local/smollm2", params={"window": 1024})) == 1024


def test_a_price_of_the_task_is_per_million() -> None:
    assert cost_at({"input": 1.0, "output": 10.0}, 2_000_000, 100_000) == pytest.approx(3.0)


def test_litellm_is_not_imported_for_it() -> None:
    code = "import sys; from agent.models.costmap import *; from agent.models.base import ModelSpec;"
    code += "assert context_window(ModelSpec('openai/gpt-4o-mini')); assert 'litellm' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
