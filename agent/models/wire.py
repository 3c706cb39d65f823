"""A request as the OpenAI chat format writes it, which litellm, llama.cpp and every compatible server take.

Whatever stands in a request can be sent: half a surrogate pair, arguments that are no JSON, a schema without native support.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from agent.models.base import Message, ModelRequest, ToolCall


def write_messages(request: ModelRequest, schema_in_prompt: bool = False) -> list[dict[str, Any]]:
    """Return the messages; with `schema_in_prompt` the wish for JSON of that schema stands at their end."""
    messages = [_message(m) for m in request.messages]
    if request.schema is None or not schema_in_prompt:
        return messages
    wish = "Reply with one JSON value that fits this JSON Schema, and with nothing else:\n"
    wish += json.dumps(request.schema, ensure_ascii=False)
    if messages and messages[-1]["role"] == "user":
        last = messages[-1]
        return [*messages[:-1], {**last, "content": f"{last['content']}\n\n{wish}"}]
    return [*messages, {"role": "user", "content": wish}]


def write_tools(request: ModelRequest) -> dict[str, Any]:
    """Return the fields `tools` and `tool_choice`; nothing where no tool is offered."""
    if not request.tools:
        return {}
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters or {"type": "object", "properties": {}},
            },
        }
        for tool in request.tools
    ]
    return {"tools": tools, "tool_choice": request.tool_choice or "auto"}


def write_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the field `response_format` that holds a reply to a schema."""
    return {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": schema, "strict": False},
        }
    }


def _message(message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"role": message.role, "content": _sendable(message.content)}
    if message.tool_calls:
        written["content"] = written["content"] or None
        written["tool_calls"] = _calls(message.tool_calls)
    if message.tool_call_id is not None:
        written["tool_call_id"] = message.tool_call_id
    return written


def _calls(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    return [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": _arguments(c.arguments)}}
        for c in calls
    ]


def _arguments(text: str) -> str:
    """Return arguments that a provider can parse; broken ones become {}, and the tool's result says what was wrong."""
    try:
        whole = isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeEncodeError):
        whole = False
    return text if whole else "{}"


def _sendable(text: str) -> str:
    """Return the text with each lone surrogate, which no UTF-8 can hold, as a question mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
