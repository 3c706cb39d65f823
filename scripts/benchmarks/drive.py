"""How a bench drives the program: models that answer from a script, completions, single cells, and long runs.

Only public names are used, but for the single cell: what it costs alone can't be seen from outside.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

SEND = 'answer["content"] = {}\nanswer["ready"] = True'
_LIMITS = {"calls": 1_000_000, "depth": 2, "cell_timeout": "600s"}


class Done(msgspec.Struct, frozen=True):
    """A completion that ended well: its answer and its seconds of wall time."""

    answer: str
    seconds: float


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


@contextmanager
def repl(folder: Path) -> Iterator[Any]:
    """Give a REPL in the strongest sandbox that works here, with an empty context."""
    from agent.repl.host import Repl
    from agent.repl.sandbox import Launcher, SandboxSpec, choose

    opened = Repl(Launcher(SandboxSpec(writable=folder), choose("auto")), folder, folder / "repl.log")
    try:
        opened.init({"context": {"value": ""}})
        yield opened
    finally:
        opened.kill()


class NoCalls:
    """Answers no call: what a cell that makes none is run with."""

    def serve(self, kind: str, args: dict[str, Any]) -> Future[Any]:
        """Refuse."""
        raise RuntimeError(f"a cell that makes no calls asked for {kind}")

    def cancel(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def completions(folder: Path, script: list[dict[str, Any]], **limits: Any) -> Iterator[Callable[..., Done]]:
    """Give a function that runs one completion over a text (or a file, given as `Path`) and returns it as `Done`."""
    from agent import RLM

    settings = {"model_params": {"script": str(_write(folder, script))}, "limits": {**_LIMITS, **limits}}
    with RLM("offline/scripted", **settings) as rlm:

        def once(context: Any = "hello") -> Done:
            began = time.perf_counter()
            done = rlm.completion(context, question="go")
            seconds = time.perf_counter() - began
            if done.outcome.kind != "done":
                raise RuntimeError(f"the completion ended with {done.outcome.kind}: {done.outcome.reason}")
            return Done(done.response, seconds)

        yield once


def steps(folder: Path, script: list[dict[str, Any]], number: int) -> tuple[int, ...]:
    """Run a task file for a number of steps in a new workspace; returns the tokens of each prompt."""
    from agent.api import run
    from agent.task import Task

    os.environ.setdefault("RLM_AGENT_HOME", str(folder / "home"))
    file = folder / "task.yaml"
    root = {"model": "offline/scripted", "params": {"script": str(_write(folder, script))}}
    limits = {**_LIMITS, "steps": number}
    file.write_text(yaml.safe_dump({"version": 1, "goal": "go", "models": {"root": root}, "limits": limits}))
    prompts: list[int] = []

    def watch(kind: str, /, **facts: Any) -> None:
        if kind == "step" and facts.get("depth") == 0:
            prompts.append(int(facts["prompt_tokens"]))

    outcome = run(Task.load(file), folder / f"work-{number}", watch)
    if len(prompts) != number:
        raise RuntimeError(f"the run ended at step {len(prompts)} with {outcome.kind}: {outcome.reason}")
    return tuple(prompts)


def _write(folder: Path, script: list[dict[str, Any]]) -> Path:
    file = folder / f"script-{abs(hash(repr(script)))}.yaml"
    file.write_text(yaml.safe_dump(script))
    return file
