"""What every model is to the loop: one blocking, thread-safe `complete`.

A `Model` takes a `ModelRequest` and returns a `ModelReply` or raises a `ProviderError` that says whether a repeat is free,
possibly paid twice, or useless. It never retries by itself: attempts are the journal's business.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class Message(msgspec.Struct, frozen=True):
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str


class ModelRequest(msgspec.Struct, frozen=True):
    """One request: what is asked, and within which bounds (`timeout` in seconds, `schema` a JSON Schema)."""

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    schema: dict[str, Any] | None = None
    timeout: float = 600.0


class ModelReply(msgspec.Struct, frozen=True):
    """What came back. `cost_usd` is None when the price is unknown; `finish` is stop, length, tool_calls or other."""

    text: str
    reasoning: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    finish: str = "stop"
    response_id: str | None = None
    model: str = ""


class ModelSpec(msgspec.Struct, frozen=True):
    """A model as the task names it. `price` is USD per million tokens: {"input": …, "output": …}."""

    model: str
    api_base: str | None = None
    api_key_env: str | None = None
    params: dict[str, Any] = {}
    price: dict[str, float] | None = None


class Model(Protocol):
    """A model that can be asked from any thread."""

    spec: ModelSpec

    def check(self) -> None:
        """Raise `KeyRejected` or another `AgentError` when the model cannot work, before anything is spent."""

    def complete(self, request: ModelRequest) -> ModelReply:
        """Ask once and return the reply; raise a `ProviderError` otherwise."""

    def close(self) -> None:
        """Give back processes, memory and connections."""
