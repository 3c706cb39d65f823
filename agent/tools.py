"""The user's own functions, which cells and sub-calls may call; they run on the host, outside of the sandbox.

A tool call is journaled like any call: settled once, returned from the record when its cell runs again. One that was dispatched
and whose outcome a crash took is reported as unknown, never silently repeated, unless the tool is declared repeatable.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agent.errors import UsageError
from agent.models.base import ToolSpec
from agent.repl.scaffold import NAMES

if TYPE_CHECKING:
    from agent.task import Tool


class HostTool(msgspec.Struct, frozen=True):
    """A function of the user's; `to` says who has it: root, sub (sub-calls and children) or all rollouts."""

    name: str
    function: Callable[..., Any]
    description: str = ""
    to: str = "all"
    repeatable: bool = False

    def run(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call it and return plain data; raises what the function raises, TypeError for a result that is no plain data."""
        result = self.function(*args, **kwargs)
        if inspect.isawaitable(result):
            result = asyncio.run(_wait(result))
        try:
            return plain(result)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            kind = type(result).__name__
            raise TypeError(f"{self.name} returned a {kind}; return text, numbers, lists or dicts ({error})") from error

    def spec(self) -> ToolSpec:
        """Return what a model is told of it: name, description and the JSON Schema of its arguments."""
        return ToolSpec(self.name, self.description, _parameters(self.function))

    def line(self) -> str:
        """Return its call and what it does, in one line for a prompt."""
        signature = _signature(self.function)
        first = self.description.strip().split("\n")[0]
        return f"`{self.name}{signature}`" + (f": {first}" if first else "")


class ToolBox:
    """All tools of a run, and the plain values that its cells find beside them."""

    def __init__(
        self, tools: Iterable[HostTool] = (), values: Mapping[str, tuple[Any, str, str]] | None = None
    ) -> None:
        self._tools = {(tool.to, tool.name): tool for tool in tools}
        self._values = dict(values or {})
        refuse_names([name for _, name in self._tools] + list(self._values))

    def of_rollout(self, depth: int) -> list[HostTool]:
        """Return the tools that the cells of a rollout at this depth have."""
        wanted = ("all", "root") if depth == 0 else ("all", "sub")
        return [tool for (to, _), tool in self._tools.items() if to in wanted]

    def of_subcalls(self) -> list[HostTool]:
        """Return the tools that plain sub-calls have."""
        return [tool for (to, _), tool in self._tools.items() if to == "sub"]

    def values(self, depth: int) -> dict[str, Any]:
        """Return the values that the cells of a rollout at this depth find."""
        wanted = ("all", "root") if depth == 0 else ("all", "sub")
        return {name: value for name, (value, _, to) in self._values.items() if to in wanted}

    def lines(self, depth: int) -> list[str]:
        """Return one line for each tool and value, for the prompt of a rollout at this depth."""
        shown = [tool.line() for tool in self.of_rollout(depth)]
        for name in self.values(depth):
            value, description, _ = self._values[name]
            shown.append(f"`{name}` ({type(value).__name__})" + (f": {description}" if description else ""))
        return shown


def load_tools(tools: Iterable[Tool]) -> ToolBox:
    """Import the tools of a task; raises `UsageError` that names the file when one cannot be had."""
    return ToolBox(
        HostTool(t.name, function := _function(t.python), inspect.getdoc(function) or "", t.to, t.repeatable)
        for t in tools
    )


def tools_of(given: Mapping[str, Any], to: str) -> tuple[list[HostTool], dict[str, tuple[Any, str, str]]]:
    """Sort what a Python user gives as tools into functions and plain values.

    Each is a function, a value, or {"tool": either, "description": text}. Raises `UsageError` with all mistakes at once.
    """
    tools: list[HostTool] = []
    values: dict[str, tuple[Any, str, str]] = {}
    wrong: list[str] = []
    for name, item in given.items():
        described = isinstance(item, Mapping) and "tool" in item and set(item) <= {"tool", "description"}
        thing = item["tool"] if described else item
        description = str(item.get("description", "")) if described else ""
        if callable(thing):
            tools.append(HostTool(name, thing, description or inspect.getdoc(thing) or "", to))
            continue
        try:
            values[name] = (plain(thing), description, to)
        except (TypeError, ValueError, OverflowError, RecursionError):
            wrong.append(f"{name} is a {type(thing).__name__}")
    if wrong:
        raise UsageError(f"tools: {'; '.join(wrong)}", "give functions, or plain data (text, numbers, lists, dicts)")
    return tools, values


def plain(value: Any) -> Any:
    """Return a value as the plain data that can go to a REPL and into the journal.

    Raises TypeError, ValueError, RecursionError, or OverflowError for whole numbers of more than 64 bits.
    """
    made = msgspec.to_builtins(value, builtin_types=(bytes,))
    msgspec.msgpack.encode(made)
    return made


def refuse_names(names: Iterable[str]) -> None:
    """Raise `UsageError`, naming all of them, for names that are no identifiers or that the REPL needs itself."""
    bad = [name for name in names if not str(name).isidentifier() or keyword.iskeyword(str(name))]
    taken = sorted({name for name in names if name in NAMES})
    if bad or taken:
        said = [f"not a name: {', '.join(map(repr, bad))}"] if bad else []
        said += [f"reserved: {', '.join(taken)}"] if taken else []
        raise UsageError(f"tools: {'; '.join(said)}", "give them other names")


def _function(place: str) -> Callable[..., Any]:
    file, _, name = place.rpartition(":")
    spec = importlib.util.spec_from_file_location(f"task_tools_{Path(file).stem}", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"tools: {file}: is no Python file", "name it as file.py:function")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(
            f"tools: {file}: {type(error).__name__}: {error}", "it is imported when the run starts"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"tools: {file} has no function {name!r}", "name it as file.py:function")
    return function  # type: ignore[no-any-return]


def _signature(function: Callable[..., Any]) -> str:
    for evaluated in (True, False):  # annotations that are texts are shown as what they name, where that can be found
        with suppress(Exception):
            return str(inspect.signature(function, eval_str=evaluated))
    return "(…)"


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        schema = TypeAdapter(function).json_schema()  # type: ignore[arg-type]
    except (PydanticUserError, NameError, TypeError, ValueError):
        schema = {}
    if schema.get("type") != "object":  # positional-only or unknown arguments: the model is told what it may send
        return {"type": "object", "properties": {}, "additionalProperties": True}
    return schema


async def _wait(result: Any) -> Any:
    return await result
