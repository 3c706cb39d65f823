"""CONTEXT: look back into what the run knows: roadmap, branches, commits, log, metadata, and any step in full.

Every answer is capped; a longer one ends with the call that shows the rest. Steps come from the journal, the rest from
the files of `.GCC`.
"""

from __future__ import annotations

from typing import Any

from agent.prompt import render_step
from agent.runtime import Runtime
from state import runs, steps
from workspaces import gcc

MAX_CHARS = 6000


def look_back(runtime: Runtime, rollout: str, args: dict[str, Any]) -> str:
    """Answer one CONTEXT call.

    Raises ValueError, naming what there is, when something asked for does not exist.
    """
    offset = int(args.get("offset") or 0)
    if args.get("child") is not None:
        text = _child(runtime, rollout, args.get("step"), int(args["child"]))
        return _page(text, offset, f"CONTEXT(step={args['step']}, child={args['child']}")
    if args.get("step") is not None:
        return _page(_step(runtime, rollout, int(args["step"])), offset, f"CONTEXT(step={args['step']}")
    if runtime.tree is None:
        raise ValueError("there is no workspace here; CONTEXT(step=n) shows a step, CONTEXT(child=id) a child")
    workspace = runtime.tree
    branch = args.get("branch") or workspace.head().branch
    if args.get("commit") is not None:
        return gcc.context_commit(workspace.path, branch, str(args["commit"]), MAX_CHARS, offset)
    if args.get("log") is not None:
        return gcc.context_log(workspace.path, branch, int(args["log"]), MAX_CHARS, offset)
    if args.get("metadata") is not None:
        return gcc.context_metadata(workspace.path, branch, str(args["metadata"]), MAX_CHARS, offset)
    if args.get("branch") is not None:
        return gcc.context_branch(workspace.path, branch, MAX_CHARS, offset)
    return gcc.context_overview(workspace.path, MAX_CHARS, offset)


def _step(runtime: Runtime, rollout: str, seq: int) -> str:
    row = runtime.journal.read(lambda c: steps.read_step(c, rollout, seq))
    if row is None:
        last = runtime.journal.read(lambda c: steps.last_step(c, rollout))
        raise ValueError(f"there is no step {seq}; the last one is {last.seq if last else 0}")
    return render_step(row)


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
    return part if rest <= 0 else f"{part}\n… {rest} more characters: {call}, offset={offset + len(part)})"
