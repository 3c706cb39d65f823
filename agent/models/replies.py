"""Read what a provider answered, in the OpenAI format, into a `ModelReply`; it never fails on an odd one.

Null and empty contents, replies of reasoning alone, content in parts and tool calls that nobody offered are all replies: paid,
kept and handed on. What they mean for a step is the loop's business. Of tool calls that nobody offered only `finish` tells.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from agent.models.base import ModelReply, ModelRequest, ToolCall
from agent.tokens import count_tokens

_FINISH = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
_THOUGHT = re.compile(r"^\s*<think(?:ing)?>(.*?)(?:</think(?:ing)?>\s*|\Z)", re.DOTALL)


class Usage(msgspec.Struct, frozen=True):
    """Tokens of a call; `estimated` when the provider told none."""

    tokens_in: int
    tokens_out: int
    estimated: bool


def read_usage(response: Any) -> Usage | None:
    """Return the tokens that a chat completion tells, None when it tells none."""
    given = _get(response, "usage")
    read, wrote = _count(_get(given, "prompt_tokens")), _count(_get(given, "completion_tokens"))
    return Usage(read, wrote, estimated=False) if read else None


def estimate_usage(response: Any, request: ModelRequest) -> Usage:
    """Return an upper estimate of a call's tokens, for a completion that tells none."""
    reply = read_reply(response, Usage(0, 0, estimated=True), None, "")
    told = _count(_get(_get(response, "usage"), "completion_tokens"))
    read = sum(count_tokens(m.content) for m in request.messages)
    return Usage(read, told or count_tokens(reply.text + reply.reasoning), estimated=True)


def read_reply(
    response: Any, usage: Usage, cost_usd: float | None, model: str, tools_offered: bool = False
) -> ModelReply:
    """Return the reply in a chat completion, given as an object or a dict; `text` is "" where there is none."""
    choices = _get(response, "choices") or []
    choice = choices[0] if choices else None
    message = _get(choice, "message")
    text, reasoning = (
        _text(_get(message, "content")),
        _text(_get(message, "reasoning_content") or _get(message, "reasoning")),
    )
    thought = _THOUGHT.match(text)  # servers without a reasoning parser leave the tags in
    if thought and not reasoning:
        text, reasoning = text[thought.end() :], thought[1].strip()
    if reasoning:
        text = text.lstrip("\n")
    finish = _FINISH.get(str(_get(choice, "finish_reason") or ""), "other")
    if _get(message, "tool_calls") or _get(message, "function_call"):
        finish = "tool_calls"
    return ModelReply(
        text=text,
        reasoning=reasoning,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        cost_usd=cost_usd,
        finish=finish,
        response_id=_id(_get(response, "id")),
        model=str(_get(response, "model") or model),
        tool_calls=_tool_calls(message) if tools_offered else (),
    )


def _tool_calls(message: Any) -> tuple[ToolCall, ...]:
    calls = _get(message, "tool_calls")
    found = []
    for at, call in enumerate(calls if isinstance(calls, list) else []):
        function = _get(call, "function")
        given = _get(function, "arguments")  # a text by the format; some servers write the object itself
        arguments = given if isinstance(given, str) else "{}" if given is None else json.dumps(given)
        found.append(ToolCall(_id(_get(call, "id")) or f"call_{at}", str(_get(function, "name") or ""), arguments))
    return tuple(found)


def _count(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) and value > 0 else 0


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_text(_get(part, "text") if not isinstance(part, str) else part) for part in content)
    return ""


def _id(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
