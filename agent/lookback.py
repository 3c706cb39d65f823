"""CONTEXT: look back into what the run knows: roadmap, branches, commits, log, metadata, and any step in full.

Every answer is capped; a longer one ends with the call that shows the rest. Steps come from the journal, the rest from
the files of `.GCC`.
"""

from __future__ import annotations

from typing import Any

from agent.prompt import render_step
from agent.runtime import Runtime
from agent.scope import Scope
from state import branches, runs, search, steps
from workspaces import gcc

MAX_CHARS = 6000
_ALL_CHARS = 1 << 20  # of a text that is paged here
_HITS = 20
_INDEXED = 500  # rows of a kind that are indexed at a time


def look_back(scope: Scope, args: dict[str, Any]) -> str:
    """Answer one CONTEXT call.

    Raises ValueError, naming what there is, when something asked for does not exist.
    """
    runtime, rollout = scope.runtime, scope.rollout.id
    offset = int(args.get("offset") or 0)
    if args.get("find") is not None:
        return _page(_find(runtime, str(args["find"])), offset, f"CONTEXT(find={args['find']!r}")
    if args.get("child") is not None:
        text = _child(runtime, rollout, args.get("step"), int(args["child"]))
        return _page(text, offset, f"CONTEXT(step={args['step']}, child={args['child']}")
    if args.get("step") is not None:
        return _page(_step(runtime, rollout, int(args["step"])), offset, f"CONTEXT(step={args['step']}")
    if scope.tree is None:
        raise ValueError("there is no workspace here; CONTEXT(step=n) shows a step, CONTEXT(child=id) a child")
    workspace = scope.tree
    branch = args.get("branch") or workspace.head().branch
    if args.get("commit") is not None:
        return gcc.context_commit(workspace.path, branch, str(args["commit"]), MAX_CHARS, offset)
    if args.get("log") is not None:
        return gcc.context_log(workspace.path, branch, int(args["log"]), MAX_CHARS, offset)
    if args.get("metadata") is not None:
        return gcc.context_metadata(workspace.path, branch, str(args["metadata"]), MAX_CHARS, offset)
    if args.get("branch") is not None:
        ended = runtime.journal.read(lambda c: _ends(c, branch))
        shown = gcc.context_branch(workspace.path, branch, _ALL_CHARS)
        return _page("\n".join([*ended, shown]), offset, f"CONTEXT(branch={branch!r}")
    ended = runtime.journal.read(_ends)
    return _page("\n".join([gcc.context_overview(workspace.path, _ALL_CHARS), *ended]), offset, "CONTEXT(")


def _ends(connection: Any, name: str | None = None) -> list[str]:
    """Say what became of the branches that are not open any more, or whose merge waits."""
    found = [row for row in branches.all_branches(connection) if name in (None, row.name)]
    ended = [f"{row.name}: {row.state} ({row.summary or 'nothing said'})" for row in found if row.state != "open"]
    waits = [
        f"{row.name}: its merge into {row.merging} waits for conflicts to be resolved" for row in found if row.merging
    ]
    lines = [*ended, *waits]
    return ["", "What became of them:", *(f"- {line}" for line in lines)] if lines and name is None else lines


def _step(runtime: Runtime, rollout: str, seq: int) -> str:
    row = runtime.journal.read(lambda c: steps.read_step(c, rollout, seq))
    if row is None:
        last = runtime.journal.read(lambda c: steps.last_step(c, rollout))
        raise ValueError(f"there is no step {seq}; the last one is {last.seq if last else 0}")
    return render_step(row)


def _find(runtime: Runtime, query: str) -> str:
    """Return what a search of the run's past finds, each with the call that shows it in full."""

    def read(connection: Any) -> tuple[list[search.Hit], dict[str, Any]]:
        while search.index_new(connection) >= _INDEXED:
            pass
        hits = search.find(connection, query, _HITS)
        return hits, {row.id: row for row in runs.all_rollouts(connection)} if hits else {}

    hits, rollouts = runtime.journal.write(read)
    if not hits:
        return f"nothing in the past of this run has {query!r}; try fewer or other words"
    return "\n".join(f"{_where(hit, rollouts.get(hit.rollout))}: {hit.snippet}" for hit in hits)


def _where(hit: search.Hit, rollout: Any) -> str:
    """Say where a hit is, and how to see all of it."""
    child = rollout is not None and rollout.parent is not None and rollout.outcome != "rewound"
    if hit.kind == "commit":
        branch, _, number = hit.name.rpartition(" ")
        return f"[commit {number} on {branch}; CONTEXT(branch={branch!r}, commit={number!r})]"
    if hit.kind == "fold":
        return f"[summary of steps {hit.name}]"
    if hit.kind == "said":
        return f"[the user, at step {hit.step}]"
    if rollout is not None and rollout.outcome == "rewound":
        return f"[step {hit.step}, undone since by a rewind]"
    return (
        f"[step {hit.step} of a child: {rollout.prompt[:60]!r}]"
        if child
        else f"[step {hit.step}; CONTEXT(step={hit.step})]"
    )


def _child(runtime: Runtime, parent: str, step: int | None, number: int) -> str:
    """Show the trajectory of a child that a step started."""
    if step is None:
        raise ValueError("child= needs the step that started it: CONTEXT(step=n, child=1)")
    child = runtime.journal.read(lambda c: runs.child_of(c, parent, step, number))
    if child is None:
        raise ValueError(f"step {step} started no child {number}")
    rows = runtime.journal.read(lambda c: steps.steps_between(c, child.id, 1, 1 << 60))
    head = f"child {number} of step {step} ({child.outcome or 'not ended'}): {child.prompt}"
    return "\n\n".join([head, *map(render_step, rows), f"answer: {child.answer or '(none)'}"])


def _page(text: str, offset: int, call: str) -> str:
    part = text[offset : offset + MAX_CHARS]
    rest = len(text) - offset - len(part)
    more = "" if call.endswith("(") else ", "
    return part if rest <= 0 else f"{part}\n… {rest} more characters: {call}{more}offset={offset + len(part)})"
