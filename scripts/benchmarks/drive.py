"""How a bench drives the program: scripted models that answer at once, and one whole completion with what it showed.

Where the package has `RLM`, completions over a text go through it; runs over files and long runs go through a task file.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

SEND = 'answer["content"] = {}\nanswer["ready"] = True'
_LIMITS = {"calls": 1_000_000, "depth": 2, "cell_timeout": "600s"}


class Done(msgspec.Struct, frozen=True):
    """A completion that ended well: its answer, its seconds of wall time, the tokens of each prompt."""

    answer: str
    seconds: float
    prompts: tuple[int, ...] = ()


def cell(code: str) -> str:
    """Return a reply with one cell."""
    return f"```repl\n{code}\n```"


def entries(code: str, delay: float = 0.0) -> list[dict[str, Any]]:
    """Return a script: leaves say `ok` and children answer `ok`, both after `delay` seconds; the root runs `code`."""
    return [
        {"match": "^leaf", "reply": "ok", "delay": delay},
        {"match": r"<task>\s*child", "reply": cell(SEND.format("'ok'")), "delay": delay},
        {"reply": cell(code), "forever": True},
    ]


def has_rlm() -> bool:
    """Say whether the package has `RLM`."""
    return hasattr(importlib.import_module("agent"), "RLM")


def way() -> str:
    """Say how completions over a text are driven."""
    return "through RLM" if has_rlm() else "through a task file, its new workspace included"


@contextmanager
def repl(folder: Path, shown: tuple[Path, ...] = ()) -> Iterator[Any]:
    """Give a REPL in the strongest sandbox that works here, not yet initialised; `shown` are files it may read."""
    from agent.repl.host import Repl
    from agent.repl.sandbox import Launcher, SandboxSpec, choose

    opened = Repl(Launcher(SandboxSpec(writable=folder, read_only=shown), choose("auto")), folder, folder / "repl.log")
    try:
        yield opened
    finally:
        opened.kill()


@contextmanager
def completions(folder: Path, script: list[dict[str, Any]], **limits: Any) -> Iterator[Any]:
    """Give a function that runs one completion over a small text and returns it as `Done`."""
    file = _write(folder, script)
    if not has_rlm():
        yield lambda: through_task(folder, script, **limits)
        return
    rlm = importlib.import_module("agent").RLM
    settings = {"model": "offline/scripted", "model_params": {"script": str(file)}, "limits": {**_LIMITS, **limits}}
    with rlm(**settings) as opened:

        def once() -> Done:
            began = time.perf_counter()
            done = opened.completion("hello", question="go")
            return Done(done.response, time.perf_counter() - began)

        yield once


def through_task(folder: Path, script: list[dict[str, Any]], context: Path | None = None, **limits: Any) -> Done:
    """Run a task file over `context` in a new workspace; raises RuntimeError when it does not end with an answer."""
    from agent.api import run
    from agent.task import Task

    os.environ.setdefault("RLM_AGENT_HOME", str(folder / "home"))
    number = len(list(folder.glob("task-*.yaml")))
    file = folder / f"task-{number}.yaml"
    root = {"model": "offline/scripted", "params": {"script": str(_write(folder, script))}}
    task = {"version": 1, "goal": "go", "models": {"root": root}, "limits": {**_LIMITS, **limits}}
    file.write_text(yaml.safe_dump(task | ({"context": [{"path": str(context)}]} if context else {})))
    prompts: list[int] = []

    def watch(kind: str, /, **facts: Any) -> None:
        if kind == "step" and facts.get("depth") == 0:
            prompts.append(int(facts["prompt_tokens"]))

    loaded = Task.load(file)
    began = time.perf_counter()
    outcome = run(loaded, folder / f"work-{number}", watch)
    seconds = time.perf_counter() - began
    if outcome.kind not in ("done", "budget"):
        raise RuntimeError(f"the run ended with {outcome.kind}: {outcome.reason}")
    return Done(outcome.answer, seconds, tuple(prompts))


def _write(folder: Path, script: list[dict[str, Any]]) -> Path:
    file = folder / f"script-{abs(hash(repr(script)))}.yaml"
    file.write_text(yaml.safe_dump(script))
    return file
