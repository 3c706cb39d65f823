"""What a person says to a running run: in the next prompt, once, over any crash.

A message waits in the inbox until the step whose prompt shows it is planned; the event that says so is written in that step's own
transaction, and only then the message is deleted. A step that is planned again after a crash shows what it showed before.
"""

from __future__ import annotations

import json
from typing import Any

from agent import inbox
from agent.inbox import Message
from agent.scope import Scope
from agent.testing import crash_point
from state import runs


class Hearing:
    """Takes the messages for one rollout; only a run's root hears any."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._rt, self._rollout = scope, scope.runtime, scope.rollout.id
        self._waiting: list[Message] = []
        self._new: list[Message] = []
        self._first = True

    def said(self, seq: int) -> list[str]:
        """Return what step `seq` is told: what it was told before it was planned again, and what waits now."""
        if self._scope.rollout.depth > 0 or not self._scope.has_tree:
            return []
        self._waiting, self._new = inbox.waiting(self._scope.workspace.path), []
        first, self._first = self._first, False
        if not self._waiting and not first:
            return []
        before = self._rt.journal.read(lambda c: runs.events(c, "said", self._rollout))
        answers = self._rt.journal.read(lambda c: runs.events(c, "answered", self._rollout))
        known = {json.loads(event.body)["id"] for event in (*before, *answers)}
        self._new = [message for message in self._waiting if message.id not in known]
        told = [str(json.loads(event.body)["text"]) for event in before if event.step == seq]
        return told + [message.text for message in self._new]

    def deliver(self, connection: Any, seq: int) -> None:
        """Write that the prompt of step `seq` shows what waits, in the transaction that plans the step."""
        for message in self._new:
            runs.add_event(connection, self._rt.clock(), "said", self._rollout, seq, id=message.id, text=message.text)

    def delivered(self) -> None:
        """Delete what the journal has."""
        if self._waiting:
            crash_point("said.delivered")
            for message in self._new:
                self._rt.tell("said", text=message.text)
            inbox.taken(self._scope.workspace.path, [message.id for message in self._waiting])
            self._waiting, self._new = [], []
