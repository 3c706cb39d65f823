"""rlm-agent: a daemon that works on one task for hours to months and cannot lose its place.

`from agent import RLM`: questions over contexts. `from agent import Task, run, resume`: what the command does, from Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.api import resume, run
    from agent.completion import (
        BudgetExceededError,
        Completion,
        ErrorThresholdExceededError,
        LimitExceeded,
        TimeoutExceededError,
        TokenLimitExceededError,
    )
    from agent.outcome import Outcome
    from agent.rlm import RLM
    from agent.task import Task

__all__ = [
    "RLM",
    "BudgetExceededError",
    "Completion",
    "ErrorThresholdExceededError",
    "LimitExceeded",
    "Outcome",
    "Task",
    "TimeoutExceededError",
    "TokenLimitExceededError",
    "resume",
    "run",
]
__version__ = "0.1.0"

_HOMES = {
    "RLM": "agent.rlm",
    "BudgetExceededError": "agent.completion",
    "Completion": "agent.completion",
    "ErrorThresholdExceededError": "agent.completion",
    "LimitExceeded": "agent.completion",
    "Outcome": "agent.outcome",
    "Task": "agent.task",
    "TimeoutExceededError": "agent.completion",
    "TokenLimitExceededError": "agent.completion",
    "resume": "agent.api",
    "run": "agent.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'agent' has no attribute {name!r}")
