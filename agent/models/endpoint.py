"""A server of one's own that speaks the OpenAI format at `api_base`, asked without litellm in between.

The format is all that is needed there; litellm's import takes seconds, and each of its calls some six milliseconds of processor,
so that hundreds at once wait for it and not for the server. Failures are told by the same table (`classify`).
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import msgspec

from agent.errors import Ambiguous, NotExecuted, ProviderError
from agent.models.access import check_access, is_openai, key_to_send, named_key
from agent.models.base import ModelReply, ModelRequest, ModelSpec
from agent.models.classify import classify
from agent.models.costmap import cost_at, known_cost
from agent.models.eventstream import Assembly, StreamError
from agent.models.replies import Usage, estimate_usage, read_reply, read_usage
from agent.models.schemas import NativeSchema
from agent.models.sessions import LoopSessions
from agent.models.wire import write_messages, write_schema, write_tools

if TYPE_CHECKING:
    import aiohttp

_CONNECT_TIMEOUT = 15.0
_GRACE = 0.5  # seconds, so that a connection that was never made is told from a lost answer
_LARGE = 1 << 20
_OWN_PARAMS = {"native_schema", "extra_headers", "extra_body"}
#: Parameters that mean something to litellm alone.
_LITELLM_PARAMS = {
    "mock_response",
    "custom_llm_provider",
    "drop_params",
    "additional_drop_params",
    "allowed_openai_params",
}
_NEW_LIMIT = re.compile(r"^(o\d|gpt-5)")  # models that know `max_completion_tokens` only


class HTTPStatusError(Exception):
    """The server answered with something else than 2xx; the table knows this name."""

    def __init__(self, status: int, message: str, headers: Any) -> None:
        super().__init__(message)
        self.status_code = status
        self.litellm_response_headers = dict(headers)


def is_endpoint(spec: ModelSpec) -> bool:
    """Say whether a spec names a server of one's own that needs nothing of litellm."""
    own = spec.api_base is not None and not is_openai(spec.api_base)
    return own and spec.model.startswith("openai/") and not _LITELLM_PARAMS & spec.params.keys()


