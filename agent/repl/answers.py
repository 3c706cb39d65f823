"""What calls give back to a cell: answers, and failures that can't be taken for one."""

from __future__ import annotations

from typing import Any


class CallError(str):
    """A call that failed: falsy, prints as `Error: …`, and never passes for an answer."""

    def __new__(cls, message: str) -> CallError:
        return super().__new__(cls, f"Error: {message}")

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> Any:
        return CallError, (str(self)[len("Error: ") :],)


class ChildAnswer(str):
    """A child's answer; `trajectory` is the call that shows how it came by it."""

    trajectory: str

    def __new__(cls, text: str, trajectory: str) -> ChildAnswer:
        made = super().__new__(cls, text)
        made.trajectory = trajectory
        return made

    def __reduce__(self) -> Any:
        return ChildAnswer, (str(self), self.trajectory)


def or_raise(outcome: Any) -> Any:
    """Return what a call gave: a batch's list as it is, else the value; raises RuntimeError when it was refused."""
    if isinstance(outcome, list):
        return outcome
    if not outcome["ok"]:
        raise RuntimeError(outcome["value"])
    return outcome["value"]
