"""Read what a provider answered, in the OpenAI format, into a `ModelReply`; it never fails on an odd one.

Null and empty contents, replies of reasoning alone, content in parts and tool calls that nobody offered are all replies: paid,
kept and handed on. What they mean for a step is the loop's business.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from agent.models.base import ModelReply

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


def read_reply(response: Any, usage: Usage, cost_usd: float | None, model: str) -> ModelReply:
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
    )


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
