"""What the reference library promises of tools, through `RLM`; `DEV:` marks where we do better on purpose."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import RLM
from agent.errors import UsageError
from tests.parity.asking import RUNS_CONTEXT, cell, out, requests, scripted

OFFSET = 10
SUB_TOOL = [
    {"match": "^use it$", "tool_calls": [{"name": "below", "arguments": {"x": 2}}]},
    {"match": "^below 2", "reply": "it said so"},
    {"match": "^never done", "tool_calls": [{"name": "below", "arguments": {"x": 0}}]},
    {"match": "^below 0", "tool_calls": [{"name": "below", "arguments": {"x": 0}}]},
    {"match": "^You have used your tools", "reply": "final words"},
    {"match": "^use a wrong one", "tool_calls": [{"name": "nobody", "arguments": {}}]},
    {"match": "^Error: there is no tool", "reply": "it told me"},
    {"match": "^use it badly", "tool_calls": [{"name": "below", "arguments": "{broken"}]},
    {"match": "^Error: the arguments are wrong", "reply": "it told me that"},
    {"match": "^make it fail", "tool_calls": [{"name": "fails", "arguments": {}}]},
    {"match": "^Error: fails: ValueError: bang", "reply": "it failed"},
]


class Doubler:
    """An instance that can be called."""

    def __call__(self, x: Any) -> Any:
        return x * 2


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def later(x: int) -> int:
    await asyncio.sleep(0.001)
    return x + 1


def bang() -> None:
    raise ValueError("bang")


TOOLS = {
    "add": add,
    "shifted": lambda x: x + OFFSET,
    "double": Doubler(),
    "later": later,
    "bang": bang,
    "thing": lambda: object(),
    "huge": lambda: 2**70,
    "settings": {"limit": [1, 2]},
    "described": {"tool": add, "description": "Adds, as it says {here}."},
    "seven": {"tool": 7, "description": "A number."},
    "hammer": {"tool": "hammer", "weight": 3},
}


@pytest.fixture(scope="module")
def rlm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RLM]:
    with scripted(tmp_path_factory.mktemp("tools"), RUNS_CONTEXT, custom_tools=TOOLS) as made:
        yield made


@pytest.mark.parametrize("tools", [None, {}])
def test_no_tools(tmp_path: Path, tools: dict[str, Any] | None) -> None:
    with scripted(tmp_path, "FINAL(1)", custom_tools=tools) as rlm:
        assert rlm.completion("x", question="q").response == "1"


def test_functions_closures_lambdas_instances_and_coroutines(rlm: RLM) -> None:
    code = "out = [add(1), add(1, b=5), shifted(1), double('a'), later(1), described(3)]"
    assert out(rlm, code) == [3, 6, 11, "aa", 2, 5]


def test_tools_run_in_the_caller_s_process(tmp_path: Path) -> None:
    # DEV: they are outside of the sandbox, so they reach what cells do not: the caller's objects, the network.
    seen: list[str] = []
    with scripted(tmp_path, "FINAL(note('it'))", custom_tools={"note": lambda text: seen.append(text)}) as rlm:
        rlm.completion("x", question="q")
    assert seen == ["it"]


def test_values_are_variables(rlm: RLM) -> None:
    assert out(rlm, "out = [settings, seven]") == [{"limit": [1, 2]}, 7]


def test_a_dict_with_a_key_named_tool_may_be_a_value(rlm: RLM) -> None:
    # DEV: it is taken for a described tool there.
    assert out(rlm, "out = hammer") == {"tool": "hammer", "weight": 3}


def test_a_value_that_a_cell_changed_is_fresh_in_the_next_completion(rlm: RLM) -> None:
    assert out(rlm, "settings['limit'].append(3); out = settings") == {"limit": [1, 2, 3]}
    assert out(rlm, "out = settings") == {"limit": [1, 2]}


def test_a_raising_tool_is_an_observation_with_its_name(rlm: RLM) -> None:
    code = "try: bang()\nexcept Exception as error: out = repr(error)"
    assert out(rlm, code) == "RuntimeError('bang: ValueError: bang')"


@pytest.mark.parametrize(("name", "kind"), [("thing", "object"), ("huge", "int")])
def test_a_result_that_is_no_plain_data_is_an_observation_with_the_tool_s_name(rlm: RLM, name: str, kind: str) -> None:
    # DEV: cells are in another process, so objects don't pass.
    code = f"try: {name}()\nexcept Exception as error: out = str(error)"
    assert f"{name} returned a {kind}" in out(rlm, code)


def test_an_argument_that_is_no_plain_data_is_told_in_the_cell(rlm: RLM) -> None:
    code = "try: add(lambda: 1)\nexcept TypeError as error: out = str(error)"
    assert "function" in out(rlm, code)


def test_threads_in_a_cell_may_call_tools_at_once(tmp_path: Path) -> None:
    meet = threading.Barrier(3, timeout=20)
    code = "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(3) as p: FINAL(sorted(p.map(meet, range(3))))"
    with scripted(tmp_path, code, custom_tools={"meet": lambda n: (meet.wait(), n)[1]}) as rlm:
        assert rlm.completion("x", question="q").response == "[0, 1, 2]"


def test_children_have_the_tools_of_their_parent(rlm: RLM) -> None:
    code = "out = rlm_query('go', context=\"out = [add(5), settings, add.__doc__, seven]\")"
    assert out(rlm, code) == "[7, {'limit': [1, 2]}, 'Add two numbers.', 7]"


def test_reserved_names_are_rejected_all_at_once_when_it_is_made() -> None:
    # DEV: there only when a completion begins, and tools of sub-calls not at all.
    with pytest.raises(UsageError) as caught:
        RLM(
            model="offline/x",
            custom_tools={"llm_query": add, "answer": 1, "fine": 2, "no name": 3},
            custom_sub_tools={"context": 1},
        )
    assert "answer, context, llm_query" in str(caught.value) and "'no name'" in str(caught.value)


def test_values_that_are_no_plain_data_are_rejected_all_at_once() -> None:
    # DEV
    with pytest.raises(UsageError, match="a is a object; b is a int"):
        RLM(model="offline/x", custom_tools={"a": object(), "b": 2**70, "c": 1})


@pytest.fixture(scope="module")
def below(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RLM]:
    sub = {"below": lambda x: f"below {x}", "fails": bang, "beside": [1]}
    entries = [*SUB_TOOL, RUNS_CONTEXT]
    with scripted(tmp_path_factory.mktemp("below"), *entries, custom_tools={"add": add}, custom_sub_tools=sub) as made:
        yield made


def test_tools_for_sub_calls_alone_are_functions_of_children(below: RLM) -> None:
    code = (
        "here = ['below' in globals(), 'beside' in globals(), add(1)]\n"
        "out = [here, rlm_query('go', context=\"out = [below(3), beside, 'add' in globals()]\")]"
    )
    assert out(below, code) == [[False, False, 3], "['below 3', [1], False]"]


def test_no_tools_for_sub_calls(tmp_path: Path) -> None:
    with scripted(tmp_path, RUNS_CONTEXT, custom_tools={"add": add}, custom_sub_tools={}) as rlm:
        assert out(rlm, "out = [add(1), rlm_query('go', context=\"out = 'add' in globals()\")]") == [3, "False"]


def test_a_sub_call_uses_its_tools(below: RLM) -> None:
    assert out(below, "out = llm_query('use it')") == "it said so"


def test_a_sub_call_at_the_limit_of_its_tools_gives_a_final_answer(below: RLM) -> None:
    assert out(below, "out = llm_query('never done')") == "final words"


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("use a wrong one", "it told me"),
        ("use it badly", "it told me that"),
        ("make it fail", "it failed"),
    ],
)
def test_a_sub_call_is_told_what_its_tool_said(below: RLM, prompt: str, answer: str) -> None:
    assert out(below, f"out = llm_query('{prompt}')") == answer


def test_the_prompt_tells_of_the_tools(tmp_path: Path) -> None:
    # The root is asked what stands in its prompt: the reply comes only when the text is there.
    def told(text: str) -> dict[str, Any]:
        return {"match": text, **cell("FINAL('told')")}

    lines = r"(?s)`add\(a: int, b: int = 2\) -> int`: Add two numbers\..*`described\(.*: Adds, as it says \{here\}\..*`seven` \(int\): A number\."
    with scripted(tmp_path, told(lines), "FINAL('not told')", custom_tools=TOOLS) as rlm:
        assert rlm.completion("x", question="q").response == "told"
    assert len(requests(tmp_path)) == 1
