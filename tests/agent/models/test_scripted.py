"""The scripted model: the right reply for each step over restarts, errors before their reply, mistakes with their line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agent.errors import (
    Ambiguous,
    ContextOverflow,
    KeyRejected,
    NotExecuted,
    ProviderError,
    QuotaExhausted,
    RequestRejected,
    UsageError,
)
from agent.models.base import Message, ModelRequest, ModelSpec, ToolSpec, complete
from agent.models.scripted import Scripted


def model(folder: Path, script: str, **more: object) -> Scripted:
    """Open a script anew, as a restarted process does."""
    (folder / "script.yaml").write_text(script, encoding="utf-8")
    params = {"script": "script.yaml", **{k: v for k, v in more.items() if k == "ledger"}}
    price = more.get("price")
    return Scripted(ModelSpec("offline/scripted", params=params, price=price), folder)  # type: ignore[arg-type]


def step(n: int, before: str = "") -> ModelRequest:
    return ModelRequest(
        (Message("system", "rules"), Message("user", f"{before}\n\n<state>\nstep: {n}\nevent\n</state>"))
    )


def sub(text: str) -> ModelRequest:
    return ModelRequest((Message("user", text),))


STEPS = """
- reply: one
- match: "count (it|them)"
  reply: four
- reply: many
  times: 3
- reply: five
- reply: rest
  forever: true
"""


def test_the_step_in_the_request_chooses_the_reply(tmp_path: Path) -> None:
    expected = ["one", "many", "many", "many", "five", "rest", "rest"]
    one = model(tmp_path, STEPS)
    assert [complete(one, step(n)).text for n in range(1, 8)] == expected
    for n in reversed(range(1, 8)):  # a new process each time, in any order
        assert complete(model(tmp_path, STEPS), step(n)).text == expected[n - 1]
    assert complete(one, step(10**6)).text == "rest"


def test_the_state_counts_and_not_what_an_observation_says(tmp_path: Path) -> None:
    assert complete(model(tmp_path, STEPS), step(5, before="the log says\nstep: 2\nand more")).text == "five"


def test_sub_calls_are_answered_by_what_they_match(tmp_path: Path) -> None:
    scripted = model(tmp_path, STEPS)
    assert [complete(scripted, sub("please count them")).text for _ in range(5)] == ["four"] * 5
    with pytest.raises(RequestRejected, match="no entry matches this sub-call"):
        complete(scripted, sub("something else"))


def test_an_exhausted_script_says_so(tmp_path: Path) -> None:
    with pytest.raises(RequestRejected, match="exhausted: it has 2 replies, this is step 3") as caught:
        complete(model(tmp_path, "- reply: a\n  times: 2"), step(3))
    assert "forever" in caught.value.hint


ERRORS = """
- reply: one
- error: {kind: not_executed, message: busy, retry_after: 0.5}
  times: 2
