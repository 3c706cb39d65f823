"""Named crash points: places where a test can have the process killed as `kill -9` would.

`RLM_AGENT_CRASH=name` kills at the first visit of that point, `name:3` at the third. Without the variable a visit costs one
dictionary look-up. Every boundary between two durable effects has a point; `CRASH_POINTS` lists them for the sweeps.
"""

from __future__ import annotations

import os
import signal

CRASH_POINTS = (
    "step.planned",
    "step.asked",
    "model.returned",
    "step.replied",
    "step.running",
    "call.started",
    "call.returned",
    "call.done",
    "tool.started",
    "tool.returned",
    "commit.started",
    "commit.returned",
    "commit.objects",
    "commit.done",
    "commit.ref_moved",
    "commit.applied",
    "cell.finished",
    "checkpoint.blobs",
    "checkpoint.objects",
    "step.done",
    "step.ref_moved",
    "fold.done",
    "run.accepting",
    "run.outcome",
)

#: Boundaries that only some runs have: those of branch calls, of a person's words, of going back.
STEERED_POINTS = (
    "commit.settled",
    "question.answered",
    "said.delivered",
    "fork.copied",
    "thin.written",
    "thin.done",
    "thin.ref_moved",
    "rewind.kept",
    "rewind.written",
    "rewind.moved",
)

_visits: dict[str, int] = {}


def crash_point(name: str) -> None:
    """Kill this process with SIGKILL when the environment asks for a crash at `name`."""
    wanted = os.environ.get("RLM_AGENT_CRASH")
    if not wanted:
        return
    if name not in CRASH_POINTS and name not in STEERED_POINTS:
        raise ValueError(f"unknown crash point {name!r}")
    point, _, count = wanted.partition(":")
    if point != name:
        return
    _visits[name] = _visits.get(name, 0) + 1
    if _visits[name] >= int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
