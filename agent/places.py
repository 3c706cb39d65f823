"""Where a rollout works and what it sees: its sandbox and its context.

The root works in the workspace's tree, but for git's folder and what is derived from the journal. A child sees that
tree read-only and writes in a scratch folder of its own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from agent.context.manifest import Manifest
from agent.repl.pool import ReplPool
from agent.repl.sandbox import Launcher, SandboxSpec, choose, open_sandbox
from agent.runtime import Runtime
from agent.scope import Place, Scope
from workspaces import gcc

_SHORT = 4000  # characters of a context that is shown as it is, since looking at it would take a step


def launcher_for(scope: Scope, also: tuple[Path, ...] = ()) -> Launcher:
    """Return the launcher of a rollout's sandbox; `also` are more paths that it shows read-only.

    Raises `SandboxError` when the task's kind of sandbox does not work here.
    """
    runtime = scope.runtime
    if scope.has_tree:
        writable = scope.workspace.path
        read_only = _derived(writable)
        if scope.tree is not runtime.tree:
            read_only.append(runtime.workspace.path / ".git")  # where a worktree's own folder points to
    else:
        writable = runtime.private / "scratch" / scope.rollout.id
        read_only = [runtime.tree.path] if runtime.tree is not None else []
        writable.mkdir(parents=True, exist_ok=True)
    spec = _sandbox(runtime, writable, (runtime.private,), (*read_only, *scope.place.shown, *also))
    return open_sandbox(spec)


def make_place(runtime: Runtime, shown: tuple[Path, ...]) -> Place:
    """Return a place in which REPLs see these files and folders, and begin to warm its pool.

    Raises `SandboxError` when the task's kind of sandbox does not work here.
    """
    scratch = runtime.private / "scratch"
    scratch.mkdir(exist_ok=True)
    if runtime.tree is not None:
        tree = runtime.tree.path
        worktrees = runtime.private / "worktrees"
        worktrees.mkdir(exist_ok=True)
        roots = [tree, scratch, worktrees]
        spec = _sandbox(runtime, tree, (runtime.private,), (*_derived(tree), *shown))
    else:
        roots = [scratch]
        spec = _sandbox(runtime, scratch, (), shown)
    repls = ReplPool(spec, choose(spec.kind), roots, runtime.private / "repl.log")
    repls.warm()
    return Place(shown, repls)


def shown_paths(paths: Sequence[Path], manifest: Manifest) -> tuple[Path, ...]:
    """Return what a REPL must see of a context: the paths themselves, and where the text of its PDFs and the like is."""
    kept = {Path(doc.path).parent for doc in manifest.docs if doc.source}
    return (*paths, *sorted(kept))


def close_place(place: Place) -> None:
    """End the REPLs that are left."""
    if place.repls is not None:
        place.repls.close()


def init_frame(scope: Scope) -> dict[str, Any]:
    """Return what the REPL is given at its start: the context, the user's tools and values, and what it does without.

    Raises ValueError when a child's references leave the task's material.
    """
    tools, depth = scope.runtime.tools, scope.rollout.depth
    return {
        "context": scope.context,
        "contexts": scope.frame.get("contexts", {}),
        "tools": [[tool.name, tool.description] for tool in tools.of_rollout(depth)],
        "values": {**tools.values(depth), **scope.frame.get("values", {})},
        "remove": [] if scope.has_tree else ["COMMIT", "BRANCH", "SWITCH", "MERGE", "ABANDON", "explore"],
    }


def empty_folder(folder: Path) -> None:
    """Remove what is in a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


def describe(frame: dict[str, Any]) -> str:
    """Say in one line what stands in `context` and how large it is."""
    if "manifest" in frame:
        sizes = sizes_of(frame["manifest"])
        return f"{len(sizes)} documents, {_size(sum(sizes))}" if sizes else "empty"
    if "refs" in frame:
        refs = frame["refs"]
        return f"{len(refs)} slices of documents, {_size(sum(end - start for _, start, end in refs))}"
    value = frame.get("value", "")
    if isinstance(value, str):
        return f"a text of {_size(len(value))}" if value else "empty"
    items = f" of {len(value)} items" if isinstance(value, (list, dict)) else ""
    return f"a {type(value).__name__}{items}, {_size(len(msgspec.json.encode(value)))}"


def sizes_of(manifest: dict[str, Any]) -> list[int]:
    """Return the documents' sizes in bytes, whether a manifest comes as columns or as one mapping a document."""
    docs = manifest["docs"]
    return list(docs["size"]) if isinstance(docs, dict) else [doc["size"] for doc in docs]


def short_text(frame: dict[str, Any], goal: str) -> str:
    """Return a context that is short enough to be shown in a prompt; empty when it is not, or stands in the goal already."""
    value = frame.get("value", "")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str, indent=1)
    return text if len(text) <= _SHORT and text.strip() not in goal else ""


def _sandbox(runtime: Runtime, writable: Path, hidden: tuple[Path, ...], read_only: tuple[Path, ...]) -> SandboxSpec:
    """Return the sandbox that the task asks for, around these paths."""
    asked = runtime.task.sandbox
    return SandboxSpec(
        kind=asked.kind,
        network=asked.network,
        memory_bytes=asked.memory,
        writable=writable,
        hidden=hidden,
        read_only=read_only,
    )


def _derived(tree: Path) -> list[Path]:
    """Return what in a workspace's tree only the host writes: git's folder, and what is derived from the journal."""
    return [tree / ".git", gcc.make_branches_folder(tree)]


def _size(characters: int) -> str:
    tokens = characters // 4
    shown = f"{tokens}" if tokens < 10_000 else f"{tokens // 1000}k" if tokens < 10_000_000 else f"{tokens // 10**6}M"
    return (
        f"{characters / 1e6:.1f} MB, about {shown} tokens"
        if characters >= 100_000
        else f"{characters} characters, about {shown} tokens"
    )
