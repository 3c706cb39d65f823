"""A stream put together, wherever the network cut it."""

from __future__ import annotations

import json

import pytest

from agent.models.eventstream import Assembly, StreamError


def events(*given: dict[str, object] | str) -> bytes:
    return "".join(f"data: {e if isinstance(e, str) else json.dumps(e)}\r\n\r\n" for e in given).encode()


def delta(finish: str | None = None, **given: object) -> dict[str, object]:
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": given, "finish_reason": finish}]}


def fragment(index: int, text: str, **more: object) -> dict[str, object]:
    return {"index": index, "function": {"arguments": text, **more}, **({"id": f"id{index}"} if more else {})}


STREAM = events(
    delta(role="assistant", content=""),
    delta(reasoning_content="hm"),
    delta(content="Grüße "),
    delta(content="😀"),
    delta(tool_calls=[fragment(0, "", name="f"), fragment(1, "", name="g")]),
    delta(tool_calls=[fragment(1, '{"b"')]),
    delta(tool_calls=[fragment(0, '{"a": 1}')]),
    delta(tool_calls=[fragment(1, ": 2}")]),
    delta("tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
    "[DONE]",
)


@pytest.mark.parametrize("size", [1, 7, 64, 10**6])
def test_it_is_the_same_however_it_arrives(size: int) -> None:
    assembly = Assembly()
    assembly.feed(b": a comment that keeps the line open\n\n")
    for at in range(0, len(STREAM), size):
        assembly.feed(STREAM[at : at + size])
    assert assembly.done
    whole = assembly.completion()
    message = whole["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Grüße 😀", "hm")
    assert [(c["id"], c["function"]) for c in message["tool_calls"]] == [
        ("id0", {"name": "f", "arguments": '{"a": 1}'}),
        ("id1", {"name": "g", "arguments": '{"b": 2}'}),
    ]
    assert (whole["id"], whole["choices"][0]["finish_reason"], whole["usage"]["prompt_tokens"]) == (
        "x",
        "tool_calls",
        7,
    )


def test_a_stream_without_its_end_has_not_ended() -> None:
    assembly = Assembly()
    assembly.feed(events(delta(content="a")))
    assert (assembly.ended, assembly.pieces) == (False, 1)
    assembly.feed(events(delta("stop")))
    assert (assembly.ended, assembly.done) == (True, False)


@pytest.mark.parametrize("broken", [b"data: {\n", b'data: {"error": {"message": "overloaded"}}\n'])
def test_a_broken_event_is_told(broken: bytes) -> None:
    with pytest.raises(StreamError):
        Assembly().feed(broken)
