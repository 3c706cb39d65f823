"""The task's `accept`: a run is done only when all of it holds. Commands run in the sandbox, in the workspace."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from agent.repl.sandbox import Launcher
from agent.task import Task

_SECONDS = 600.0
_SHOWN = 2000
_PATH = re.compile(r"(?<![\w.])/[^\s:;'\"=]+")


def paths_shown(task: Task) -> tuple[Path, ...]:
    """Return what the checks may read beside the workspace: the task's folder, and existing paths that a command names.

    Cells do not see them: the task's folder may be a home with keys in it.
    """
    named = [Path(word) for check in task.accept for word in _PATH.findall(check.run or "")]
    return (task.directory, *(path.resolve() for path in named if path.exists() and len(path.parts) > 2))


def problems_of(task: Task, workspace: Path, launcher: Launcher) -> list[str]:
    """Return what does not hold yet, one text a check; empty when all holds."""
    problems = []
    for check in task.accept:
        if check.file is not None and not _is_there(workspace, check.file):
            problems.append(f"accept: {check.file} is missing, empty, or a link out of the workspace")
        if check.run is not None and (problem := _run(check.run, workspace, launcher)):
            problems.append(problem)
    return problems


def _is_there(workspace: Path, file: str | Path) -> bool:
    path = workspace / file
    if not path.is_file() or path.stat().st_size == 0:
        return False
    inside = path.is_relative_to(workspace) and ".." not in path.parts
    return not inside or path.resolve().is_relative_to(workspace.resolve())


def _run(command: str, workspace: Path, launcher: Launcher) -> str:
    with tempfile.TemporaryFile() as output:
        process = launcher.launch(["/bin/sh", "-c", command], cwd=workspace, stdout=output, stderr=output)
        try:
            code = process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            return f"accept: `{command}` did not end within {_SECONDS:g} s"
        finally:
            launcher.kill(process)
        if code == 0:
            return ""
        output.seek(0)
        text = output.read().decode("utf-8", "replace").strip()
    shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}\n…\n{text[-_SHOWN // 2 :]}"
    return f"accept: `{command}` failed with exit code {code}:\n{shown}"
