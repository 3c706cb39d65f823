"""Commands with which a person steers a run: say, limits, rewind, fork."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from agent.cli.running import DetachFlag, JsonFlag, RunArg, go_on


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (say, limits, rewind, fork):
        app.command()(command)


def say(
    text: Annotated[str, typer.Argument(help="What the run is told in its next prompt.")],
    run: RunArg = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that waits, in the background.")] = False,
    as_json: JsonFlag = False,
) -> int:
    """Tell a run something, or answer its question; its next prompt shows it once."""
    from agent.errors import UsageError
    from agent.home import find_workspace
    from agent.inbox import post
    from agent.status import status_of

    path = find_workspace(run)
    document = status_of(path)
    if document["outcome"] is not None and document["outcome"]["kind"] == "done":
        raise UsageError(f"{path}: this run is done, and hears nothing any more", "rlm-agent rewind STEP, then say it")
    number = post(path, text)
    waits = document["state"] != "running"
    if resume and waits:
        return go_on(path, True, as_json)
    told = {"message": number, "run": document["run"], "state": document["state"]}
    if as_json:
        print(json.dumps(told))
    else:
        print("said; " + ("rlm-agent resume goes on with it" if waits else "the next step hears it"))
    return 0


def limits(
    changes: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="e.g. steps=500")] = None,
    run: Annotated[str | None, typer.Option("--run", help="A run's id, name or workspace folder.")] = None,
    as_json: JsonFlag = False,
) -> int:
    """Show a run's limits, or change them; a running run takes them at its next step."""
    from agent.errors import UsageError
    from agent.home import find_workspace
    from agent.limits import change_limits

    pairs = [change.partition("=") for change in changes or ()]
    if wrong := [key for key, equals, _ in pairs if not equals]:
        raise UsageError(f"{wrong[0]!r} is no KEY=VALUE", "rlm-agent limits steps=500 cost_usd=20")
    changed = change_limits(find_workspace(run), {key.strip(): value.strip() for key, _, value in pairs})
    shown: dict[str, Any] = changed.model_dump()
    print(json.dumps(shown) if as_json else "\n".join(f"{key:<14} {value}" for key, value in shown.items()))
    return 0


def rewind(
    step: Annotated[int, typer.Argument(help="The step whose end the run goes back to.")],
    run: RunArg = None,
    as_json: JsonFlag = False,
) -> int:
    """Take a run that is not running back to the end of a step; what came later is kept."""
    from agent.fork import rewind_run
    from agent.home import find_workspace

    path = find_workspace(run)
    done = rewind_run(path, step)
    facts = {"workspace": str(path), "step": done.step, "from": done.last, "kept": done.kept, "rescue": done.rescue}
    if as_json:
        print(json.dumps(facts))
        return 0
    print(f"back at step {done.step} (from {done.last}); rlm-agent resume goes on from there")
    print(f"  what came later  git -C {path} for-each-ref {done.kept}")
    if done.rescue:
        print(f"  files before     git -C {path} show {done.rescue}")
    return 0


def fork(
    step: Annotated[int, typer.Argument(help="The step from whose end the new run goes on.")],
    run: RunArg = None,
    workspace: Annotated[Path | None, typer.Option("--workspace", "-w", help="The new run's folder.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The new run's name.")] = None,
    start: Annotated[bool, typer.Option("--start", help="Begin to work on it at once.")] = False,
    detach: DetachFlag = False,
    as_json: JsonFlag = False,
) -> int:
    """Make a second run that goes on from a step of the first, which is only read."""
    from agent import home
    from agent.fork import fork as make_fork
    from agent.status import status_of

    path = home.find_workspace(run)
    called = name or f"{status_of(path)['task']}-{step}"
    made = make_fork(path, step, (workspace or home.default_workspace(called)).absolute(), called)
    if start or detach:
        return go_on(Path(made.workspace), detach, as_json)
    if as_json:
        print(json.dumps({"run": made.run, "task": made.name, "workspace": made.workspace, "step": made.step}))
    else:
        print(f"run {made.run} ({made.name}) stands at step {made.step}\n  workspace  {made.workspace}")
        print(f"  go on      rlm-agent resume {made.run}")
    return 0
