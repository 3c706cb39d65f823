"""`RLM`: its options, its contexts, and its life: closed early, twice, or meanwhile; two in one workspace."""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import RLM
from agent.completion import Completion
from agent.context.manifest import ContextError
from agent.errors import UsageError
from agent.rlmcontext import material_of
from agent.rlmoptions import read_options
from state.errors import RunHeld
from tests.parity.asking import RUNS_CONTEXT, cell, out, requests, scripted

LOOK = cell(
    "FINAL([type(context).__name__, context[0].text if type(context).__name__ == 'Context' else context])", forever=True
)


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RLM]:
    with scripted(tmp_path_factory.mktemp("rlm"), LOOK) as made:
        yield made


@pytest.mark.parametrize(
    ("context", "kind", "value"),
    [
        ("text", "str", "text"),
        ("", "str", ""),
        ({"k": [1, None]}, "dict", {"k": [1, None]}),
        ({1: 2.5}, "dict", {1: 2.5}),
        (["a", {"b": True}], "list", ["a", {"b": True}]),
        (("a", 1), "list", ["a", 1]),
        ([], "list", []),
    ],
)
def test_contexts_given_as_such(looking: RLM, context: Any, kind: str, value: Any) -> None:
    assert ast.literal_eval(looking.completion(context, question="q").response) == [kind, value]
    assert looking.completion("a question", context=context).response == looking.completion(context, "q").response


def test_a_file_is_read_as_it_is_at_each_completion(looking: RLM, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    for text in ("first", "second, and longer"):
        file.write_text(text)
        assert ast.literal_eval(looking.completion(file, question="q").response) == ["Context", text]


def test_a_list_of_paths(looking: RLM, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    done = looking.completion([tmp_path / "b.txt", tmp_path / "a.txt"], question="q")
    assert ast.literal_eval(done.response) == ["Context", "b"]


@pytest.mark.parametrize("context", [5, None, {1, 2}, b"abc", [object()], [2**70], [lambda: 1]])
def test_what_cannot_be_a_context_is_told(looking: RLM, context: Any) -> None:
    with pytest.raises(UsageError, match="completion: "):
        looking.completion(context, question="q")


def test_a_file_that_is_not_there_is_named(looking: RLM, tmp_path: Path) -> None:
    with pytest.raises(ContextError, match=r"nowhere\.txt"):
        looking.completion(tmp_path / "nowhere.txt", question="q")


def test_question_and_context_are_given_once() -> None:
    with pytest.raises(UsageError, match="both question= and context="):
        material_of("q", "q", "c")
    with pytest.raises(UsageError, match="the question is a dict"):
        material_of({"a": 1}, None, "c")
    assert material_of("short", None, None).goal == "short"
    assert "stands in `context`" in material_of("x" * 5000, None, None).goal
    assert material_of("c", "q", None, "Be brief.").goal == "Be brief.\n\nq"


def test_what_a_completion_tells(looking: RLM) -> None:
    done = looking.completion("text", root_prompt="q")
    assert (done.root_model, done.prompt, done.steps, done.error) == ("offline/scripted", "text", 1, None)
    assert done.execution_time == done.seconds > 0 and str(done) == done.response
    usage = done.usage_summary
    assert (usage.total_calls, usage.total_cost) == (1, 0.0) and usage.total_input_tokens > 0
    assert usage.to_dict()["total_output_tokens"] == usage.total_output_tokens > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no model is named"),
        ({"model": "a/b", "max_iteration": 3}, "did you mean 'max_iterations'"),
        ({"model": "a/b", "route": "fast"}, "route='fast' is unknown"),
        ({"model": "a/b", "limits": {"stepz": 3}}, "stepz"),
        ({"model": "a/b", "max_iterations": 0}, "steps"),
        ({"model": "a/b", "sandbox": "docker"}, "kind: .*docker|kind: "),
        ({"backend": "nobody", "backend_kwargs": {"model_name": "m"}}, "unknown backend 'nobody'"),
        ({"backend": "openai", "backend_kwargs": {}}, "no model_name"),
        ({"model": "a/b", "other_backends": ["openai", "vllm"]}, "exactly one backend"),
    ],
)
def test_options_that_make_no_sense_are_told_when_it_is_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RLM(**options)


