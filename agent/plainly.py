"""A context that fits the model comfortably is answered plainly: one call, with all of it in the prompt.

Below some 16k tokens a plain call does better than a recursive one (Zhang et al., Recursive Language Models, 2025, on its base
model), and costs one request instead of several.
"""

from __future__ import annotations

import json
from typing import Any

from agent.asked import Asked, Settled, hash_request
from agent.models.base import Message, ModelRequest
from agent.models.costmap import context_window
from agent.outcome import Outcome
from agent.places import sizes_of
from agent.prompts import prompt
from agent.scope import Scope
from agent.tokens import upper_bound
from state.records import CallKey

PLAIN_TOKENS = 16_000
_WINDOW_SHARE = 0.5  # of a model's window that the material may take
_BYTES = 4 * PLAIN_TOKENS


def fits(scope: Scope) -> bool:
    """Say whether a context is short enough to be answered plainly by this model."""
    if scope.spec.model.startswith("offline/") or scope.runtime.tools.of_rollout(0):
        return False  # those answer with cells only
    frame = scope.context
    if "manifest" in frame and sum(sizes_of(frame["manifest"])) > _BYTES:
        return False
    window = context_window(scope.spec)
    most = PLAIN_TOKENS if window is None else min(PLAIN_TOKENS, int(window * _WINDOW_SHARE))
    return upper_bound(_text(frame)) <= most


def answer_plainly(scope: Scope) -> Outcome:
    """Ask once, with all of the context in the prompt; raises what `CallBroker.ask` raises."""
    shown = f"{_text(scope.context)}\n\n{scope.rollout.prompt}"
    request = ModelRequest((Message("system", scope.system or prompt("plain")), Message("user", shown)))
    key = CallKey(scope.rollout.id, 1, "plain", hash_request(scope.spec, request), 0)
    settled: Settled = scope.broker.ask([Asked(key, scope.spec, request)], scope.budget)[0]
    if settled.ok and settled.text.strip():
        return Outcome("done", "answered plainly: the context fits the model", settled.text)
    return Outcome("failed", settled.text or "the model gave an empty answer")


def _text(frame: dict[str, Any]) -> str:
    """Return a context as text; documents with their names and line numbers, so that they can be cited."""
    if "manifest" not in frame:
        value = frame.get("value", "")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    from agent.context import open_context

    parts = []
    for doc in open_context(frame["manifest"]):
        if doc.kind == "text":
            rows = "\n".join(f"{number}: {line}" for number, line in enumerate(doc.lines(), 1))
            parts.append(f"<document name={doc.name!r}>\n{rows}\n</document>")
    return "\n\n".join(parts)
