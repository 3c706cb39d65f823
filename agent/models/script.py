"""Read the script of `offline/scripted`: a YAML list of entries, every mistake told as `file:line: what`.

An entry is a `reply`, `tool_calls` (with or without a reply) or an `error`, repeated `times` times or `forever`, after a `delay`
in seconds; one with `match` answers only requests whose last message matches that regular expression.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from agent.errors import UsageError
from agent.models.base import ToolCall

KINDS = ("not_executed", "ambiguous", "rejected", "context_overflow", "key", "quota", "unknown")
_KEYS = {"reply", "error", "delay", "times", "forever", "match", "reasoning", "finish", "tool_calls"}
_CALL_KEYS = {"name", "arguments"}
_ERROR_KEYS = {"kind", "message", "retry_after"}
_FINISHES = ("stop", "length", "tool_calls", "other")


class Failure(msgspec.Struct, frozen=True):
    """An error to be raised instead of a reply; `kind` is one of `KINDS`, `retry_after` in seconds."""

    kind: str
    message: str
    retry_after: float | None = None


class Entry(msgspec.Struct, frozen=True):
    """One entry of a script. `times` None is for ever; `line` is where it stands."""

    number: int
    line: int
    reply: str | None = None
    error: Failure | None = None
    delay: float = 0.0
    times: int | None = 1
    match: str | None = None
    reasoning: str = ""
    finish: str = "stop"
    tool_calls: tuple[ToolCall, ...] = ()


def read_script(path: Path) -> tuple[Entry, ...]:
    """Return the entries of a script; raises `UsageError` that begins with `file:line`."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", "params.script names a YAML file, relative to the task's folder"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8", "save the script as UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise UsageError(
            f"{path}:{line}: {getattr(error, 'problem', None) or error}", "the script is no valid YAML"
        ) from error
    if not isinstance(root, yaml.SequenceNode) or not root.value:
        raise _mistake(path, root, "a script is a list of entries, each with `reply` or `error`")
    return tuple(_entry(path, number, node) for number, node in enumerate(root.value))


def _entry(path: Path, number: int, node: yaml.Node) -> Entry:
    fields = _mapping(path, node, _KEYS)
    replies = "reply" in fields or "tool_calls" in fields
    if replies == ("error" in fields):
        raise _mistake(path, node, "an entry has either `reply` or `error`; `tool_calls` are a reply")
    times: int | None = _typed(path, fields, "times", int, 1)
    if times is not None and times < 1:
        raise _mistake(path, fields["times"][0], "times must be at least 1")
    if _typed(path, fields, "forever", bool, False):
        times = None
    match = _typed(path, fields, "match", str, None)
    if match is not None:
        try:
            re.compile(match)
        except re.error as error:
            raise _mistake(path, fields["match"][0], f"match is no regular expression: {error}") from error
        if replies:
            if "times" in fields:
                raise _mistake(
                    path, fields["times"][0], "a `match` with a `reply` answers every time; `times` has no effect"
                )
            times = None
    calls = _calls(path, number, fields["tool_calls"][0]) if "tool_calls" in fields else ()
    finish = _typed(path, fields, "finish", str, "tool_calls" if calls else "stop")
    if finish not in _FINISHES:
        raise _mistake(path, fields["finish"][0], f"finish must be one of {', '.join(_FINISHES)}")
    return Entry(
        number=number,
        line=node.start_mark.line + 1,
        reply=_typed(path, fields, "reply", str, "") if replies else None,
        error=_failure(path, fields["error"][0]) if "error" in fields else None,
        delay=_seconds(path, fields, "delay") or 0.0,
        times=times,
        match=match,
        reasoning=_typed(path, fields, "reasoning", str, ""),
        finish=finish,
        tool_calls=calls,
    )


def _calls(path: Path, number: int, node: yaml.Node) -> tuple[ToolCall, ...]:
    """Read the functions to call; `arguments` is a mapping, or a text that is handed on as it is, broken or not."""
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise _mistake(path, node, "tool_calls is a list of {name, arguments}")
    calls = []
    for at, item in enumerate(node.value, 1):
        fields = _mapping(path, item, _CALL_KEYS)
        name = _typed(path, fields, "name", str, "")
        given = fields["arguments"][1] if "arguments" in fields else {}
        if not name or not isinstance(given, (dict, str)):
            raise _mistake(path, item, "a tool call has a name, and arguments that are a mapping or a text")
        calls.append(ToolCall(f"call_{number}_{at}", name, given if isinstance(given, str) else json.dumps(given)))
    return tuple(calls)


def _failure(path: Path, node: yaml.Node) -> Failure:
    fields = _mapping(path, node, _ERROR_KEYS)
    kind = _typed(path, fields, "kind", str, "")
    if kind not in KINDS:
        raise _mistake(path, fields["kind"][0] if "kind" in fields else node, f"kind must be one of {', '.join(KINDS)}")
    message = _typed(path, fields, "message", str, f"the script says {kind}")
    return Failure(kind, message, _seconds(path, fields, "retry_after"))


def _mapping(path: Path, node: yaml.Node, known: set[str]) -> dict[str, tuple[yaml.Node, Any]]:
    """Return {key: (node, value)} of a mapping without unknown or doubled keys."""
    if not isinstance(node, yaml.MappingNode):
        raise _mistake(path, node, f"must be a mapping with {', '.join(sorted(known))}")
    loader = yaml.SafeLoader("")
    found: dict[str, tuple[yaml.Node, Any]] = {}
    for key, value in node.value:
        if key.value not in known:
            raise _mistake(path, key, f"unknown key {key.value!r}; known are {', '.join(sorted(known))}")
        if key.value in found:
            raise _mistake(path, key, f"{key.value} stands here twice")
        found[key.value] = (value, loader.construct_object(value, deep=True))
    return found


def _typed(path: Path, fields: dict[str, tuple[yaml.Node, Any]], name: str, wanted: type, default: Any) -> Any:
    if name not in fields:
        return default
    node, value = fields[name]
    if isinstance(value, wanted) and not (wanted is int and isinstance(value, bool)):
        return value
    if wanted is str and value is None and isinstance(node, yaml.ScalarNode):
        return ""  # `reply:` with nothing behind it is an empty reply
    if wanted is str and isinstance(value, (int, float)) and isinstance(node, yaml.ScalarNode):
        return node.value  # `reply: 42`, as it is written
    names = {str: "a text", int: "a whole number", bool: "true or false"}
    raise _mistake(path, node, f"{name} must be {names[wanted]}")


def _seconds(path: Path, fields: dict[str, tuple[yaml.Node, Any]], name: str) -> float | None:
    if name not in fields:
        return None
    node, value = fields[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise _mistake(path, node, f"{name} must be a number of seconds")
    return float(value)


def _mistake(path: Path, node: yaml.Node | None, message: str) -> UsageError:
    line = node.start_mark.line + 1 if node is not None else 1
    return UsageError(f"{path}:{line}: {message}", "see the docs on offline/scripted")
