"""Commands that work: start, resume, stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from agent.outcome import Outcome

RunArg = Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run's id, name or workspace folder.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, nothing else.")]
DetachFlag = Annotated[bool, typer.Option("--detach", help="Work in the background and return at once.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(start)
    app.command()(resume)
    app.command()(stop)


def start(
    task: Annotated[Path, typer.Option("--task", "-t", help="The task file (task.yaml).")],
    workspace: Annotated[Path | None, typer.Option("--workspace", "-w", help="Work in this folder.")] = None,
    detach: DetachFlag = False,
    as_json: JsonFlag = False,
) -> int:
    """Begin a run, or go on with it if it exists."""
    from agent.daemon import prepare, workspace_of
    from agent.task import Task

    loaded = Task.load(task)
    path = workspace_of(loaded, workspace)
    for note in prepare(loaded, path):
        print(f"note: {note}", file=sys.stderr)
    return go_on(path, detach, as_json)


def resume(run: RunArg = None, detach: DetachFlag = False, as_json: JsonFlag = False) -> int:
    """Go on with a run that was stopped or killed."""
    from agent.home import find_workspace

    return go_on(find_workspace(run), detach, as_json)


def go_on(path: Path, detach: bool, as_json: bool) -> int:
    """Work on the run in this workspace, here or in the background."""
    return _detached(path, as_json) if detach else _attached(path, as_json)


def stop(
    run: RunArg = None,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for the step to end.")] = False,
    as_json: JsonFlag = False,
) -> int:
    """Stop a run after its step; `resume` goes on."""
    from agent.errors import UsageError
    from agent.home import find_workspace
    from agent.status import status_of
    from state.lease import process_started

    path = find_workspace(run)
    document = status_of(path)
    pid = document["pid"]
    if pid is None:
        raise UsageError(f"{path}: this run is not running", "rlm-agent resume goes on with it")
    born = process_started(pid)
    for _ in range(2 if now else 1):
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.1)
    while process_started(pid) == born:
        time.sleep(0.05)
    document = status_of(path)
    print(json.dumps(document) if as_json else f"stopped at step {document['step']}; rlm-agent resume goes on")
    return 0


def _attached(path: Path, as_json: bool) -> int:
    """Work in this process, with progress on the terminal, until the run ends."""
    from agent.cli.progress import Progress
    from agent.daemon import work
    from agent.outcome import EXIT_CODES
    from agent.status import status_of

    stop = threading.Event()
    _on_signals(stop)
    with Progress(quiet=as_json) as progress:
        outcome: Outcome = work(path, progress.watch, stop)
    with suppress(BrokenPipeError):  # nobody reads it; the exit code still tells the outcome
        if as_json:
            print(json.dumps(status_of(path)))
        else:
            _say_outcome(path, outcome, status_of(path))
    return EXIT_CODES.get(outcome.kind, 1)


def _detached(path: Path, as_json: bool) -> int:
    """Start a daemon of its own session for this run and wait until it holds it."""
    from agent.errors import AgentError
    from agent.status import status_of

    log = path / ".rlm-agent" / "daemon.log"
    with log.open("ab") as sink:
        daemon = subprocess.Popen(
            [sys.executable, "-P", "-m", "agent.cli.main", "resume", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            cwd=path,
        )
    while True:
        document = status_of(path)
        if document["pid"] == daemon.pid:
            break
        if daemon.poll() is not None:
            if daemon.returncode == 0:
                break
            tail = log.read_text("utf-8", "replace").strip().splitlines()[-3:]
            raise AgentError("the daemon ended at once: " + " / ".join(tail), f"see {log}")
        time.sleep(0.05)
    if as_json:
        print(json.dumps(status_of(path)))
    else:
        print(f"run {document['run']} works in the background (pid {daemon.pid})\n  workspace  {path}")
        print("  rlm-agent status | log --follow | stop")
    return 0


def _on_signals(stop: threading.Event) -> None:
    """First signal: stop after the step. Second: at once; the journal makes that safe."""

    def handle(number: int, _frame: Any) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()
        print("\nstopping after this step; once more stops at once (nothing is lost)", file=sys.stderr)

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
    if not sys.stdout.isatty():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _say_outcome(path: Path, outcome: Outcome, document: dict[str, Any]) -> None:
    spend = document["spend"]
    print(f"\n{outcome.kind}: {outcome.reason}")
    if outcome.answer.strip():
        print(outcome.answer.strip())
    print(
        f"\n  steps {document['step']} · calls {document['calls']} · "
        f"tokens {spend['tokens_in'] + spend['tokens_out']:,} · ${spend['usd']:.4f}"
        + (f" · {spend['unpriced_calls']} calls of unknown price" if spend["unpriced_calls"] else "")
        + f" · largest prompt {document['prompt_tokens']['max']:,} tokens"
    )
    print(f"  workspace  {path}\n  the story  git -C {path} log")
    if outcome.kind == "parked" and outcome.reason.startswith("question: "):
        print(f'  answer     rlm-agent say "…" {document["run"]} --resume')
    elif outcome.kind != "done":
        print(f"  go on      rlm-agent resume {document['run']}")
