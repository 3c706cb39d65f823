"""Runs the explorer's cells in this process, against real documents and a sub-model of a few lines."""

from __future__ import annotations

import io
import os
import re
import traceback
from collections.abc import Callable, Iterable
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

from agent.context import open_context
from agent.context.manifest import ContextSource, build_manifest
from agent.explorer.model import Explorer
from agent.models.base import Message, ModelRequest, ModelSpec, complete

SubModel = Callable[[str, dict[str, Any] | None], Any]


def first_option(prompt: str, schema: dict[str, Any] | None = None) -> Any:
    """Answer with the first allowed value, or with the passage's first line."""
    if schema is not None:
        return {"answer": schema["properties"]["answer"]["enum"][0]}
    return prompt.split("\n")[0]


def failing(prompt: str, schema: dict[str, Any] | None = None) -> Any:
    """Fail as a call does: with something falsy."""
    return None


class CellRun:
    """One rollout: the prompt shows the task and the five latest steps, as the loop's does."""

    def __init__(self, goal: str, material: Path, folder: Path, sub: SubModel = first_option) -> None:
        self.goal, self.folder, self.steps = goal, folder, []
        self.steps: list[tuple[str, str]] = []
        self.commits: list[str] = []
        self.model = Explorer(ModelSpec("offline/explorer"))
        self.names: dict[str, Any] = {
            "context": open_context(build_manifest([ContextSource(str(material))])),
            "answer": {"content": "", "ready": False},
            "COMMIT": lambda summary, contribution=None: self.commits.append(summary),
            "llm_query": lambda prompt, schema=None, **_: sub(prompt, schema),
            "llm_query_batched": lambda prompts, schema=None, **_: [sub(prompt, schema) for prompt in prompts],
        }

    def messages(self) -> tuple[Message, ...]:
        """Return what the model is shown now."""
        shown = [Message("system", "rules"), Message("user", f"<task>\n{self.goal}\n</task>")]
        for number, (reply, observation) in list(enumerate(self.steps, 1))[-5:]:
            shown += [
                Message("assistant", reply),
                Message("user", f'<observation step="{number}">\n{observation}\n</observation>'),
            ]
        state = f"<state>\nstep: {len(self.steps) + 1}\n</state>"
        return (*shown[:-1], Message("user", f"{shown[-1].content}\n\n{state}"))

    def step(self) -> str:
        """Ask for a cell, run it, and return the observation."""
        reply = complete(self.model, ModelRequest(self.messages())).text
        (code,) = re.findall(r"```repl\n(.*?)```", reply, re.DOTALL)
        out = io.StringIO()
        with chdir(self.folder), redirect_stdout(out):
            try:
                exec(compile(code, "<cell>", "exec"), self.names)
            except Exception:
                out.write(traceback.format_exc())
        self.steps.append((reply, out.getvalue()))
        return out.getvalue()

    def finish(self, limit: int = 60) -> str:
        """Step until the answer is ready and return it."""
        for _ in range(limit):
            self.step()
            if self.names["answer"]["ready"]:
                return str(self.names["answer"]["content"])
        raise AssertionError(f"no answer in {limit} steps; the last observation:\n{self.steps[-1][1]}")

    @property
    def report(self) -> str:
        """The report as written."""
        return (self.folder / "report.md").read_text(encoding="utf-8")

    def answers(self) -> list[str]:
        """The report's answers, in order."""
        return re.findall(r"(?m)^Answer: (.*)$", self.report)


def fresh(base: Path, name: str = "work") -> Path:
    """Make an empty folder."""
    os.makedirs(base / name)
    return base / name


def write_all(root: Path, files: dict[str, str]) -> Path:
    """Plant files."""
    for name, text in _sorted(files):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def _sorted(files: dict[str, str]) -> Iterable[tuple[str, str]]:
    return sorted(files.items())
