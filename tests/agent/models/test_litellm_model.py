"""The real litellm against a real server on the loopback address: each row of the table, as it arrives over HTTP."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
    ServerFailed,
    UsageError,
)
from agent.models.base import Message, ModelReply, ModelRequest, ModelSpec
from agent.models.litellm_model import LitellmModel, load_litellm
from tests.loopback.behaviours import Answer, behaviour
from tests.loopback.server import Loopback, loopback

SCHEMA = {"type": "object", "properties": {"key": {"type": "integer"}}, "required": ["key"]}
REQUEST = ModelRequest((Message("system", "Be brief."), Message("user", "ping")), max_tokens=50, timeout=10)


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydantic", "ignore::UserWarning:litellm")


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    load_litellm()
    with loopback() as running:
        yield running


def spec(server: Loopback, **more: object) -> ModelSpec:
    return ModelSpec("openai/loopback-1", api_base=server.api_base, **more)  # type: ignore[arg-type]


def ask(server: Loopback, how: str, stream: bool = False, timeout: float = 10, **more: object) -> ModelReply:
    """Ask once, and make sure that exactly one request went out."""
    server.behave = behaviour(how)
    before = len(server.ledger.requests)
    params = {"stream": True} if stream else {}
    try:
        return LitellmModel(spec(server, params=params, **more)).complete(
            ModelRequest(REQUEST.messages, max_tokens=50, timeout=timeout)
        )
    finally:
        assert len(server.ledger.requests) == before + 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("how", "text", "reasoning", "finish"),
    [
        ("fixed:hello", "hello", "", "stop"),
        ("empty", "", "", "stop"),
        ("none", "", "", "stop"),
        ("reasoning", "", "Let me think about this.", "length"),
        ("thought", "42", "Six times seven.", "stop"),
        ("tool", "", "", "tool_calls"),
        ("fixed:<think>Six times seven.</think>\n42", "42", "Six times seven.", "stop"),
    ],
)
def test_replies(server: Loopback, stream: bool, how: str, text: str, reasoning: str, finish: str) -> None:
    reply = ask(server, how, stream, price={"input": 1.0, "output": 2.0})
    assert (reply.text, reply.reasoning, reply.finish) == (text, reasoning, finish)
    assert reply.tokens_in > 0
    assert reply.cost_usd == pytest.approx((reply.tokens_in + 2 * reply.tokens_out) / 1e6)
    assert reply.model == "loopback-1"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("how", "kind", "hint"),
    [
        ("status:400", RequestRejected, "refused again"),
        ("overflow", ContextOverflow, "prompt_tokens"),
        ("status:401", KeyRejected, "OPENAI_API_KEY"),
        ("status:402", QuotaExhausted, "top it up"),
        ("status:403", KeyRejected, "OPENAI_API_KEY"),
        ("status:404", RequestRejected, "model not found"),
        ("status:405", RequestRejected, ""),
        ("status:408", Ambiguous, ""),
        ("status:409", NotExecuted, ""),
        ("status:413", ContextOverflow, ""),
        ("status:422", RequestRejected, ""),
        ("status:425", NotExecuted, ""),
        ("status:429", NotExecuted, ""),
        ("quota", QuotaExhausted, "top it up"),
        ("status:500", ServerFailed, "may have been paid"),
        ("status:502", ServerFailed, ""),
        ("status:503", ServerFailed, ""),
        ("status:504", ServerFailed, ""),
        ("status:529", ServerFailed, ""),
        ("reset", Ambiguous, "may have been executed"),
        ("half", Ambiguous, ""),
        ("html", Ambiguous, "api_base"),
    ],
)
def test_failures(server: Loopback, stream: bool, how: str, kind: type[ProviderError], hint: str) -> None:
    with pytest.raises(ProviderError) as caught:
        ask(server, how, stream)
    assert type(caught.value) is kind
    assert hint in caught.value.hint
    assert caught.value.message.startswith("openai/loopback-1: ")
    assert caught.value.__cause__ is not None or how == "html"


@pytest.mark.parametrize(("how", "pause"), [("status:429:7", 7.0), ("status:503:9", 9.0), ("status:400:9", None)])
def test_retry_after_is_read(server: Loopback, how: str, pause: float | None) -> None:
    with pytest.raises(ProviderError) as caught:
        ask(server, how)
    assert caught.value.retry_after == pause


@pytest.mark.parametrize("stream", [False, True])
def test_a_time_out_after_sending_is_ambiguous(server: Loopback, stream: bool) -> None:
    with pytest.raises(Ambiguous):
        ask(server, "slow", stream, timeout=0.3)


def test_what_is_not_reachable_was_not_executed() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        base = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(NotExecuted) as caught:
            LitellmModel(ModelSpec("openai/m", api_base=base)).complete(REQUEST)
    assert base in caught.value.message


def test_an_unknown_host_was_not_executed() -> None:
    with pytest.raises(NotExecuted):
        LitellmModel(ModelSpec("openai/m", api_base="http://no-such-host.invalid/v1")).complete(REQUEST)


def test_a_missing_usage_is_estimated(server: Loopback) -> None:
    for stream in (False, True):
        reply = ask(server, "no_usage", stream)
        assert reply.tokens_in > 3
        assert reply.tokens_out > 3
        assert reply.cost_usd is None  # an unknown price is unknown, not 0


def test_a_known_price_is_used(server: Loopback) -> None:
    server.behave = behaviour("fixed:hello")
    reply = LitellmModel(ModelSpec("openai/gpt-4o-mini", api_base=server.api_base)).complete(REQUEST)
    assert reply.cost_usd is not None
    assert 0 < reply.cost_usd < 0.001


def test_a_reply_without_choices_is_paid_and_empty(server: Loopback) -> None:
    reply = ask(server, "no_choices")
    assert (reply.text, reply.finish) == ("", "other")
    assert reply.tokens_in > 0


def test_a_schema_is_in_the_prompt_where_the_provider_has_none(server: Loopback) -> None:
    server.behave = behaviour('fixed:{"key": 1}')
    request = ModelRequest(REQUEST.messages, schema=SCHEMA)
    LitellmModel(spec(server)).complete(request)
    seen = server.ledger.requests[-1]
    assert seen["format"] is None
    assert json.dumps(SCHEMA) in seen["last"]
    LitellmModel(spec(server, params={"native_schema": True})).complete(request)
    seen = server.ledger.requests[-1]
    assert seen["format"] == "json_schema"
    assert seen["last"] == "ping"


def test_the_users_key_goes_only_where_it_was_meant_to(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-meant-for-openai")
    ask(server, "fixed")
    assert "meant-for-openai" not in server.ledger.requests[-1]["key"]
    monkeypatch.setenv("MY_KEY", "sk-meant-for-this")
    ask(server, "fixed", api_key_env="MY_KEY")
    assert server.ledger.requests[-1]["key"] == "sk-meant-for-this"


def test_a_key_that_the_provider_repeats_is_not_shown(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "very-secret-word")
    server.behave = lambda request, n: Answer(
        status=401,
        raw='{"error": {"message": "Incorrect API key provided: very-secret-word", "code": "invalid_api_key"}}',
    )
    with pytest.raises(KeyRejected) as caught:
        LitellmModel(spec(server, api_key_env="MY_KEY")).complete(REQUEST)
    assert "very-secret-word" not in caught.value.message
    assert "MY_KEY" in caught.value.hint


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai/gpt-5", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.5-flash", "GEMINI_API_KEY"),
    ],
)
def test_a_missing_key_is_named_before_anything_is_asked(model: str, variable: str) -> None:
    with pytest.raises(KeyRejected) as caught:
        LitellmModel(ModelSpec(model)).check()
    assert variable in caught.value.hint
    with pytest.raises(KeyRejected):  # and so it is when nobody checked, though litellm calls it a 500
        LitellmModel(ModelSpec(model)).complete(REQUEST)


def test_check_asks_litellm_for_providers_that_are_less_common() -> None:
    with pytest.raises(KeyRejected) as caught:
        LitellmModel(ModelSpec("together_ai/some-model")).check()
    assert "TOGETHERAI_API_KEY" in caught.value.hint


def test_check_names_the_variable_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LitellmModel(ModelSpec("openai/gpt-5", api_key_env="WORK_KEY"))
    with pytest.raises(KeyRejected, match="no API key") as caught:
        model.check()
    assert "WORK_KEY" in caught.value.hint
    monkeypatch.setenv("WORK_KEY", "sk-1")
    model.check()


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (ModelSpec("openai/m", api_base="127.0.0.1:80"), "http"),
        (ModelSpec("openai/m", api_base="http://127.0.0.1/v1", params={"api_key": "x"}), "api_key_env"),
        (ModelSpec("no-such-provider/m"), "provider/model"),
    ],
)
def test_check_refuses_what_cannot_work(wrong: ModelSpec, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        LitellmModel(wrong).check()
    assert what in caught.value.hint


def test_many_threads_share_one_model(server: Loopback) -> None:
    server.behave = lambda request, n: Answer(request["messages"][-1]["content"].upper())
    model = LitellmModel(spec(server))

    def one(n: int) -> str:
        return model.complete(ModelRequest((Message("user", f"word {n}"),))).text

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(24))) == [f"WORD {n}" for n in range(24)]


def test_a_stream_that_trickles_ends_at_the_time_out() -> None:
    """A server that sends a little for ever never trips a read time-out; the deadline of the whole does."""
    piece = b'data: {"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
    done = threading.Event()

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            while not done.wait(0.05):
                try:
                    connection.sendall(piece)
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        base = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        model = LitellmModel(ModelSpec("openai/m", api_base=base, params={"stream": True}))
        try:
            with pytest.raises(Ambiguous, match="not done after"):
                model.complete(ModelRequest(REQUEST.messages, timeout=1))
        finally:
            done.set()
            thread.join(5)


def test_a_list_of_texts_follows_the_step(server: Loopback, tmp_path: Path) -> None:
    texts = tmp_path / "texts.json"
    texts.write_text(json.dumps(["one", "two", "three"]))
    server.behave = behaviour(f"list:{texts}")
    request = ModelRequest((Message("user", "<state>\nstep: 2\n</state>"),))
    assert [LitellmModel(spec(server)).complete(request).text for _ in range(2)] == ["two", "two"]
