"""What `RLM.completion` is asked: a question, and the context that its REPL finds, as text, data or files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from agent.context.manifest import ContextSource, Manifest, build_manifest
from agent.errors import UsageError
from agent.home import document_cache
from agent.places import shown_paths
from state.records import StepRecord

_INLINE = 256 << 20  # bytes of a context that is given as text or data
_SHOWN = 2000  # characters of a prompt that is shown to the model as its goal
_IN_CONTEXT = "Answer the question or carry out the request that stands in `context`."


class Material(msgspec.Struct, frozen=True):
    """The goal, the packed frame of the context, its manifest when it is files, and what the caller gave."""

    goal: str
    packed: bytes
    manifest: Manifest | None
    shown: Any
    shown_paths: tuple[Path, ...] = ()


def material_of(prompt: Any, question: str | None, context: Any, prologue: str = "") -> Material:
    """Sort out what is the question and what is the context; raises `UsageError` for what cannot be either.

    `prologue` is said before every question.
    """
    if context is not None:
        if question is not None:
            raise UsageError("completion: both question= and context= are given", "completion(question, context=…)")
        question, prompt = _text(prompt, "the question"), context
    if question is None and isinstance(prompt, str):
        question = prompt if len(prompt) <= _SHOWN else _IN_CONTEXT
    paths = _paths(prompt)
    if paths is not None:
        manifest = build_manifest([ContextSource(str(path.absolute())) for path in paths], document_cache())
        frame: dict[str, Any] = {"manifest": msgspec.to_builtins(manifest), "paths": [str(p.absolute()) for p in paths]}
    else:
        manifest, frame = None, {"value": prompt}
    packed = _packed(frame)
    if len(packed) > _INLINE:
        raise UsageError(
            f"completion: a context of {len(packed)} bytes is too large to be given inline",
            "write it to a file and give its Path: files of any size are looked at in place",
        )
    absolute = [path.absolute() for path in paths or ()]
    visible = shown_paths(absolute, manifest) if manifest is not None else ()
    goal = question or _IN_CONTEXT
    return Material(f"{prologue}\n\n{goal}" if prologue else goal, packed, manifest, prompt, visible)


def conversation(goal: str, done: Sequence[StepRecord]) -> list[dict[str, str]]:
    """Return an earlier completion as chat messages: role and content."""
    messages = [{"role": "user", "content": goal}]
    for step in done:
        messages.append({"role": "assistant", "content": step.reply or ""})
        messages.append({"role": "user", "content": step.observation or ""})
    return messages


def _paths(prompt: Any) -> list[Path] | None:
    if isinstance(prompt, Path):
        return [prompt]
    if isinstance(prompt, (list, tuple)) and prompt and all(isinstance(item, Path) for item in prompt):
        return list(prompt)
    return None


def _packed(frame: dict[str, Any]) -> bytes:
    value = frame.get("value", "")
    if not isinstance(value, (str, dict, list, tuple)):
        raise UsageError(
            f"completion: a {type(value).__name__} is no context",
            "give a text, a list, a dict, or paths (pathlib.Path)",
        )
    try:
        return msgspec.msgpack.encode(msgspec.to_builtins(frame, builtin_types=(bytes,)))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(
            f"completion: the context holds what is no plain data: {error}", "use text, numbers, lists, dicts"
        ) from error


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"completion: {what} is a {type(value).__name__}", "give it as text")
    return value
