"""What our own client does beyond the contract in `test_over_http`: odd servers, its connections, its independence."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agent.errors import Ambiguous, NotExecuted, ProviderError, RequestRejected, ServerFailed
from agent.models.base import Message, ModelRequest, ModelSpec, complete
from agent.models.endpoint import Endpoint, is_endpoint
from tests.loopback.behaviours import Answer, behaviour
from tests.loopback.server import Loopback, loopback

REQUEST = ModelRequest((Message("user", "ping"),), max_tokens=50, timeout=10)


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


def model(server: Loopback, name: str = "openai/own", **params: object) -> Endpoint:
    return Endpoint(ModelSpec(name, api_base=server.api_base, params=params))


@pytest.mark.parametrize(
    ("spec", "own"),
    [
        (ModelSpec("openai/m", api_base="http://127.0.0.1:1/v1"), True),
        (ModelSpec("openai/gpt-5"), False),
        (ModelSpec("openai/gpt-5", api_base="https://api.openai.com/v1"), False),
        (ModelSpec("anthropic/m", api_base="http://127.0.0.1:1"), False),
        (ModelSpec("openai/m", api_base="http://127.0.0.1:1/v1", params={"mock_response": "x"}), False),
    ],
)
def test_only_a_server_of_one_s_own_is_asked_without_litellm(spec: ModelSpec, own: bool) -> None:
    assert is_endpoint(spec) is own


def test_parameters_and_headers_arrive(server: Loopback) -> None:
    seen: list[dict[str, object]] = []
    server.behave = lambda request, n: seen.append(request) or Answer()  # type: ignore[func-returns-value]
    complete(model(server, temperature=0.5, extra_body={"top_k": 3}, native_schema=True), REQUEST)
    assert (seen[0]["model"], seen[0]["temperature"], seen[0]["top_k"], seen[0]["max_tokens"]) == ("own", 0.5, 3, 50)
    assert "native_schema" not in seen[0]
    complete(model(server, "openai/gpt-5-mini"), REQUEST)
    assert seen[1]["max_completion_tokens"] == 50


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"message": "slow down", "code": 429}}, NotExecuted),
        ({"error": {"message": "the model fell over"}}, ServerFailed),
        ({"error": {"message": "no", "code": 400}}, RequestRejected),
        ({"hello": "world"}, Ambiguous),
        ([], Ambiguous),
    ],
)
def test_a_200_that_is_no_completion(server: Loopback, body: object, kind: type[ProviderError]) -> None:
    server.behave = lambda request, n: Answer(raw=json.dumps(body))
    with pytest.raises(ProviderError) as caught:
        complete(model(server), REQUEST)
    assert type(caught.value) is kind


def test_a_page_of_html_behind_a_status_is_told_as_text(server: Loopback) -> None:
    server.behave = lambda request, n: Answer(status=502, raw="<html><h1>Bad Gateway</h1></html>")
    with pytest.raises(ServerFailed, match=r"^openai/own: Bad Gateway$"):
        complete(model(server), REQUEST)


def test_a_redirect_is_not_followed(server: Loopback) -> None:
    server.behave = lambda request, n: Answer(status=302, raw="{}", headers={"Location": "/elsewhere"})
    with pytest.raises(RequestRejected):
        complete(model(server), REQUEST)


def test_an_answer_in_one_piece_to_a_wish_for_a_stream(server: Loopback) -> None:
    server.behave = lambda request, n: Answer(raw='{"choices": [{"message": {"content": "whole"}}]}')
    assert complete(model(server, stream=True), REQUEST).text == "whole"


@pytest.mark.filterwarnings("error")
def test_connections_end_with_their_loop_and_a_model_outlives_it(server: Loopback) -> None:
    server.behave = behaviour("fixed:hi")
    asked = model(server)
    assert [complete(asked, REQUEST).text for _ in range(3)] == ["hi"] * 3
    assert not asked._sessions._open
    gc.collect()  # an open connection would warn here


@pytest.mark.filterwarnings("error")
def test_close_ends_the_connections_of_a_running_loop(server: Loopback) -> None:
    server.behave = behaviour("fixed:hi")

    async def ask_and_close() -> None:
        asked = model(server)
        await asked.acomplete(REQUEST)
        (session,) = (session for session, _ in asked._sessions._open.values())
        asked.close()
        for _ in range(100):
            if session.closed:
                break
            await asyncio.sleep(0.01)
        assert session.closed
        assert (await asked.acomplete(REQUEST)).text == "hi"

    asyncio.run(ask_and_close())
    gc.collect()


def test_it_needs_no_litellm(server: Loopback) -> None:
    server.behave = behaviour("fixed:hi")
    code = "import sys; from pathlib import Path; from agent.models.base import *;"
    code += "from agent.models.registry import open_model;"
    code += f"m = open_model(ModelSpec('openai/own', api_base={server.api_base!r}), Path());"
    code += "m.check(); print(complete(m, ModelRequest((Message('user', 'x'),))).text, 'litellm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "hi False\n"
