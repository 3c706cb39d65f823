"""What every model is to the loop: one `acomplete`, thousands of which may be in flight on one event loop.

A `Model` takes a `ModelRequest` and returns a `ModelReply` or raises a `ProviderError` that says whether a repeat is free,
possibly paid twice, or useless. It never retries by itself: attempts are the journal's business.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec


class ToolSpec(msgspec.Struct, frozen=True):
    """A function that a model may ask for; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class ToolCall(msgspec.Struct, frozen=True):
    """A function that a model asked for; `arguments` is JSON text as the model wrote it, so perhaps broken."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True):
    """One chat message; `role` is system, user, assistant, or tool: the result of the call `tool_call_id`."""

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class ModelRequest(msgspec.Struct, frozen=True):
    """One request: what is asked, and within which bounds (`timeout` in seconds, `schema` a JSON Schema).

    `tool_choice` None is "auto"; "none" forces an answer in words.
    """

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    schema: dict[str, Any] | None = None
    timeout: float = 600.0
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str | None = None


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
    tool_calls: tuple[ToolCall, ...] = ()


class ModelSpec(msgspec.Struct, frozen=True):
    """A model as the task names it. `price` is USD per million tokens: {"input": …, "output": …}.

    `concurrency` is how many requests may be at this model at once; None leaves it to the task's `limits.concurrency`.
    """

    model: str
    api_base: str | None = None
    api_key_env: str | None = None
    params: dict[str, Any] = {}
    price: dict[str, float] | None = None
    concurrency: int | None = None


class Model(Protocol):
    """A model that can be asked on any event loop, and never blocks it for long.

    One that knows its tokenizer has a method `count_tokens(text) -> int | None` besides.
    """

    spec: ModelSpec

    def check(self) -> None:
        """Raise `KeyRejected` or another `AgentError` when the model cannot work, before anything is spent."""

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """Ask once and return the reply; raise a `ProviderError` otherwise. A cancelled request is closed."""

    def close(self) -> None:
        """Give back processes, memory and connections."""


def complete(model: Model, request: ModelRequest) -> ModelReply:
    """Ask once and wait, on an event loop of its own; for tests and scripts, never from within a running loop."""
    return asyncio.run(model.acomplete(request))
