"""Every provider that litellm knows, as a `Model`: one request per `acomplete`, no retries of its own.

litellm is imported on the first use and never before: it takes seconds, so it happens in a thread. What was spent is worked out
before the reply is read, so that no reply, however odd, goes uncounted.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import threading
import warnings
from typing import Any

from agent.errors import Ambiguous, NotExecuted, ProviderError, UsageError
from agent.models.access import check_access, key_to_send, named_key
from agent.models.base import ModelReply, ModelRequest, ModelSpec
from agent.models.classify import classify, missing_key, never_began
from agent.models.costmap import cost_at
from agent.models.replies import Usage, estimate_usage, read_reply, read_usage
from agent.models.schemas import NativeSchema
from agent.models.sessions import LoopSessions
from agent.models.tokenizer import count_tokens
from agent.models.wire import write_messages, write_schema, write_tools

_CONNECT_TIMEOUT = 15.0
_GRACE = 0.5  # seconds
#: Variables of the common providers: a missing key is told at once, without litellm's import of several seconds.
_KEYS = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "mistral": ("MISTRAL_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "xai": ("XAI_API_KEY",),
}
_loading = threading.Lock()
_loaded = threading.Event()
# One for all models: litellm keeps a client per address and key, whoever asked first.
_sessions = LoopSessions()


class LitellmModel:
    """A hosted model, or a server that speaks the OpenAI format at `api_base`."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self._native = NativeSchema(spec)
        self._unpriced = False

    def check(self) -> None:
        """Raise `KeyRejected` when the key is missing and `UsageError` when the address or a parameter can't be used."""
        check_access(self.spec)
        if not self.spec.api_key_env and not self.spec.api_base and "mock_response" not in self.spec.params:
            self._check_environment()

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """Ask once and return the reply; raise a `ProviderError` that says whether a repeat is free."""
        litellm = sys.modules["litellm"] if _loaded.is_set() else await asyncio.to_thread(load_litellm)
        native = request.schema is not None and self._native.holds(lambda: _constrains(litellm, self.spec))
        try:
            response = await self._ask(litellm, request, native)
        except ProviderError as error:
            if not (native and self._native.was_refused(error)):
                raise
            response = await self._ask(litellm, request, False)
        usage = read_usage(response) or estimate_usage(response, request)
        cost = self._cost(litellm, response, usage)
        return read_reply(response, usage, cost, self.spec.model, bool(request.tools))

    def count_tokens(self, text: str) -> int | None:
        """Count a text in this model's tokens; None as long as litellm is not loaded."""
        return count_tokens(self.spec.model, text) if _loaded.is_set() else None

    def close(self) -> None:
        """Do nothing: the connections are shared over the whole process, and end with their loop."""

    async def _ask(self, litellm: Any, request: ModelRequest, native: bool) -> Any:
        """Send one request and return litellm's response; a stream is read to its end."""
        arguments = self._arguments(request, native)
        try:
            # Later than the client's own time-outs, which tell a connection that was never made from a lost answer.
            async with asyncio.timeout(request.timeout + _GRACE):
                response = await litellm.acompletion(**arguments, shared_session=await _sessions.get())
                if not arguments.get("stream"):
                    return response
                return await self._read_stream(litellm, response, arguments["messages"])
        except TimeoutError as error:
            told = f"{self.spec.model}: not done after {request.timeout:g} s"
            raise Ambiguous(told, "the request may have been executed, and its answer was lost") from error
        except Exception as error:
            raise classify(error, self.spec, [named_key(self.spec) or ""]) from error

    def _arguments(self, request: ModelRequest, native: bool) -> dict[str, Any]:
        import httpx

        params = {k: v for k, v in self.spec.params.items() if k != "native_schema"}
        arguments: dict[str, Any] = {
            "model": self.spec.model,
            "timeout": httpx.Timeout(request.timeout, connect=min(_CONNECT_TIMEOUT, request.timeout)),
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": True,
        }
        if request.max_tokens is not None and "max_completion_tokens" not in params:
            arguments["max_tokens"] = request.max_tokens
        if native and request.schema is not None:
            arguments |= write_schema(request.schema)
        if self.spec.api_base:
            arguments["api_base"] = self.spec.api_base
        if key := key_to_send(self.spec):
            arguments["api_key"] = key
        if params.get("stream"):
            arguments["stream_options"] = {"include_usage": True}
        messages = write_messages(request, schema_in_prompt=not native)
        return {**arguments, **params, **write_tools(request), "messages": messages}

    async def _read_stream(self, litellm: Any, stream: Any, messages: list[dict[str, Any]]) -> Any:
        """Read a stream to its end and put it together; one that ends early is `Ambiguous`."""
        chunks: list[Any] = []
        try:
            async for chunk in stream:
                chunks.append(chunk)
        except Exception as error:
            found = classify(error, self.spec, [named_key(self.spec) or ""])
            # Some providers are asked only when the first piece is wanted. Once there is a stream, nothing is free any more.
            if not chunks and (never_began(error) or not isinstance(found, NotExecuted)):
                raise found from error
            raise Ambiguous(f"{found.message} (cut after {len(chunks)} pieces)", found.hint) from error
        if getattr(stream, "received_finish_reason", "stop") is None:
            raise Ambiguous(
                f"{self.spec.model}: the stream stopped after {len(chunks)} pieces without an end",
                "the request may have been executed; is api_base right?",
            )
        return litellm.stream_chunk_builder(chunks, messages=messages)

    def _cost(self, litellm: Any, response: Any, usage: Usage) -> float | None:
        if self.spec.price is not None:
            return cost_at(self.spec.price, usage.tokens_in, usage.tokens_out)
        worked_out = (getattr(response, "_hidden_params", None) or {}).get("response_cost")
        if worked_out and not usage.estimated:
            return float(worked_out)
        if self._unpriced:  # to find that out anew takes litellm two milliseconds for each reply
            return None
        told = {"prompt_tokens": usage.tokens_in, "completion_tokens": usage.tokens_out}
        try:
            if usage.estimated:
                return float(sum(litellm.cost_per_token(model=self.spec.model, **told)))
            return float(litellm.completion_cost(completion_response=response, model=self.spec.model))
        except Exception:  # litellm says so, in many ways, when it does not know a price
            self._unpriced = True
            return None

    def _check_environment(self) -> None:
        provider = self.spec.model.split("/")[0] if "/" in self.spec.model else ""
        if provider in _KEYS:
            if not any(os.environ.get(name, "").strip() for name in _KEYS[provider]):
                raise missing_key(self.spec, _KEYS[provider])
            return
        litellm = load_litellm()
        try:
            litellm.get_llm_provider(self.spec.model)
        except Exception as error:
            hint = "write provider/model, as in openai/gpt-5-mini; docs.litellm.ai/docs/providers lists them"
            raise UsageError(f"{self.spec.model!r}: no such provider", hint) from error
        missing = litellm.validate_environment(self.spec.model).get("missing_keys") or []
        if missing:
            raise missing_key(self.spec, missing)


def load_litellm() -> Any:
    """Import litellm, quiet and without a network; takes seconds the first time."""
    with _loading:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else the import fetches a price table
        litellm: Any = importlib.import_module("litellm")
        litellm.telemetry = False
        litellm.suppress_debug_info = True
        litellm.disable_hf_tokenizer_download = True  # counting tokens must not fetch a tokenizer
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        # Its response types make pydantic warn about `ReadOnly` and unexpected fields, in the middle of a user's terminal.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"pydantic\b|litellm\b")
        _loaded.set()
        return litellm


def _constrains(litellm: Any, spec: ModelSpec) -> bool:
    try:
        return bool(litellm.supports_response_schema(spec.model))
    except Exception:  # litellm says so, in many ways, when it does not know a model
        return False