class Endpoint:
    """A `Model` at an address. Its connections end with their event loop."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self._native = NativeSchema(spec)
        self._sessions = LoopSessions()

    def check(self) -> None:
        """Raise `KeyRejected` when the named key is missing and `UsageError` when address or parameters can't be used."""
        check_access(self.spec)

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """Ask once and return the reply; raise a `ProviderError` that says whether a repeat is free."""
        native = request.schema is not None and self._native.holds(lambda: False)
        try:
            answer = await self._ask(request, native)
        except ProviderError as error:
            if not (native and self._native.was_refused(error)):
                raise
            answer = await self._ask(request, False)
        usage = read_usage(answer) or estimate_usage(answer, request)
        cost = self._cost(answer, usage)
        return read_reply(answer, usage, cost, self.spec.model, bool(request.tools))

    def close(self) -> None:
        """Close the connections, on the loops that they belong to."""
        self._sessions.close()

    async def _ask(self, request: ModelRequest, native: bool) -> dict[str, Any]:
        """Send one request and return the chat completion; a stream is read to its end and put together."""
        session = await self._sessions.get()
        import aiohttp

        body, headers = self._body(request, native)
        connect = min(_CONNECT_TIMEOUT, request.timeout)
        limits = aiohttp.ClientTimeout(total=request.timeout + _GRACE, connect=connect)
        data = io.BytesIO(body) if len(body) > _LARGE else body
        url = f"{(self.spec.api_base or '').rstrip('/')}/chat/completions"
        begun: list[Assembly] = []
        try:
            async with session.post(url, data=data, headers=headers, timeout=limits, allow_redirects=False) as response:
                if response.status >= 300:
                    raise await _refusal(response)
                if "event-stream" not in response.content_type:
                    return self._completion(await response.read(), response)
                begun.append(Assembly())
                return await self._read_stream(response, begun[0])
        except Exception as error:
            if type(error) is TimeoutError:  # the whole took too long; a connection that was not made has its own class
                told = f"{self.spec.model}: not done after {request.timeout:g} s"
                raise Ambiguous(told, "the request may have been executed, and its answer was lost") from error
            found = classify(error, self.spec, [named_key(self.spec) or ""])
            if begun and (begun[0].pieces or isinstance(found, NotExecuted)):  # it was at work: no repeat is free
                found = Ambiguous(f"{found.message} (cut after {begun[0].pieces} pieces)", found.hint)
            if found is error:
                raise
            raise found from error

    async def _read_stream(self, response: aiohttp.ClientResponse, assembly: Assembly) -> dict[str, Any]:
        """Read to the end that the stream tells; a server that keeps the line open after that is not waited for."""
        try:
            async for chunk in response.content.iter_any():
                assembly.feed(chunk)
                if assembly.done:
                    break
        except StreamError as error:
            raise Ambiguous(f"{self.spec.model}: {error}", "the request may have been executed") from error
        if not assembly.ended:
            raise Ambiguous(
                f"{self.spec.model}: the stream stopped after {assembly.pieces} pieces without an end",
                "the request may have been executed; is api_base right?",
            )
        return assembly.completion()

    def _completion(self, data: bytes, response: aiohttp.ClientResponse) -> dict[str, Any]:
        """Return the chat completion in a body; some gateways answer 200 with an error in it."""
        try:
            answer = msgspec.json.decode(data)
        except msgspec.DecodeError:
            answer = None
        if isinstance(answer, dict) and "choices" in answer:
            return answer
        if isinstance(answer, dict) and answer.get("error"):
            raise HTTPStatusError(_code(answer["error"]), _message(answer), response.headers)
        seen = " ".join(data[:200].decode(errors="replace").split())
        told = f"{self.spec.model}: no chat completion came back from {response.url}: {seen!r}"
        raise Ambiguous(told, "is api_base right, and is no login page or proxy in between?")

    def _body(self, request: ModelRequest, native: bool) -> tuple[bytes, dict[str, str]]:
        name = self.spec.model.removeprefix("openai/")
        params = self.spec.params
        body: dict[str, Any] = {"model": name, "messages": write_messages(request, schema_in_prompt=not native)}
        if request.max_tokens is not None and "max_completion_tokens" not in params:
            body["max_completion_tokens" if _NEW_LIMIT.match(name) else "max_tokens"] = request.max_tokens
        if native and request.schema is not None:
            body |= write_schema(request.schema)
        if params.get("stream"):
            body["stream_options"] = {"include_usage": True}
        body |= {k: v for k, v in params.items() if k not in _OWN_PARAMS}
        body |= params.get("extra_body") or {}
        body |= write_tools(request)
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if key := key_to_send(self.spec):
            headers["Authorization"] = f"Bearer {key}"
        return msgspec.json.encode(body), {**headers, **(params.get("extra_headers") or {})}

    def _cost(self, answer: dict[str, Any], usage: Usage) -> float | None:
        if self.spec.price is not None:
            return cost_at(self.spec.price, usage.tokens_in, usage.tokens_out)
        told = {"prompt_tokens": usage.tokens_in, "completion_tokens": usage.tokens_out}
        return known_cost(self.spec.model, told if usage.estimated else answer.get("usage"))


async def _refusal(response: aiohttp.ClientResponse) -> HTTPStatusError:
    data = await response.read()
    try:
        message = _message(msgspec.json.decode(data))
    except msgspec.DecodeError:
        message = re.sub(r"<[^>]*>", " ", data[:4096].decode(errors="replace"))
    return HTTPStatusError(response.status, message.strip() or f"status {response.status}", response.headers)


def _message(answer: Any) -> str:
    """Return what an error body says: its message, and the words of its type and code that the message lacks."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if not isinstance(error, dict):
        return str(error)
    said = str(error.get("message") or error.get("detail") or error)
    more = [str(error[k]) for k in ("code", "type") if isinstance(error.get(k), str) and error[k] not in said]
    return f"{said} ({', '.join(dict.fromkeys(more))})" if more else said


def _code(error: Any) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 300 <= code < 600 else 500
