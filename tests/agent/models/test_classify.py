"""The table of failures where no server is needed: causes that hide, words that matter more than a status, unknown ones."""

from __future__ import annotations

import ssl

import aiohttp
import httpx
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
)
from agent.models.base import ModelSpec
from agent.models.classify import classify, clean

SPEC = ModelSpec("openai/gpt-5")
KEY = aiohttp.client_reqrep.ConnectionKey("localhost", 80, False, True, None, None, None)


class InternalServerError(Exception):
    """What litellm calls it, with the status that it makes up."""

    status_code = 500


class APIError(Exception):
    """A provider's answer with a status and headers."""

    def __init__(self, message: str, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status_code = status
        self.response = httpx.Response(status, headers=headers, request=httpx.Request("POST", "http://127.0.0.1"))
        self.__cause__ = httpx.HTTPStatusError(message, request=self.response.request, response=self.response)


def hidden(cause: BaseException) -> InternalServerError:
    error = InternalServerError("litellm.InternalServerError: InternalServerError: OpenAIException - Connection error.")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (httpx.ConnectError("[Errno 111] Connection refused"), NotExecuted),
        (httpx.ConnectTimeout("timed out"), NotExecuted),
        (httpx.PoolTimeout("no connection free"), NotExecuted),
        (httpx.ProxyError("407"), NotExecuted),
        (ConnectionRefusedError(111, "refused"), NotExecuted),
        (httpx.ReadTimeout("timed out"), Ambiguous),
        (httpx.WriteError("broken pipe"), Ambiguous),
        (httpx.RemoteProtocolError("peer closed connection"), Ambiguous),
        (ConnectionResetError(104, "reset"), Ambiguous),
        (httpx.UnsupportedProtocol("no scheme"), RequestRejected),
        (aiohttp.ClientConnectorError(KEY, OSError(113, "no route to host")), NotExecuted),
        (aiohttp.ConnectionTimeoutError("connecting"), NotExecuted),
        (aiohttp.ServerDisconnectedError(), Ambiguous),
        (aiohttp.ClientPayloadError("not enough data"), Ambiguous),
        (aiohttp.ClientOSError(32, "broken pipe"), Ambiguous),
        (aiohttp.SocketTimeoutError("reading"), Ambiguous),
        (TimeoutError(), Ambiguous),
        (aiohttp.InvalidURL("::"), RequestRejected),
    ],
)
def test_the_cause_decides_not_the_class_it_came_in(cause: Exception, kind: type[ProviderError]) -> None:
    assert type(classify(hidden(cause), SPEC)) is kind


def test_an_untrusted_certificate_is_not_tried_again() -> None:
    cause = httpx.ConnectError("certificate verify failed")
    cause.__cause__ = ssl.SSLCertVerificationError(1, "certificate verify failed")
    found = classify(hidden(cause), SPEC)
    assert not found.retryable
    assert "SSL_CERT_FILE" in found.hint


@pytest.mark.parametrize(
    "cause", [TypeError("unexpected keyword"), KeyError("choices"), RuntimeError("boom"), UserWarning("no")]
)
def test_what_is_not_known_fails_loudly_and_is_not_repeated(cause: Exception) -> None:
    class OpenAIError(Exception):
        """litellm's own class in between, with the same made-up status."""

    between = OpenAIError("boom")
    between.__cause__ = cause
    for error in (cause, hidden(cause), hidden(between)):
        found = classify(error, SPEC)
        assert type(found) is ProviderError
        assert not found.retryable
        assert type(cause).__name__ in found.message


@pytest.mark.parametrize(
    ("message", "status", "kind"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", 400, ContextOverflow),
        ("request (9000 tokens) exceeds the available context size (8192 tokens)", 400, ContextOverflow),
        ("Your credit balance is too low to access the API", 400, QuotaExhausted),
        ("API key not valid. Please pass a valid API key. API_KEY_INVALID", 400, KeyRejected),
        ("The model `gpt-9` does not exist", 404, RequestRejected),
        ("Overloaded", 529, ServerFailed),
        ("I'm a teapot", 418, RequestRejected),
        ("prompt caching failed inside the context window service", 500, ServerFailed),
        ("no api_key in the upstream pool", 503, ServerFailed),
    ],
)
def test_words_and_statuses(message: str, status: int, kind: type[ProviderError]) -> None:
    assert type(classify(APIError(message, status), SPEC)) is kind


def test_a_quota_that_comes_back_is_waited_for() -> None:
    """Gemini says "quota" for its limit per minute, with a delay; OpenAI means the account."""
    gemini = "You exceeded your current quota, please check your plan and billing details. Please retry in 34.5s."
    found = classify(APIError(gemini, 429), SPEC)
    assert type(found) is NotExecuted
    assert found.retry_after == 34.5
    openai = "You exceeded your current quota (insufficient_quota). Please retry in 1s."
    assert type(classify(APIError(openai, 429), SPEC)) is QuotaExhausted


def test_rate_limit_headers_give_the_pause() -> None:
    headers = {
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
        "x-ratelimit-reset-requests": "20ms",
    }
    found = classify(APIError("slow down", 429, headers), SPEC)
    assert found.retry_after == 360.0


def test_a_provider_error_stays_what_it_is() -> None:
    error = ContextOverflow("too long")
    assert classify(error, SPEC) is error


def test_circular_causes_end() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert type(classify(first, SPEC)) is ProviderError


def test_messages_are_short_and_without_keys() -> None:
    text = (
        "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect key sk-abcdefgh12345678, see\n the\n docs "
        + "x" * 999
    )
    assert clean(text).startswith("Incorrect key …, see the docs xxx")
    assert len(clean(text)) == 300
