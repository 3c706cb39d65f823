"""Commands that only look: status, log, show, verify."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from agent.cli.running import JsonFlag, RunArg

_SHOWN = 100


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (status, log, show, verify):
        app.command()(command)


def status(run: RunArg = None, as_json: JsonFlag = False) -> int:
    """Tell where a run stands; without RUN and outside of a workspace, list all runs."""
    from agent.home import find_workspace, known_runs
    from agent.status import status_of

    if run is None and not _inside_workspace() and len(known_runs()) != 1:
        documents = [status_of(Path(entry.workspace)) for entry in known_runs()]
        print(json.dumps({"runs": documents}) if as_json else _table(documents))
        return 0
    document = status_of(find_workspace(run), folding=True)
    print(json.dumps(document) if as_json else _describe(document))
    return 0


def log(
    run: RunArg = None,
    steps: Annotated[bool, typer.Option("--steps", help="Show each step instead of the commits.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the run goes on.")] = False,
    as_json: JsonFlag = False,
) -> int:
    """Tell the story of a run: its commits, or its steps."""
    from agent.home import find_workspace
    from agent.status import status_of

    path = find_workspace(run)
    if not steps and not follow:
        return _log_commits(path, as_json)
    after = 0
    while True:
        rows = [row for row in _steps(path, after) if row["state"] == "done"]
        if as_json and not follow:
            print(json.dumps({"steps": rows}))
            return 0
        for row in rows:
            print(json.dumps(row) if as_json else _step_line(row), flush=True)
        after = rows[-1]["step"] if rows else after
        if not follow or status_of(path)["pid"] is None:
            return 0
        time.sleep(0.5)


def show(
    step: Annotated[int, typer.Argument(help="The step's number.")],
    run: RunArg = None,
    as_json: JsonFlag = False,
) -> int:
    """Show one step in full: reply, cell, observation, calls."""
    from agent.errors import UsageError
    from agent.home import find_workspace

    path = find_workspace(run)
    rows = _steps(path, step - 1, step)
    if not rows:
        raise UsageError(f"{path}: there is no step {step}", "rlm-agent log --steps lists them")
    row = rows[0] | {"sub_calls": _calls(path, step), "said": _said(path, step)}
    if as_json:
        print(json.dumps(row))
        return 0
    print(f"step {step} ({row['state']}), prompt {row['prompt_tokens']} tokens\n")
    for text in row["said"]:
        print(f"the user said: {text}\n")
    print(f"{row['reply'] or ''}\n")
    print(f"observation:\n{row['observation'] or '(none yet)'}\n")
    for call in row["sub_calls"]:
        print(f"{call['kind']:<8} {call['state']:<8} {call['model'] or '':<20} {_short(call['outcome'])}")
    return 0


def verify(run: RunArg = None, as_json: JsonFlag = False) -> int:
    """Hold the journal against git; exit 1 when they disagree or one is damaged."""
    from agent.home import find_workspace
    from agent.verify import problems_in

    path = find_workspace(run)
    problems = problems_in(path)
    if as_json:
        print(json.dumps({"workspace": str(path), "ok": not problems, "problems": problems}))
    else:
        print("\n".join(problems) or f"{path}: journal and git are sound and agree")
    return 1 if problems else 0


def _log_commits(path: Path, as_json: bool) -> int:
    from workspaces.workspace import Workspace

    workspace = Workspace.open(path)
    try:
        entries = workspace.log(workspace.head().branch, None)
    finally:
        workspace.close()
    if as_json:
        rows = [
            {
                "commit": e.sha,
                "subject": e.subject,
                "body": e.body,
                "trailers": dict(e.trailers),
                "when": e.when,
            }
            for e in entries
        ]
        print(json.dumps({"commits": rows}))
        return 0
    for entry in entries:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.when))
        print(f"{entry.sha[:8]}  {when}  step {entry.trailers.get('Rlm-Step', '-'):>4}  {entry.subject}")
    return 0


def _steps(path: Path, after: int, last: int = 1 << 60) -> list[dict[str, Any]]:
    from agent.repl.cells import parse_thought
    from state import runs, steps
    from state.journal import open_reader

    engine = open_reader(path / ".rlm-agent" / "journal.db")
    try:
        with engine.connect() as connection:
            root = runs.root_rollout(connection)
            found = [] if root is None else steps.steps_between(connection, root.id, after + 1, last)
    finally:
        engine.dispose()
    return [
        {
            "step": r.seq,
            "state": r.state,
            "thought": parse_thought(r.reply or ""),
            "reply": r.reply,
            "cell": r.cell,
            "observation": r.observation,
            "failed": bool(r.failed),
            "prompt_tokens": r.prompt_tokens,
            "commit": r.commit,
        }
        for r in found
    ]


def _calls(path: Path, seq: int) -> list[dict[str, Any]]:
    import msgspec

    from state import calls, runs
    from state.journal import open_reader

    engine = open_reader(path / ".rlm-agent" / "journal.db")
    try:
        with engine.connect() as connection:
            root = runs.root_rollout(connection)
            found = [] if root is None else calls.calls_of_step(connection, root.id, seq)
    finally:
        engine.dispose()
    rows = []
    for call in found:
        text = ""
        told = msgspec.msgpack.decode(call.outcome) if call.outcome else ""
        if isinstance(told, dict):  # a tool's value, a model's or a git call's text
            text = str(told.get("value", told.get("text", "")))
        elif told:
            text = str(told)
        asked = msgspec.msgpack.decode(call.request) if call.request else []
        rows.append(
            {
                "id": call.id,
                "kind": call.kind,
                "state": call.state,
                "model": call.model,
                "request": asked,
                "outcome": text or call.git_after or "",
                "tokens_in": call.tokens_in,
                "tokens_out": call.tokens_out,
                "cost_usd": call.cost_usd,
            }
        )
    return rows


def _said(path: Path, step: int) -> list[str]:
    """Return what the user said before a step."""
    from state import runs
    from state.journal import open_reader

    engine = open_reader(path / ".rlm-agent" / "journal.db")
    try:
        with engine.connect() as connection:
            root = runs.root_rollout(connection)
            kinds = ("said", "answered")
            found = [] if root is None else [e for k in kinds for e in runs.events(connection, k, root.id, step)]
    finally:
        engine.dispose()
    return [str(json.loads(event.body)["text"]) for event in found]


def _inside_workspace() -> bool:
    from agent.home import is_workspace

    here = Path.cwd()
    return any(is_workspace(folder) for folder in (here, *here.parents))


def _describe(d: dict[str, Any]) -> str:
    outcome = d["outcome"]
    ended = f"{outcome['kind']}: {outcome['reason']}" if outcome else d["activity"]
    spend = d["spend"]
    rows = [
        ("run", f"{d['run']}  {d['task']}"),
        ("state", d["state"] + (f" (pid {d['pid']})" if d["pid"] else "")),
        ("doing" if outcome is None else "outcome", ended),
        (
            "step",
            f"{d['step']} of {d['budget'].get('steps', '?')}, branch {d['branch']} at {(d['head'] or '')[:8]}",
        ),
        (
            "prompt",
            f"{d['prompt_tokens']['last']:,} tokens, largest {d['prompt_tokens']['max']:,}, {d['folds']} folds shown",
        ),
        ("folding", _folding(d["folding"])),
        ("calls", f"{d['calls']} in {d['rollouts']} rollouts"),
        (
            "spend",
            f"${spend['usd']:.4f}, {spend['tokens_in']:,} tokens in, {spend['tokens_out']:,} out"
            + (f", {spend['unpriced_calls']} calls of unknown price" if spend["unpriced_calls"] else "")
            + (f", {spend['maybe_paid_twice']} perhaps paid twice" if spend["maybe_paid_twice"] else ""),
        ),
        ("worked", f"{d['active_s']:.0f} s, last sign of life {d['idle_s']:.0f} s ago"),
        ("workspace", d["workspace"]),
    ]
    text = "\n".join(f"{name:<10} {value}" for name, value in rows)
    if d["state"] != "running" and (outcome is None or outcome["kind"] != "done"):
        text += f"\n{'go on':<10} rlm-agent resume {d['run']}"
    return text


def _folding(f: dict[str, Any]) -> str:
    cost, penalties = f["cost"], f["penalties"]
    return (
        f"{f['folded_share']:.0%} of what was said and seen is folded, for {cost['calls']} calls, {cost['tokens']:,} tokens, "
        f"${cost['usd']:.4f}; {penalties['failed_steps']} failed steps, "
        f"{penalties['out_of_scope_branches']} branches out of scope"
    )


def _table(documents: list[dict[str, Any]]) -> str:
    if not documents:
        return "no runs yet; begin one: rlm-agent start --task task.yaml"
    rows = []
    for d in documents:
        state = d["outcome"]["kind"] if d["outcome"] else d["state"]
        rows.append(f"{d['run']}  {d['task']:<20} {state:<12} step {d['step']:>5}  {d['workspace']}")
    return "\n".join(rows)


def _step_line(row: dict[str, Any]) -> str:
    lines = [line for line in (row["observation"] or "").splitlines() if line.strip()]
    mark = "!" if row["failed"] else "→"
    return f"{row['step']:>5}  {_short(row['thought'])}\n       {mark} {_short(lines[0] if lines else '')}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"
