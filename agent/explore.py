"""Parallel branches: each idea is worked on by a child rollout, on a git branch, in a worktree and a sandbox of its own.

A child's work is committed on its branch before its call is settled, and only then its worktree goes away; so nothing is lost,
and a cell that runs again after a crash goes on with the same children.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from agent.asked import hash_args
from agent.branching import Branching
from agent.budget import Budget, Grant
from agent.errors import BudgetSpent, ProviderError
from agent.milestones import Milestones
from agent.outcome import Outcome
from agent.runtime import Runtime
from agent.scope import Scope
from agent.toolcalls import told_before
from state import runs
from state.records import CallKey
from workspaces import merging, worktrees
from workspaces.workspace import Workspace

_SHOWN = 12  # files of a diffstat


class Idea(msgspec.Struct, frozen=True):
    """A branch to be explored: its name, what it is for, and what the child is asked to do."""

    name: str
    purpose: str
    prompt: str


def explore(
    scope: Scope, branching: Branching, key: CallKey, ideas: Sequence[Idea], budget: Budget, grant: Grant | None
) -> Any:
    """Let a child work on each idea at once, and tell what came of each, in order.

    An idea whose branch cannot be made is a failed outcome; the others go on.
    """
    from agent.children import ChildRequest, run_children

    began = []
    for number, idea in enumerate(ideas):
        made = CallKey(key.rollout, key.step, "branch", hash_args(key.args_hash, key.n, number, idea.name), 0)
        began.append(branching.branch(made, idea.name, idea.purpose, enter=False))
    if here := scope.workspace.head().sha:
        scope.workspace.place_branch_files(here)
    wanted = [
        ChildRequest(
            CallKey(key.rollout, key.step, "rlm", hash_args(key.args_hash, key.n, number, idea.name, idea.prompt), 0),
            f"{idea.prompt}\n\n(You work on branch {idea.name}, made to: {idea.purpose})",
            None,
            scope.spec,
            number,
            grant,
            idea.name,
        )
        for number, (idea, effect) in enumerate(zip(ideas, began, strict=True), 1)
        if effect.ok
    ]
    ended = dict(zip([one.branch for one in wanted], run_children(scope, budget, wanted), strict=True))
    outcomes: list[dict[str, Any]] = []
    for idea, effect in zip(ideas, began, strict=True):
        if not effect.ok:
            outcomes.append({"ok": False, "value": effect.text})
            continue
        child = ended[idea.name]
        shown = _diffstat(scope.workspace, idea.name)
        text = child.text if child.ok else f"ended without an answer: {child.text}"
        told = {"ok": True, "value": text, "branch": idea.name, "diffstat": shown, "trajectory": child.trajectory}
        outcomes.append(told)
    return told_before(scope.runtime, key, outcomes)


def place_of(runtime: Runtime, branch: str) -> Path:
    """Return where the worktree of a branch is."""
    return runtime.private / "worktrees" / branch.replace("/", "+")  # which no branch's name has


def enter(scope: Scope) -> Scope:
    """Return a child's scope with its worktree as its tree, made where it is missing."""
    branch = scope.rollout.branch
    assert branch is not None
    with scope.runtime.worktrees:
        tree = worktrees.add(scope.runtime.workspace, place_of(scope.runtime, branch), branch)
    return replace(scope, tree=tree)


def leave(scope: Scope, outcome: Outcome) -> None:
    """Commit how an ended child left its branch."""
    with suppress(ProviderError, BudgetSpent):
        Milestones(scope).commit_end(outcome)


def remove(runtime: Runtime, branch: str) -> None:
    """Take a branch's worktree away; its commits are on the branch."""
    path = place_of(runtime, branch)
    if path.exists():
        with runtime.worktrees:
            worktrees.remove(runtime.workspace, path)


def remove_left_worktrees(runtime: Runtime) -> None:
    """Take away the worktrees of children that have ended, or that no rollout goes on with."""
    folder = runtime.private / "worktrees"
    left = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    if not left:
        return
    living = {place_of(runtime, branch) for branch in runtime.journal.read(runs.living_branches)}
    for path in left:
        if path not in living:
            worktrees.remove(runtime.workspace, path)


def _diffstat(workspace: Workspace, branch: str) -> str:
    there, here = workspace.branches().get(branch), workspace.head().sha
    if there is None or here is None:
        return "its branch is gone"
    base = workspace.merge_base(here, there) or here
    return merging.diffstat(workspace, base, there, _SHOWN)
