"""What pydantic found wrong, in the words of the person who wrote the file, at the place where it stands.

Every mistake is told, in the order of the file; none shows a value that could be a key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agent.errors import TaskError
from agent.taskfile import Document, Loc, Mistake, shown


def task_error(file: str, mistakes: Iterable[Mistake]) -> TaskError:
    """Give the one error that tells all mistakes, one a line, as `file:line:column: where: what`."""
    lines = [f"{file}:{m.place[0]}:{m.place[1]}: {m.message}" for m in sorted(set(mistakes))]
    return TaskError("\n".join(lines), "`rlm-agent schema` lists every key; `rlm-agent init` writes a task that works")


def mistakes_of(
    error: ValidationError, model: type[BaseModel], document: Document | None = None, data: Any = None
) -> Iterator[Mistake]:
    """Give a mistake for each thing that pydantic found; `model` is the record, `data` what it was made
    from.
    """
    for detail in error.errors(include_url=False):
        if detail["type"] == "default_factory_not_called":  # follows from another mistake
            continue
        loc = tuple(detail["loc"]) if document is None else _written(detail, data)
        place = (1, 1) if document is None else document.place(loc, of_key=detail["type"] == "extra_forbidden")
        label = f"{shown(loc)}: " if loc else ""
        yield Mistake(place, label + _message(detail, loc, model))


def did_you_mean(key: str, names: Iterable[str]) -> str | None:
    """Give the name that is most like `key`, or None when none is.

    `max_`, `num_` and the like before a name are passed over: people bring them from other programs.
    """
    bare = re.sub(r"^(max|min|num|n|total|limit)_", "", key.lower())
    names = list(names)

    def likeness(name: str) -> float:
        return max(difflib.SequenceMatcher(None, word, name).ratio() for word in (key.lower(), bare))

    best = max(names, key=likeness, default=None)
    return best if best is not None and likeness(best) >= 0.6 else None


def records(model: type[BaseModel]) -> Iterator[tuple[Loc, type[BaseModel]]]:
    """Give every record inside `model`, with the keys that lead to it."""
    yield (), model
    for name, field in model.model_fields.items():
        for inner in _inner(field.annotation):
            yield from (((name, *loc), record) for loc, record in records(inner))


def _inner(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _inner(argument)


def _written(detail: ErrorDetails, data: Any) -> Loc:
    """Give the location as the file has it, without the names of pydantic's own branches."""
    loc: list[str | int] = []
    for part in detail["loc"]:
        inner = dict(enumerate(data)) if isinstance(data, list) else data
        if isinstance(inner, dict) and part in inner:
            data = inner[part]
        elif not (detail["type"] == "missing" and part == detail["loc"][-1]):
            continue
        loc.append(part)
    return tuple(loc)


def _message(detail: ErrorDetails, loc: Loc, model: type[BaseModel]) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(str(loc[-1]), tuple(part for part in loc[:-1] if isinstance(part, str)), model)
    if kind == "missing":
        return "missing" + _purpose(loc)
    if kind == "value_error":
        return str(context["error"])
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "must be a mapping (`key: value`)"
    if kind in ("tuple_type", "list_type"):
        return "must be a list (`[…]`, or lines that start with `-`)"
    if kind == "greater_than":
        return f"must be more than {context['gt']:g}"
    if kind == "greater_than_equal":
        least = context["ge"]
        return f"must be at least {least / 2**20:g} MiB" if least > 1e6 else f"must be at least {least:g}"
    if kind == "string_pattern_mismatch":
        return "must be a short name: letters, digits, `_`, `-` and `.`, starting with a letter or digit"
    if kind == "literal_error":
        return f"must be one of {context['expected'].replace(' or ', ', ')}"
    if kind in ("bool_parsing", "bool_type"):
        return "must be true or false"
    if kind in ("float_parsing", "float_type"):
        return "must be a number"
    if kind in ("string_type", "path_type"):
        return "must be a text"
    message = detail["msg"]
    return message[:1].lower() + message[1:]


def _unknown(key: str, section: Loc, model: type[BaseModel]) -> str:
    if key in ("api_key", "key"):
        return "a key never stands in a task; put it in the environment and name the variable with `api_key_env`"
    known = dict(records(model))
    names = _names_at(section, known)
    guess = did_you_mean(key, names)
    if guess is None:
        elsewhere = [loc for loc, record in known.items() if key in record.model_fields and loc != section]
        guess = ".".join(map(str, (*elsewhere[0], key))) if elsewhere else None
    known_here = f"; known here: {', '.join(names)}" if names else ""
    return "unknown key" + (f", did you mean {guess!r}?" if guess else known_here)


def _names_at(section: Loc, known: dict[Loc, type[BaseModel]]) -> list[str]:
    if section in known:
        return list(known[section].model_fields)
    if section[:1] == ("models",):
        from agent.taskmodels import (  # a model's entry hides behind the ModelSpec it becomes
            ModelEntry,
            Price,
        )

        return list((Price if section[-1] == "price" else ModelEntry).model_fields)
    return []


def _purpose(loc: Loc) -> str:
    examples: dict[Loc, str] = {
        ("models",): "; write `models: {root: anthropic/claude-sonnet-4-5}`, or `models: offline/explorer`",
        ("models", "root"): "; name the model that writes the cells",
        ("goal",): "; say what is to be done",
    }
    return examples.get(loc, "")
