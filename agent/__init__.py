"""rlm-agent: a daemon that works on one task for hours to months and cannot lose its place.

`from agent import Task, run, resume`: what the command does, from Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.api import resume, run
    from agent.outcome import Outcome
    from agent.task import Task

__all__ = ["Outcome", "Task", "resume", "run"]
__version__ = "0.1.0"

_HOMES = {"run": "agent.api", "resume": "agent.api", "Task": "agent.task", "Outcome": "agent.outcome"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'agent' has no attribute {name!r}")