def test_the_options_of_the_paper_s_library_are_understood() -> None:
    backend = {"model_name": "m", "base_url": "http://127.0.0.1:1/v1", "sampling_args": {"temperature": 0.5}}
    other = {"other_backends": ["anthropic"], "other_backend_kwargs": [{"model_name": "small"}]}
    numbers = {
        "max_depth": 3,
        "max_iterations": 7,
        "max_budget": 1.5,
        "max_timeout": 60,
        "max_tokens": 9000,
        "max_errors": 4,
    }
    task = read_options(
        {"backend": "vllm", "backend_kwargs": backend, "max_concurrent_subcalls": 2, **other, **numbers}
    ).task()
    assert (task.models.root.model, task.models.root.api_base) == ("openai/m", "http://127.0.0.1:1/v1")
    assert task.models.root.params == {"temperature": 0.5} and task.models.sub.model == "anthropic/small"
    limits = task.limits
    assert (limits.depth, limits.steps, limits.cost_usd, limits.wall_time) == (2, 7, 1.5, 60)
    assert (limits.tokens, limits.errors, limits.concurrency) == (9000, 4, 2)


@pytest.mark.parametrize("option", ["environment", "logger", "compaction", "orchestrator", "depth"])
def test_options_without_meaning_warn(option: str) -> None:
    with pytest.warns(UserWarning, match=rf"{option}=…\) has no meaning"):
        read_options({"model": "a/b", option: 1})


def test_callbacks_are_told_of_steps_and_children_and_their_errors_are_dropped(tmp_path: Path) -> None:
    told: list[Any] = []

    def broken(*facts: Any) -> None:
        told.append(facts)
        raise ValueError("in a callback")

    kept = {f"on_{name}": broken for name in ("iteration_start", "subcall_start")}
    kept |= {f"on_{name}": lambda *facts: told.append(facts) for name in ("iteration_complete", "subcall_complete")}
    with scripted(tmp_path, RUNS_CONTEXT, **kept) as rlm:
        out(rlm, "out = [rlm_query('go', context='out = 1')]")
    shapes = [facts[:2] for facts in told]
    assert shapes == [(0, 1), (1, "offline/scripted"), (1, 1), (1, 1), (1, "offline/scripted"), (0, 1)]
    assert told[1][2] == "go" and told[4][3] is None and told[4][2] > 0


def test_closed_it_says_so_and_may_be_closed_again(tmp_path: Path) -> None:
    rlm = scripted(tmp_path, "FINAL(1)")
    folder = rlm._opened.runtime.private.parent
    assert folder.exists()
    rlm.close()
    rlm.close()
    assert not folder.exists()
    with pytest.raises(UsageError, match="it is closed"):
        rlm.completion("x", question="q")


@pytest.mark.parametrize(
    ("last", "so_far"),
    [
        (cell("import time\nanswer['content'] = 'new'\ntime.sleep(60)"), "so far"),
        ({"reply": "x", "delay": 60}, "so far"),
        (cell("FINAL(rlm_query('child', context='x'))"), "so far"),
    ],
    ids=["cell", "step", "child"],
)
def test_closing_ends_a_completion_that_runs_and_it_goes_on_in_its_workspace(
    tmp_path: Path, last: Any, so_far: str
) -> None:
    slow = [{"match": "^slow", "reply": "x", "delay": 60}, {"match": "^<task>\nchild", "reply": "x", "delay": 60}]
    rlm = scripted(tmp_path, *slow, "answer['content'] = 'so far'", last, workspace=tmp_path / "w")
    ended: list[Completion] = []
    thread = threading.Thread(target=lambda: ended.append(rlm.completion("x", question="q")))
    thread.start()
    wanted = 3 if "slow" in str(last) or "child" in str(last) else 2
    while len(requests(tmp_path)) < wanted:
        time.sleep(0.02)
    rlm.close()
    thread.join(20)
    assert not thread.is_alive() and not list((tmp_path / "w").glob("**/*-wal"))
    assert (ended[0].outcome.kind, ended[0].response) == ("stopped", so_far)
    quick = [{"match": "^slow", "reply": "quick"}, {"match": "^<task>\nchild", **cell("FINAL('quick')")}]
    for file in ("script.yaml", "ledger.jsonl"):
        (tmp_path / file).unlink()
    if "sleep" in str(last):
        return  # its cell would sleep again
    with scripted(tmp_path, *quick, "never asked again", "FINAL('quick')", workspace=tmp_path / "w") as rlm:
        done = rlm.completion("x", question="q")
    assert (done.response, done.rollout, done.steps) == ("quick", ended[0].rollout, 2)
    assert len(requests(tmp_path)) == 1, "only what was in flight is asked again"


def test_two_in_one_workspace_are_told_what_to_do(tmp_path: Path) -> None:
    with scripted(tmp_path, "FINAL(1)", workspace=tmp_path / "w") as rlm:
        with pytest.raises(RunHeld, match="another RLM") as caught:
            scripted(tmp_path, "FINAL(1)", workspace=tmp_path / "w")
        assert "workspace=" in caught.value.hint
        assert rlm.completion("x", question="q").response == "1"
    with scripted(tmp_path, "FINAL(2)", workspace=tmp_path / "w") as rlm:
        assert rlm.completion("y", question="q").response == "2"
