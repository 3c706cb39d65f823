"""What the reference library promises of depth and limits; `DEV:` marks where we do better on purpose."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import RLM
from agent.completion import (
    BudgetExceededError,
    ErrorThresholdExceededError,
    LimitExceeded,
    TimeoutExceededError,
    TokenLimitExceededError,
)
from agent.models.base import ModelSpec
from tests.parity.asking import RUNS_CONTEXT, cell, out, requests, scripted, write_script

SAYS = {"match": "^say", "reply": "said"}
SO_FAR = cell("answer['content'] = 'so far'", forever=True)


@pytest.fixture(scope="module")
def rlm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RLM]:
    limits = {"calls": 1000, "tokens": 10**6, "wall_time": 3600, "cost_usd": 5}
    with scripted(tmp_path_factory.mktemp("limits"), SAYS, RUNS_CONTEXT, limits=limits) as made:
        yield made


def test_budget_tells_what_is_left(rlm: RLM) -> None:
    left = out(rlm, "out = budget()")
    assert set(left) == {"steps", "calls", "tokens", "usd", "seconds"}
    assert (left["steps"], left["calls"], left["usd"]) == (199, 999, 5)


def test_a_child_gets_what_is_left_of_time_and_budget(rlm: RLM) -> None:
    above, below = out(rlm, "llm_query('say it'); out = [budget(), rlm_query('go', context='out = budget()')]")
    below = ast.literal_eval(below)
    assert below["calls"] == above["calls"] - 1
    assert 0 < below["seconds"] < above["seconds"] <= 3600
    assert 0 < below["tokens"] < above["tokens"] < 10**6


def test_a_child_may_be_given_less(rlm: RLM) -> None:
    # DEV
    limits = "{'calls': 3, 'tokens': 9000, 'usd': 1.5, 'seconds': 20}"
    below = ast.literal_eval(out(rlm, f"out = rlm_query('go', context='out = budget()', limits={limits})"))
    assert (below["calls"], below["usd"]) == (2, 1.5)
    assert below["tokens"] < 9000 and below["seconds"] < 20


def test_a_child_that_has_used_up_its_share_is_an_error_value(rlm: RLM) -> None:
    code = (
        "child = \"answer['content'] = llm_query('say it'); out = [llm_query('say a'), str(llm_query('say b'))]\"\n"
        "out = [rlm_query('go', context=child, limits={'calls': 3}), str(rlm_query('go', 'out = 1', limits={'calls': 0}))]"
    )
    third, none = out(rlm, code)
    assert ast.literal_eval(third)[0] == "said" and "spent" in ast.literal_eval(third)[1]
    assert none.startswith("Error: ") and "calls" in none


def test_an_unknown_limit_of_a_child_is_told_in_the_cell(rlm: RLM) -> None:
    code = "try: rlm_query('go', 'x', limits={'cals': 3})\nexcept RuntimeError as error: out = str(error)"
    assert "cals" in out(rlm, code)


def test_exhausted_is_an_error_value_and_starts_no_child(tmp_path: Path) -> None:
    with scripted(tmp_path, SAYS, RUNS_CONTEXT, limits={"calls": 2}) as rlm:
        code = "llm_query('say it'); c = rlm_query('go', context='out = 1'); out = [str(c), bool(c), str(llm_query('say'))]"
        child, truth, plain = out(rlm, code)
    assert child.startswith("Error: ") and "calls" in child and truth is False and "calls" in plain
    assert len(requests(tmp_path)) == 2


@pytest.mark.parametrize(("depth", "answer"), [(1, "said"), (2, "said"), (3, "7")])
def test_at_the_depth_limit_rlm_query_is_a_plain_call(tmp_path: Path, depth: int, answer: str) -> None:
    inner = "FINAL(rlm_query('say', context='FINAL(7)'))"
    with scripted(tmp_path, SAYS, cell("exec(context)", forever=True), max_depth=depth) as rlm:
        assert rlm.completion(f"FINAL(rlm_query('say', context={inner!r}))", question="q").response == answer
    assert len(requests(tmp_path)) == {1: 2, 2: 3, 3: 3}[depth]


def test_the_parent_s_settings_stay_when_a_child_gets_its_own(rlm: RLM) -> None:
    code = (
        "before = budget()\nrlm_query('go', 'out = 1', limits={'calls': 5, 'usd': 0.1}, model='offline/scripted')\n"
        "after = budget(); out = [before['usd'] == after['usd'], before['calls'] - after['calls']]"
    )
    assert out(rlm, code) == [True, 1]
    assert (rlm._task.limits.calls, rlm._task.limits.cost_usd) == (1000, 5)


def test_max_errors_in_a_row_end_it(tmp_path: Path) -> None:
    with scripted(tmp_path, cell("answer['content'] = 'so far'; 1 / 0", forever=True), max_errors=2) as rlm:
        with pytest.raises(ErrorThresholdExceededError, match="2 steps in a row failed") as caught:
            rlm.completion("x", question="q")
    assert (caught.value.partial_answer, caught.value.completion.steps) == ("so far", 2)


def test_a_clean_step_resets_the_errors(tmp_path: Path) -> None:
    with scripted(tmp_path, "1 / 0", "1", "1 / 0", "FINAL('ok')", max_errors=2) as rlm:
        assert rlm.completion("x", question="q").response == "ok"


def test_a_warning_is_no_error(tmp_path: Path) -> None:
    # DEV: any text on stderr counts as an error there.
    noisy = "import sys, warnings\nwarnings.warn('w')\nprint('e', file=sys.stderr)"
    with scripted(tmp_path, noisy, noisy, "FINAL('ok')", max_errors=1) as rlm:
        assert rlm.completion("x", question="q").response == "ok"


@pytest.mark.parametrize(
    ("options", "error", "partial"),
    [
        ({"max_tokens": 6000}, TokenLimitExceededError, "so far"),
        ({"max_tokens": 5}, TokenLimitExceededError, None),
        ({"max_timeout": 1e-6}, TimeoutExceededError, None),
    ],
)
def test_a_limit_given_by_its_name_raises_with_the_answer_so_far(
    tmp_path: Path, options: dict[str, Any], error: type[LimitExceeded], partial: str | None
) -> None:
    # DEV: `partial_answer` is the answer so far, not the latest reply with its fences; all share one base.
    with scripted(tmp_path, SO_FAR, **options) as rlm:
        with pytest.raises(error) as caught:
            rlm.completion("x", question="q")
    assert isinstance(caught.value, LimitExceeded) and caught.value.partial_answer == partial


def test_max_budget_is_checked_before_a_call_and_not_passed(tmp_path: Path) -> None:
    # DEV: it is noticed there when it has been passed, and only of what a provider reports.
    price = {"input": 100.0, "output": 100.0}
    model = ModelSpec("offline/scripted", params=write_script(tmp_path, SO_FAR), price=price)
    with RLM(model=model, max_budget=0.5) as rlm:
        with pytest.raises(BudgetExceededError) as caught:
            rlm.completion("x", question="q")
    done = caught.value.completion
    assert caught.value.partial_answer == "so far" and 0 < done.spend.usd <= 0.5


@pytest.mark.parametrize("limits", [{"steps": 2}, {"calls": 2}, {"tokens": 6000}, {"wall_time": 1e-6}])
def test_a_limit_of_ours_returns_the_answer_so_far(tmp_path: Path, limits: dict[str, Any]) -> None:
    # DEV: there is no such way there.
    with scripted(tmp_path, SO_FAR, limits=limits) as rlm:
        done = rlm.completion("x", question="q")
    assert done.outcome.kind == "budget" and done.error == done.outcome.reason
    assert done.response == ("" if "wall_time" in limits else "so far")


def test_max_iterations_return_the_answer_so_far(tmp_path: Path) -> None:
    with scripted(tmp_path, SO_FAR, max_iterations=3) as rlm:
        done = rlm.completion("x", question="q")
    assert (done.response, done.steps, done.outcome.kind) == ("so far", 3, "budget")


def test_limits_are_those_of_the_whole_tree(tmp_path: Path) -> None:
    # DEV: a child's tokens are not counted there.
    code = "FINAL([str(rlm_query('go', context='llm_query(\"say a\"); FINAL(1)')), str(llm_query('say b'))])"
    with scripted(tmp_path, SAYS, cell("exec(context)", forever=True), limits={"calls": 3}) as rlm:
        done = rlm.completion(code, question="q")
    one, refused = ast.literal_eval(done.response)
    assert one == "1" and "calls" in refused and len(requests(tmp_path)) == 3
