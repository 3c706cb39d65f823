"""A request as JSON: every message, tool and schema in the OpenAI format, and nothing that a provider could not read."""

from __future__ import annotations

import json

from agent.models.base import Message, ModelRequest, ToolCall, ToolSpec
from agent.models.wire import write_messages, write_schema, write_tools

SCHEMA = {"type": "object", "properties": {"größe": {"type": "integer"}}}


def messages(*given: Message, **more: object) -> ModelRequest:
    return ModelRequest(given, **more)  # type: ignore[arg-type]


def test_a_plain_conversation() -> None:
    asked = messages(Message("system", "Be brief."), Message("user", "ping"))
    assert write_messages(asked) == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "ping"}]
    assert write_tools(asked) == {}


def test_a_tool_call_and_its_result() -> None:
    call = ToolCall("call_1", "look_up", '{"n": 1}')
    written = write_messages(messages(Message("assistant", "", (call,)), Message("tool", "42", tool_call_id="call_1")))
    function = {"name": "look_up", "arguments": '{"n": 1}'}
    assert written == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "42", "tool_call_id": "call_1"},
    ]


def test_broken_arguments_are_not_sent_back() -> None:
    """Some providers parse what they are sent, and refuse the whole request for one stray brace of the model."""
    for broken in ('{"n": ', "[1]", "", "\udc80"):
        (written,) = write_messages(messages(Message("assistant", "so", (ToolCall("c", "f", broken),))))
        assert written["tool_calls"][0]["function"]["arguments"] == "{}"


def test_tools_are_offered_with_a_choice() -> None:
    tool = ToolSpec("look_up", "Looks a word up.")
    offered = write_tools(messages(tools=(tool,)))
    assert offered["tool_choice"] == "auto"
    assert offered["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert write_tools(messages(tools=(tool,), tool_choice="none"))["tool_choice"] == "none"


def test_a_schema_stands_at_the_end_of_the_prompt_or_in_its_own_field() -> None:
    asked = messages(Message("user", "ping"), schema=SCHEMA)
    assert write_messages(asked) == [{"role": "user", "content": "ping"}]
    (last,) = write_messages(asked, schema_in_prompt=True)
    assert last["content"].startswith("ping\n\n")
    assert json.dumps(SCHEMA, ensure_ascii=False) in last["content"]
    assert write_schema(SCHEMA)["response_format"]["json_schema"]["schema"] == SCHEMA


def test_a_schema_after_a_tool_s_result_is_a_message_of_its_own() -> None:
    asked = messages(Message("tool", "42", tool_call_id="c"), schema=SCHEMA)
    result, wish = write_messages(asked, schema_in_prompt=True)
    assert result["content"] == "42"
    assert (wish["role"], "JSON Schema" in wish["content"]) == ("user", True)


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    (written,) = write_messages(messages(Message("user", "a\udcffb ü 😀")))
    assert written["content"] == "a?b ü 😀"
