"""Sub-calls that take more than one request: typed answers, and models that use tools.

A typed answer is checked against its JSON Schema and asked for once more with what was wrong. A model with tools may use them
for `ROUNDS` requests; then it is told to answer with what it has. Each request is a call of its own in the journal, its
key made from all that was said before, so that a cell which runs again meets the same calls.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from agent.asked import Asked, Settled, hash_request
from agent.errors import ProviderError, UsageError
from agent.models.base import Message, ToolCall
from agent.scope import Scope
from state.records import CallKey

ROUNDS = 8
_LAST = "You have used your tools as often as you may. Answer now, in words, with what you have."
RunTool = Callable[[str, dict[str, Any], list[Any]], Awaitable[dict[str, Any]]]


async def answer(scope: Scope, asked: Asked, run_tool: RunTool) -> dict[str, Any]:
    """Settle one sub-call to its end and return {"ok", "value"}.

    Raises a `ProviderError` when one of the run's own models cannot be had; a model that the cell itself chose just fails.
    """
    try:
        return await _answer(scope, asked, run_tool)
    except (ProviderError, UsageError) as error:
        if scope.runtime.task.models.names(asked.spec):
            raise
        return {"ok": False, "value": error.message}


async def _answer(scope: Scope, asked: Asked, run_tool: RunTool) -> dict[str, Any]:
    settled, asked = await _with_tools(scope, asked, run_tool)
    schema = asked.request.schema
    if not settled.ok or schema is None:
        return {"ok": settled.ok, "value": settled.text}
    value, problem = parse_typed(settled.text, schema)
    if problem:
        told = f"That does not fit the JSON Schema: {problem}. Reply with the corrected JSON alone."
        more = (Message("assistant", settled.text or "(empty)"), Message("user", told))
        settled = (await scope.broker.settle([_next(asked, more)], scope.budget))[0]
        if not settled.ok:
            return {"ok": False, "value": settled.text}
        value, problem = parse_typed(settled.text, schema)
    if problem:
        return {"ok": False, "value": f"the reply does not fit the schema, asked twice: {problem}"}
    return {"ok": True, "value": value}


def parse_typed(text: str, schema: dict[str, Any]) -> tuple[Any, str]:
    """Return (the value in a reply, what is wrong with it); code fences around the JSON are allowed."""
    import jsonschema

    fenced = re.fullmatch(r"\s*```\w*\n(.*?)\n?```\s*", text, re.DOTALL)
    try:
        value = json.loads(fenced[1] if fenced else text)
    except ValueError as error:
        return None, f"it is no JSON ({error})"
    try:
        jsonschema.validate(value, schema)
    except jsonschema.ValidationError as error:
        return None, f"{error.message[:300]} (at {error.json_path})"
    except (jsonschema.SchemaError, RecursionError) as error:
        return None, f"the schema itself is wrong: {str(error)[:300]}"
    return value, ""


async def _with_tools(scope: Scope, asked: Asked, run_tool: RunTool) -> tuple[Settled, Asked]:
    """Ask, let the model use its tools, and return its last reply with the request that it answers."""
    for _ in range(ROUNDS):
        settled = (await scope.broker.settle([asked], scope.budget))[0]
        if not settled.ok or not settled.tool_calls or not asked.request.tools:
            return settled, asked
        results = await asyncio.gather(*(_result(asked, call, run_tool) for call in settled.tool_calls))
        more = (Message("assistant", settled.text, settled.tool_calls), *results)
        asked = _next(asked, more)
    request = msgspec.structs.replace(asked.request, tool_choice="none")
    asked = _next(msgspec.structs.replace(asked, request=request), (Message("user", _LAST),))
    settled = (await scope.broker.settle([asked], scope.budget))[0]
    if settled.ok and not settled.text.strip():
        settled = Settled(False, f"the model used its tools {ROUNDS} times and gave no answer")
    return settled, asked


async def _result(asked: Asked, call: ToolCall, run_tool: RunTool) -> Message:
    try:
        arguments = json.loads(call.arguments or "{}")
        if not isinstance(arguments, dict):
            raise ValueError("arguments must be a JSON object")
        outcome = await run_tool(call.name, arguments, [asked.key.args_hash, asked.key.n, call.id])
    except ValueError as error:
        outcome = {"ok": False, "value": f"the arguments are wrong: {error}"}
    value = outcome["value"]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return Message("tool", text if outcome["ok"] else f"Error: {text}", tool_call_id=call.id)


def _next(asked: Asked, more: tuple[Message, ...]) -> Asked:
    """Return the request that goes on with a conversation, under the key that this conversation has."""
    request = msgspec.structs.replace(asked.request, messages=(*asked.request.messages, *more))
    key = asked.key
    return Asked(
        CallKey(key.rollout, key.step, key.kind, hash_request(asked.spec, request), key.n), asked.spec, request
    )
