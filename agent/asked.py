"""A model call as it is asked and as it is settled: the records between whoever asks and the broker."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from agent.models.base import ModelReply, ModelRequest, ModelSpec, ToolCall
from state.records import CallKey, CallRecord


class Settled(msgspec.Struct, frozen=True):
    """A call's outcome: the reply's text or an error's, and what it took."""

    ok: bool
    text: str
    reasoning: str = ""
    finish: str = "stop"
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    call_id: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


class Asked(msgspec.Struct, frozen=True):
    """One model call to be made: its key, the model and the request.

    `with_intent` and `with_outcome` are written in the same transactions as the call's intent and outcome.
    """

    key: CallKey
    spec: ModelSpec
    request: ModelRequest
    with_intent: Callable[[Any], None] | None = None
    with_outcome: Callable[[Any, Settled], None] | None = None


def hash_args(*parts: Any) -> str:
    """Return the sha256 of arguments in one canonical form: the part of a call's key that says what was asked."""
    return hashlib.sha256(_encoder.encode(parts)).hexdigest()


def hash_request(spec: ModelSpec, request: ModelRequest) -> str:
    """Return the sha256 of a model and a request, which is what `hash_args` is for large prompts."""
    said = (spec.model, request.messages, request.max_tokens, request.schema, request.tools, request.tool_choice)
    return hashlib.sha256(_encoder.encode(said)).hexdigest()


def as_settled(reply: ModelReply, call_id: str) -> Settled:
    """Return a model's reply as the outcome of a call."""
    return Settled(
        True,
        reply.text,
        reply.reasoning,
        reply.finish,
        reply.tokens_in,
        reply.tokens_out,
        reply.cost_usd,
        call_id,
        reply.tool_calls,
    )


def recorded(record: CallRecord) -> Settled:
    """Return the outcome that a settled call's record holds."""
    return msgspec.msgpack.decode(record.outcome or b"", type=Settled)


_encoder = msgspec.msgpack.Encoder(order="deterministic")
