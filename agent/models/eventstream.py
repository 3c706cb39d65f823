"""A streamed chat completion put together again: from server-sent events to the completion that a plain answer would be."""

from __future__ import annotations

from typing import Any

import msgspec


class StreamError(Exception):
    """An event that can't be read, or that tells of an error."""


class Assembly:
    """The state of one stream. `pieces` counts its events, `ended` says that it told its end, `done` that no more will come."""

    def __init__(self) -> None:
        self.pieces = 0
        self.ended = False
        self.done = False
        self._rest = b""
        self._head: dict[str, Any] = {}
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: str | None = None
        self._usage: Any = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes, cut anywhere; raise `StreamError` when an event is broken or tells of an error."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())

    def completion(self) -> dict[str, Any]:
        """Return all that came as one chat completion."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text)}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [_whole_call(call) for _, call in sorted(self._calls.items())]
        return {
            **self._head,
            "choices": [{"index": 0, "message": message, "finish_reason": self._finish}],
            "usage": self._usage,
        }

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.ended = self.done = True
            return
        try:
            event = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise StreamError(f"a piece of the stream is no JSON: {data[:100]!r}") from error
        if not isinstance(event, dict):
            return
        self.pieces += 1
        if event.get("error") and not event.get("choices"):
            raise StreamError(f"the stream told of an error: {event['error']}")
        self._head = self._head or {k: event[k] for k in ("id", "model") if k in event}
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices") or []:
            if choice.get("index", 0) == 0:
                self._delta(choice.get("delta") or {})
                self._finish = choice.get("finish_reason") or self._finish
                self.ended = self.ended or self._finish is not None

    def _delta(self, delta: dict[str, Any]) -> None:
        if isinstance(delta.get("content"), str):
            self._text.append(delta["content"])
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str):
            self._reasoning.append(thought)
        for at, part in enumerate(delta.get("tool_calls") or []):
            index = part.get("index")
            self._fragment(index if isinstance(index, int) else at, part)

    def _fragment(self, index: int, part: dict[str, Any]) -> None:
        call = self._calls.setdefault(index, {"id": "", "name": "", "arguments": []})
        function = part.get("function") or {}
        call["id"] = call["id"] or part.get("id") or ""
        call["name"] = call["name"] or function.get("name") or ""
        if isinstance(function.get("arguments"), str):
            call["arguments"].append(function["arguments"])


def _whole_call(call: dict[str, Any]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": "".join(call["arguments"])}
    return {"id": call["id"], "type": "function", "function": function}
