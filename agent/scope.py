"""One rollout as it is worked on: what it shares with its run, its record, its model, and what it may spend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.budget import Budget
from agent.calls import CallBroker
from agent.models.base import ModelSpec
from agent.repl.pool import ReplPool
from agent.runtime import Runtime
from state.records import RolloutRecord


@dataclass(frozen=True)
class Place:
    """What the REPLs of a rollout and its children see read-only (`shown`), and where they come from."""

    shown: tuple[Path, ...] = ()
    repls: ReplPool | None = None


@dataclass(frozen=True)
class Scope:
    """What everything that works for one rollout is given.

    `system` replaces the root's own rules, `persistent` keeps its variables after its end, `frame` is laid beside its context.
    """

    runtime: Runtime
    broker: CallBroker
    rollout: RolloutRecord
    spec: ModelSpec
    budget: Budget
    place: Place = Place()
    system: str = ""
    persistent: bool = False
    frame: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_tree(self) -> bool:
        """Whether this rollout works in the workspace's tree: a task's root does, all others have a scratch folder."""
        return self.rollout.depth == 0 and self.runtime.tree is not None
