"""Child rollouts as the journal has them: under their call, with their grant, ended with their answer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import RLM
from tests.e2e.harness import question
from tests.parity.asking import RUNS_CONTEXT, cell, out, scripted

REFUSED = {"match": "^<task>\nrefused", "error": {"kind": "rejected", "message": "not this"}, "times": 1000}
NEVER = {"match": "^<task>\nnever", **cell("answer['content'] = 'so far'; 1 / 0")}
FAILS = {"match": "^<observation", **cell("2 / 0")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("children")


@pytest.fixture(scope="module")
def rlm(folder: Path) -> Iterator[RLM]:
    with scripted(folder, REFUSED, NEVER, FAILS, RUNS_CONTEXT, workspace=folder / "w", limits={"errors": 2}) as made:
        yield made


def test_a_child_is_one_level_deeper_under_the_call_that_started_it(rlm: RLM, folder: Path) -> None:
    rlm.completion("rlm_query('go', context='out = 5', limits={'calls': 7}); out = 1", question="deep")
    sql = (
        "SELECT c.depth, c.prompt, c.outcome, c.answer, k.kind, k.state FROM rollout c JOIN call k ON k.id = c.call_id"
        " WHERE c.prompt = 'go'"
    )
    assert question(folder / "w", sql) == [(1, "go", "done", "5", "rlm", "done")]


def test_an_answer_points_at_its_trajectory(tmp_path: Path) -> None:
    child = {"match": "^<task>\ngo", **cell("print('looked'); FINAL(5)")}
    cells = ("a = rlm_query('go', context='x')", "FINAL([str(a), CONTEXT(step=1, child=1), history[0]['observation']])")
    with scripted(tmp_path, child, *cells) as rlm:
        text, told, seen = ast.literal_eval(rlm.completion("x", question="q").response)
    assert text == "5" and "looked" in told and "child 1 done" in seen


def test_a_child_that_fails_hands_back_its_answer_so_far(rlm: RLM) -> None:
    told = out(rlm, "out = str(rlm_query('never', context='x'))")
    assert told.startswith("Error: ") and "stuck" in told and "so far" in told


def test_a_refused_child_ends_as_failed_and_its_parent_goes_on(rlm: RLM, folder: Path) -> None:
    told, truth, other = out(
        rlm, "a, b = rlm_query_batched(['refused', 'go'], ['x', 'out = 2']); out = [str(a), bool(a), b]"
    )
    assert "failed, not this" in told and truth is False and other == "2"
    ended = question(folder / "w", "SELECT outcome FROM rollout WHERE prompt = 'refused'")
    assert ended == [("failed",)]


def test_children_of_children_have_numbers_of_their_own(rlm: RLM) -> None:
    inner = "out = [rlm_query('go', context='out = 1'), rlm_query('go', context='out = 1')]"
    assert ast.literal_eval(out(rlm, f"out = rlm_query('go', context={inner!r})")) == ["1", "1"]


def test_prompts_and_contexts_must_be_as_many(rlm: RLM) -> None:
    code = "try: rlm_query_batched(['a', 'b'], ['x'])\nexcept ValueError as error: out = str(error)"
    assert out(rlm, code) == "2 prompts but 1 contexts"
