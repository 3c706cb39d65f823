"""Where a rollout works and what it sees: its sandbox and its context.

The root works in the workspace's tree, but for git's folder and what is derived from the journal. A child sees that
tree read-only and writes in a scratch folder of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from agent.repl.sandbox import Launcher, SandboxSpec, choose
from agent.runtime import Runtime
from state.records import RolloutRecord
from workspaces import gcc


def launcher_for(runtime: Runtime, rollout: RolloutRecord, also: tuple[Path, ...] = ()) -> Launcher:
    """Return the launcher of a rollout's sandbox; `also` are more paths that it shows read-only.

    Raises `SandboxError` when the task's kind of sandbox does not work here.
    """
    task, workspace = runtime.task, runtime.workspace.path
    writable, read_only = workspace, [workspace / ".git", gcc.make_branches_folder(workspace)]
    if rollout.depth > 0:
        writable, read_only = runtime.private / "scratch" / rollout.id, [workspace]
        writable.mkdir(parents=True, exist_ok=True)
    spec = SandboxSpec(
        kind=task.sandbox.kind,
        network=task.sandbox.network,
        memory_bytes=task.sandbox.memory,
        writable=writable,
        hidden=(runtime.private,),
        read_only=(*read_only, *context_paths(runtime), *also),
    )
    return Launcher(spec, choose(task.sandbox.kind))


def context_paths(runtime: Runtime) -> tuple[Path, ...]:
    """Return the files and folders that hold the context."""
    return tuple(item.path for item in runtime.task.context)


def context_frame(runtime: Runtime, rollout: RolloutRecord) -> dict[str, Any]:
    """Return what the REPL is given as `context`: the task's manifest, or a child's references or value.

    Raises ValueError when a child's references leave the task's material.
    """
    if rollout.depth == 0:
        return {"manifest": msgspec.to_builtins(runtime.manifest)}
    if rollout.context is None:
        return {"value": ""}
    frame: dict[str, Any] = msgspec.msgpack.decode(rollout.context)
    if "refs" in frame:
        from agent.context.manifest import check_refs

        check_refs(runtime.manifest, [tuple(ref) for ref in frame["refs"]])
    return frame
