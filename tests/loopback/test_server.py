"""The loopback server is the oracle of other tests, so it is tested as well: over plain sockets, without any SDK."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.loopback.behaviours import Answer
from tests.loopback.server import Loopback, loopback, read_ledger

ROOT = Path(__file__).resolve().parents[2]


def post(port: int, text: str = "hello", **more: Any) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **more})
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_reply_and_its_ledger(tmp_path: Path) -> None:
    with loopback("fixed:hi", tmp_path / "ledger") as server:
        status, body = post(server.server_port)
    assert status == 200
    assert json.loads(body)["choices"][0]["message"]["content"] == "hi"
    arrived, answered = read_ledger(tmp_path / "ledger")
    assert (arrived["event"], arrived["n"], arrived["last"]) == ("arrived", 1, "hello")
    assert (answered["event"], answered["n"], answered["status"]) == ("answered", 1, 200)


def test_a_stream_has_all_the_text_and_its_usage() -> None:
    with loopback("fixed:a somewhat longer text") as server:
        _, body = post(server.server_port, stream=True, stream_options={"include_usage": True})
    events = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line]
    assert events[-1] == "[DONE]"
    parsed = [json.loads(event) for event in events[:-1]]
    assert "".join(c["delta"].get("content") or "" for e in parsed for c in e["choices"]) == "a somewhat longer text"
    assert parsed[-1]["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize(("how", "error"), [("reset", ConnectionResetError), ("half", http.client.IncompleteRead)])
def test_cut_connections(how: str, error: type[Exception]) -> None:
    with loopback(how) as server, pytest.raises(error):
        post(server.server_port)


def test_behaviours_in_turn() -> None:
    with loopback("status:500*2|status:429:3|fixed:done") as server:
        assert [post(server.server_port)[0] for _ in range(5)] == [500, 500, 429, 200, 200]


TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def call_of(body: bytes) -> list[dict[str, Any]]:
    return json.loads(body)["choices"][0]["message"].get("tool_calls", [])  # type: ignore[no-any-return]


@pytest.mark.parametrize(("how", "calls"), [("uses_tool", 1), ("uses_tools", 2)])
def test_a_tool_is_called_until_its_result_is_there(how: str, calls: int) -> None:
    with loopback(how) as server:
        _, body = post(server.server_port, tools=[TOOL])
        assert [c["function"]["name"] for c in call_of(body)] == ["look_up"] * calls
        told = [{"role": "user", "content": "hello"}, {"role": "tool", "content": "42", "tool_call_id": "call_1"}]
        _, body = post(server.server_port, tools=[TOOL], messages=told)
        assert json.loads(body)["choices"][0]["message"]["content"] == "final: 42"
        assert server.ledger.requests[-1]["tools"] == ["look_up"]


@pytest.mark.parametrize(("how", "obeys"), [("never_done", True), ("stubborn", False)])
def test_some_never_stop_calling_tools(how: str, obeys: bool) -> None:
    told = [{"role": "user", "content": "hello"}, {"role": "tool", "content": "42", "tool_call_id": "call_1"}]
    with loopback(how) as server:
        assert call_of(post(server.server_port, tools=[TOOL], messages=told)[1])
        _, body = post(server.server_port, tools=[TOOL], messages=told, tool_choice="none")
        assert bool(call_of(body)) is not obeys


def test_hundreds_of_connections_at_once() -> None:
    gate = threading.Barrier(200, timeout=30)  # nobody is answered before all have arrived
    with loopback(lambda request, n: Answer(str(gate.wait() >= 0))) as server, ThreadPoolExecutor(200) as pool:
        statuses = list(pool.map(lambda _: post(server.server_port)[0], range(200)))
    assert statuses == [200] * 200


def _start(*args: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.loopback.server", *args], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_as_a_process_its_ledger_outlives_it(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from tests.loopback.behaviours import Answer\ndef answer(request, n): return Answer(f'number {n}')\n"
    )
    for n in (1, 2):
        process, port = _start("--behaviour", str(own), "--ledger", str(tmp_path / "ledger"))
        try:
            assert f"number {n}".encode() in post(port)[1]
        finally:
            process.kill()
            process.communicate()
    assert [line["n"] for line in read_ledger(tmp_path / "ledger") if line["event"] == "arrived"] == [1, 2]


def test_it_listens_on_the_loopback_address_only() -> None:
    with loopback() as server:
        assert isinstance(server, Loopback)
        assert server.server_address[0] == "127.0.0.1"
