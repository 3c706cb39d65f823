"""How the loopback server answers: a behaviour is a function (request, n) -> `Answer`, found by name or in a file.

Names: `fixed`, `fixed:TEXT`, `cell` (the same cell always), `list:FILE.json` (texts, by the `step: N` line of the last message, else
by arrival), `status:CODE` or `status:CODE:RETRY_AFTER`, and the keys of `ANSWERS`. `NAME|NAME*3|NAME` runs through
behaviours by arrival, the last one stays. `uses_tool`, `uses_tools` (two at once), `never_done` and `stubborn` call the tools that a
request offers: see `_calling`. A path that ends in .py holds a function `answer(request, n)`.
"""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec


class Answer(msgspec.Struct, frozen=True):
    """One HTTP answer. `text` None is a null content; `raw` replaces the whole body; `delay` is in seconds."""

    text: str | None = "pong"
    status: int = 200
    headers: dict[str, str] = {}
    raw: str | None = None
    reasoning: str | None = None
    #: Functions to call, as (name, arguments as JSON text).
    calls: tuple[tuple[str, str], ...] = ()
    finish: str = "stop"
    delay: float = 0.0
    usage: bool = True
    #: "" sends all, "half" ends the connection in the middle of the body, "reset" before the first byte.
    cut: str = ""


Behaviour = Callable[[dict[str, Any], int], Answer]

CELL = "Let me look.\n\n```repl\nprint(len(context))\n```\n"
HTML = "<!DOCTYPE html><html><body><h1>Welcome to the guest wireless network</h1></body></html>"
TYPES = {
    400: "invalid_request_error",
    401: "invalid_api_key",
    403: "permission_denied",
    404: "model_not_found",
    429: "rate_limit_exceeded",
}
ANSWERS = {
    "fixed": Answer(),
    "cell": Answer(CELL),
    "reset": Answer(cut="reset"),
    "half": Answer("a long answer that never ends " * 20, cut="half"),
    "html": Answer(raw=HTML, headers={"Content-Type": "text/html"}),
    "empty": Answer(""),
    "none": Answer(None),
    "reasoning": Answer(None, reasoning="Let me think about this.", finish="length"),
    "thought": Answer("42", reasoning="Six times seven."),
    "tool": Answer(None, calls=(("search", "{}"),), finish="tool_calls"),
    "slow": Answer(delay=3.0),
    "no_usage": Answer("an answer without usage", usage=False),
    "no_choices": Answer(raw='{"id": "x", "object": "chat.completion", "model": "m", "choices": []}'),
    "quota": Answer(
        status=429,
        raw='{"error": {"message": "You exceeded your current quota, please check your plan and billing details.", '
        '"type": "insufficient_quota", "code": "insufficient_quota"}}',
    ),
    "overflow": Answer(
        status=400,
        raw='{"error": {"message": "This model\'s maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", '
        '"type": "invalid_request_error", "code": "context_length_exceeded"}}',
    ),
}
#: How each caller of tools behaves: calls at once, whether a result ends it, whether `tool_choice: none` does.
CALLERS: dict[str, dict[str, Any]] = {
    "uses_tool": {"at_once": 1},
    "uses_tools": {"at_once": 2},
    "never_done": {"at_once": 1, "ends": False},
    "stubborn": {"at_once": 1, "ends": False, "obeys": False},
}


def behaviour(name: str) -> Behaviour:
    """Return the behaviour of this name; raise `KeyError` for an unknown one."""
    if name.endswith(".py"):
        return runpy.run_path(name)["answer"]  # type: ignore[no-any-return]
    if name.startswith("fixed:"):
        return _always(Answer(name[6:]))
    if name.startswith("list:"):
        return _from_list(json.loads(Path(name[5:]).read_text(encoding="utf-8")))
    if name in CALLERS:
        return _calling(**CALLERS[name])
    if "|" in name or re.search(r"\*\d+$", name):
        return _in_turn(name)
    if name.startswith("status:"):
        return _always(_status(*name.split(":")[1:]))
    return _always(ANSWERS[name])


def _always(answer: Answer) -> Behaviour:
    return lambda request, n: answer


def _status(code: str, retry_after: str = "") -> Answer:
    kind = TYPES.get(int(code), "server_error")
    body = {"error": {"message": f"loopback says {code}", "type": kind, "code": kind}}
    return Answer(status=int(code), raw=json.dumps(body), headers={"Retry-After": retry_after} if retry_after else {})


def _from_list(texts: list[str]) -> Behaviour:
    def answer(request: dict[str, Any], n: int) -> Answer:
        found = re.findall(r"^step: (\d+)", last_text(request), re.MULTILINE)
        at = int(found[-1]) if found else n
        return Answer(texts[min(at, len(texts)) - 1])

    return answer


def _calling(at_once: int, ends: bool = True, obeys: bool = True) -> Behaviour:
    """Call the first tool that is offered, with `{"n": 1, "about": <the last user message>}`; then repeat what it said."""

    def answer(request: dict[str, Any], n: int) -> Answer:
        messages = request["messages"]
        results = [m["content"] for m in messages if m["role"] == "tool"]
        forbidden = request.get("tool_choice") == "none"
        if not request.get("tools") or (forbidden and obeys) or (results and ends):
            return Answer(f"final: {' | '.join(results)}")
        name = request["tools"][0]["function"]["name"]
        about = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
        first = len(results) + 1
        calls = [(name, json.dumps({"n": k, "about": about})) for k in range(first, first + at_once)]
        return Answer(None, calls=tuple(calls), finish="tool_calls")

    return answer


def _in_turn(name: str) -> Behaviour:
    turns: list[Behaviour] = []
    for part in name.split("|"):
        bare, _, times = part.partition("*")
        turns += [behaviour(bare)] * int(times or 1)
    return lambda request, n: turns[min(n, len(turns)) - 1](request, n)


def last_text(request: dict[str, Any]) -> str:
    """Return the text of a request's last message."""
    messages = request.get("messages") or [{}]
    content = messages[-1].get("content")
    return content if isinstance(content, str) else json.dumps(content)