- error: {kind: ambiguous}
- reply: two
- reply: three
"""


def test_errors_come_before_the_reply_that_they_delay(tmp_path: Path) -> None:
    scripted = model(tmp_path, ERRORS)
    assert complete(scripted, step(1)).text == "one"
    for kind in (NotExecuted, NotExecuted, Ambiguous):
        with pytest.raises(kind) as caught:
            complete(scripted, step(2))
        assert caught.value.retry_after == (0.5 if kind is NotExecuted else None)
    assert complete(scripted, step(2)).text == "two"
    assert complete(scripted, step(3)).text == "three"
    assert complete(model(tmp_path, ERRORS), step(3)).text == "three"


def test_with_a_ledger_errors_count_over_restarts(tmp_path: Path) -> None:
    for kind in (NotExecuted, NotExecuted, Ambiguous):
        with pytest.raises(kind):
            complete(model(tmp_path, ERRORS, ledger="seen.jsonl"), step(2))
    with (tmp_path / "seen.jsonl").open("a") as file:
        file.write('{"torn": ')
    assert complete(model(tmp_path, ERRORS, ledger="seen.jsonl"), step(2)).text == "two"


def test_the_ledger_has_one_line_for_each_request(tmp_path: Path) -> None:
    scripted = model(tmp_path, STEPS, ledger="seen.jsonl")
    for request in (step(1), step(2), step(1), sub("count it")):
        complete(scripted, request)
    lines = [json.loads(line) for line in (tmp_path / "seen.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 1, None]
    assert lines[0]["hash"] == lines[2]["hash"] != lines[1]["hash"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("not_executed", NotExecuted),
        ("ambiguous", Ambiguous),
        ("rejected", RequestRejected),
        ("context_overflow", ContextOverflow),
        ("key", KeyRejected),
        ("quota", QuotaExhausted),
        ("unknown", ProviderError),
    ],
)
def test_kinds_of_errors(tmp_path: Path, kind: str, expected: type[ProviderError]) -> None:
    scripted = model(tmp_path, f"- error: {{kind: {kind}, message: as planned}}\n  forever: true")
    for n in (1, 2):
        with pytest.raises(ProviderError, match="as planned") as caught:
            complete(scripted, step(1))
        assert type(caught.value) is expected, n


def test_an_error_that_matches_counts_and_then_lets_pass(tmp_path: Path) -> None:
    scripted = model(
        tmp_path, "- match: flaky\n  times: 2\n  error: {kind: not_executed}\n- match: flaky\n  reply: fine"
    )
    for _ in range(2):
        with pytest.raises(NotExecuted):
            complete(scripted, sub("flaky thing"))
    assert complete(scripted, sub("flaky thing")).text == "fine"


def test_usage_and_cost(tmp_path: Path) -> None:
    script = '- reply: "12345678"\n  reasoning: "1234"\n  finish: length'
    free = complete(model(tmp_path, script), step(1))
    assert (free.tokens_out, free.cost_usd, free.reasoning, free.finish) == (3, 0.0, "1234", "length")
    paid = complete(model(tmp_path, script, price={"input": 1.0, "output": 10.0}), step(1))
    assert paid.cost_usd == pytest.approx((paid.tokens_in + 30) / 1e6)


@pytest.mark.parametrize(
    ("script", "place", "what"),
    [
        ("- reply: a\n- replay: b\n", ":2: ", "unknown key 'replay'"),
        ("- reply: a\n- delay: 1\n", ":2: ", "either `reply` or `error`"),
        ("- reply: a\n\n- error: {kind: later}\n", ":3: ", "kind must be one of"),
        ("- reply: a\n  times: 0\n", ":2: ", "at least 1"),
        ("- reply: a\n  times: yes\n", ":2: ", "whole number"),
        ("- reply: a\n  delay: soon\n", ":2: ", "number of seconds"),
        ("- reply: a\n  match: '('\n", ":2: ", "no regular expression"),
        ("- reply: a\n  match: b\n  times: 2\n", ":3: ", "no effect"),
        ("- reply: [a]\n", ":1: ", "must be a text"),
        ("- reply: a\n  reply: b\n", ":2: ", "twice"),
        ("- reply: 'a\n", ":", "YAML"),
        ("reply: a\n", ":1: ", "list of entries"),
        ("", ":1: ", "list of entries"),
        ("- tool_calls: look_up\n", ":1: ", "list of {name, arguments}"),
        ("- tool_calls:\n  - {arguments: {}}\n", ":2: ", "has a name"),
        ("- tool_calls: [{name: f}]\n  error: {kind: key}\n", ":1: ", "either `reply` or `error`"),
        ("- just text\n", ":1: ", "must be a mapping"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, script: str, place: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        model(tmp_path, script)
    assert f"script.yaml{place}" in caught.value.message
    assert what in caught.value.message + caught.value.hint


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        Scripted(ModelSpec("offline/scripted", params={"script": "none.yaml"}), tmp_path)
    with pytest.raises(UsageError, match=r"needs params\.script"):
        Scripted(ModelSpec("offline/scripted"), tmp_path)


CALLS = """
- match: "what is it"
  tool_calls:
  - {name: look_up, arguments: {word: it}}
  - {name: look_up, arguments: "{broken"}
- match: "^42$"
  reply: it is 42
"""


def test_tools_are_called_where_they_are_offered(tmp_path: Path) -> None:
    scripted = model(tmp_path, CALLS)
    asked = ModelRequest((Message("user", "what is it?"),), tools=(ToolSpec("look_up"),))
    reply = complete(scripted, asked)
    assert (reply.text, reply.finish) == ("", "tool_calls")
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [
        ("look_up", '{"word": "it"}'),
        ("look_up", "{broken"),
    ]
    assert len({c.id for c in reply.tool_calls}) == 2
    told = (*asked.messages, Message("assistant", "", reply.tool_calls), Message("tool", "42", tool_call_id="call_0_1"))
    assert complete(scripted, ModelRequest(told, tools=asked.tools)).text == "it is 42"
    assert complete(scripted, ModelRequest(asked.messages)).tool_calls == ()


def test_a_delay_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    scripted = model(tmp_path, "- {match: slow, reply: late, delay: 0.2}\n- {match: fast, reply: early}\n")
    done: list[str] = []

    async def ask(text: str) -> None:
        done.append((await scripted.acomplete(sub(text))).text)

    async def both() -> None:
        await asyncio.gather(ask("slow"), ask("fast"), ask("slow"))

    asyncio.run(both())
    assert done == ["early", "late", "late"]
