"""One rollout as it is worked on: what it shares with its run, its record, its model, and what it may spend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from agent.budget import Budget
from agent.calls import CallBroker
from agent.models.base import ModelSpec
from agent.repl.pool import ReplPool
from agent.runtime import Runtime
from state.records import RolloutRecord
from workspaces.workspace import Workspace


@dataclass(frozen=True)
class Place:
    """What the REPLs of a rollout and its children see read-only (`shown`), and where they come from."""

    shown: tuple[Path, ...] = ()
    repls: ReplPool | None = None


@dataclass(frozen=True)
class Scope:
    """What everything that works for one rollout is given.

    `system` replaces the root's own rules, `persistent` keeps its variables after its end, `frame` is laid beside its context.
    `tree` is what it works in: the workspace at a task's root, a worktree for a child on a branch; others have a scratch folder.
    """

    runtime: Runtime
    broker: CallBroker
    rollout: RolloutRecord
    spec: ModelSpec
    budget: Budget
    place: Place = Place()
    system: str = ""
    persistent: bool = False
    tree: Workspace | None = None
    frame: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_tree(self) -> bool:
        """Whether this rollout works in a tree under git."""
        return self.tree is not None

    @property
    def workspace(self) -> Workspace:
        """The tree of a rollout that has one."""
        assert self.tree is not None, "only a rollout on a branch has a tree"
        return self.tree

    @cached_property
    def context(self) -> dict[str, Any]:
        """What becomes `context`: the rollout's own references or value, else, at the root and on a branch, the task's manifest.

        Kept, since decoding the manifest of a hundred thousand files takes a tenth of a second. Raises `ContextError` when
        references leave the task's material.
        """
        if self.rollout.context is None:
            whole = self.rollout.depth == 0 or self.rollout.branch is not None
            return {"manifest": self.runtime.manifest.columns()} if whole else {"value": ""}
        frame: dict[str, Any] = msgspec.msgpack.decode(self.rollout.context)
        if "refs" in frame:
            from agent.context.manifest import check_refs

            check_refs(self.runtime.manifest, [tuple(ref) for ref in frame["refs"]])
        return frame
