"""The user's tools as records: how they are sorted, named, described and called."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.task import Tool
from agent.tools import HostTool, ToolBox, load_tools, plain, refuse_names, tools_of


def find(text: str, limit: int = 5, *, folder: Path | None = None) -> list[str]:
    """Find a text.

    More of it.
    """
    return [text] * limit


async def wait(x: int) -> int:
    return x


def test_functions_and_values_are_sorted_out_with_their_descriptions() -> None:
    given = {"find": find, "half": partial(find, "x"), "n": 5, "said": {"tool": find, "description": "Mine."}}
    tools, values = tools_of(given, "root")
    assert [(tool.name, tool.description.split("\n")[0], tool.to) for tool in tools[::2]] == [
        ("find", "Find a text.", "root"),
        ("said", "Mine.", "root"),
    ]
    assert values == {"n": (5, "", "root")}


def test_a_line_for_the_prompt_shows_the_signature_and_the_first_line() -> None:
    assert HostTool("find", find, "Find a text.\n\nMore.").line() == (
        "`find(text: str, limit: int = 5, *, folder: pathlib._local.Path | None = None) -> list[str]`: Find a text."
    ).replace("_local.", "_local." if "_local" in Path.__module__ else "")
    assert HostTool("odd", int).line().startswith("`odd(")


def test_the_schema_of_arguments_is_that_of_the_signature() -> None:
    schema = HostTool("find", find).spec().parameters
    assert schema["required"] == ["text"] and schema["properties"]["limit"]["type"] == "integer"
    assert HostTool("odd", dict).spec().parameters["type"] == "object"


def test_calls_return_plain_data_whatever_they_gave() -> None:
    assert HostTool("f", lambda: {"a": (1, {2})}).run([], {}) == {"a": (1, [2])}
    assert HostTool("f", wait).run([3], {}) == 3
    assert HostTool("f", lambda: b"raw").run([], {}) == b"raw"


@pytest.mark.parametrize("value", [object(), 2**70, [lambda: 1], {"a": 1j}])
def test_a_result_that_is_no_plain_data_names_the_tool_and_the_kind(value: Any) -> None:
    with pytest.raises(TypeError, match=f"f returned a {type(value).__name__}"):
        HostTool("f", lambda: value).run([], {})


def test_data_that_contains_itself_is_no_plain_data() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(RecursionError):
        plain(loop)
    with pytest.raises(UsageError, match="a is a list"):
        tools_of({"a": loop}, "all")


def test_bad_names_are_told_together() -> None:
    with pytest.raises(UsageError, match="not a name: 'a b', 'class'; reserved: context, shell"):
        refuse_names(["shell", "a b", "context", "class", "fine"])


def test_who_has_which_tool() -> None:
    box = ToolBox(
        [HostTool("r", find, to="root"), HostTool("s", find, to="sub"), HostTool("a", find)],
        {"v": (1, "A value.", "root"), "w": (2, "", "sub")},
    )
    assert [[tool.name for tool in box.of_rollout(depth)] for depth in (0, 1, 2)] == [
        ["r", "a"],
        ["s", "a"],
        ["s", "a"],
    ]
    assert [tool.name for tool in box.of_subcalls()] == ["s"]
    assert (box.values(0), box.values(1)) == ({"v": 1}, {"w": 2})
    assert box.lines(0)[-1] == "`v` (int): A value."


def test_tools_of_a_task_come_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text('def twice(x: int) -> int:\n    "Double it."\n    return 2 * x\n')
    (tmp_path / "broken.py").write_text("import nowhere_at_all\n")
    tool = load_tools([Tool(name="twice", python=f"{tmp_path / 'mine.py'}:twice")]).of_rollout(0)[0]
    assert (tool.run([4], {}), tool.description) == (8, "Double it.")
    with pytest.raises(UsageError, match="has no function 'thrice'"):
        load_tools([Tool(name="t", python=f"{tmp_path / 'mine.py'}:thrice")])
    with pytest.raises(UsageError, match=r"broken\.py: ModuleNotFoundError"):
        load_tools([Tool(name="t", python=f"{tmp_path / 'broken.py'}:x")])
