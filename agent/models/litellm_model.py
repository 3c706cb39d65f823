"""Every provider that litellm knows, as a `Model`: one request per `complete`, no retries of its own.

litellm is imported on the first use and never before: it takes seconds. What was spent is worked out before the reply is
read, so that no reply, however odd, goes uncounted.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import threading
import time
import warnings
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from agent.errors import Ambiguous, NotExecuted, ProviderError, UsageError
from agent.models.base import Message, ModelReply, ModelRequest, ModelSpec
from agent.models.classify import classify, missing_key
from agent.models.replies import Usage, read_reply
from agent.tokens import count_tokens

_CONNECT_TIMEOUT = 15.0
_NO_KEY_NEEDED = "local"  # what a server of one's own gets where the OpenAI client insists on a key
_OURS = {
    "model",
    "messages",
    "api_key",
    "api_base",
    "base_url",
    "num_retries",
    "max_retries",
    "timeout",
    "n",
    "tools",
    "functions",
}
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


class LitellmModel:
    """A hosted model, or a server that speaks the OpenAI format at `api_base`."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    def check(self) -> None:
        """Raise `KeyRejected` when the key is missing and `UsageError` when the address or a parameter can't be used."""
        taken = sorted(_OURS & self.spec.params.keys())
        if taken:
            raise UsageError(f"{self.spec.model}: params.{taken[0]} can't be set there", _hint_for(taken[0]))
        if self.spec.api_base is not None:
            parts = urlsplit(self.spec.api_base)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                hint = "write it with scheme and path, as in http://127.0.0.1:8080/v1"
                raise UsageError(f"{self.spec.model}: api_base {self.spec.api_base!r} is not an http(s) address", hint)
        if self.spec.api_key_env:
            if not self._key():
                raise missing_key(self.spec)
        elif not self.spec.api_base and "mock_response" not in self.spec.params:
            self._check_environment()

    def complete(self, request: ModelRequest) -> ModelReply:
        """Ask once and return the reply; raise a `ProviderError` that says whether a repeat is free."""
        litellm = load_litellm()
        arguments = self._arguments(litellm, request)
        try:
            ask = self._stream if arguments.get("stream") else self._whole
            response = ask(litellm, arguments, request)
        except Exception as error:
            raise classify(error, self.spec, [self._key() or ""]) from error
        usage = self._usage(litellm, response, request)
        cost = self._cost(litellm, response, usage)
        return read_reply(response, usage, cost, self.spec.model)

    def close(self) -> None:
        """Do nothing: litellm shares its connections over the whole process."""

    def _arguments(self, litellm: Any, request: ModelRequest) -> dict[str, Any]:
        import httpx

        params = {k: v for k, v in self.spec.params.items() if k != "native_schema"}
        messages = _as_dicts(request.messages)
        arguments: dict[str, Any] = {
            "model": self.spec.model,
            "timeout": httpx.Timeout(request.timeout, connect=min(_CONNECT_TIMEOUT, request.timeout)),
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": True,
        }
        if request.max_tokens is not None and "max_completion_tokens" not in params:
            arguments["max_tokens"] = request.max_tokens
        if request.schema is not None:
            if self._constrains(litellm):
                arguments["response_format"] = {
                    "type": "json_schema",
                    "json_schema": {"name": "reply", "schema": request.schema, "strict": False},
                }
            else:
                messages = with_schema(messages, request.schema)
        if self.spec.api_base:
            arguments["api_base"] = self.spec.api_base
        key = self._key()
        if key is None and self.spec.api_base and self.spec.model.startswith("openai/"):
            key = os.environ.get("OPENAI_API_KEY") if _is_openai(self.spec.api_base) else _NO_KEY_NEEDED
        if key:
            arguments["api_key"] = key
        if params.get("stream"):
            arguments["stream_options"] = {"include_usage": True}
        return {**arguments, **params, "messages": messages}

    def _whole(self, litellm: Any, arguments: dict[str, Any], request: ModelRequest) -> Any:
        return litellm.completion(**arguments)

    def _stream(self, litellm: Any, arguments: dict[str, Any], request: ModelRequest) -> Any:
        """Read a stream to its end and put it together; a stream that ends early is `Ambiguous`."""
        deadline = time.monotonic() + request.timeout
        stream = litellm.completion(**arguments)
        chunks: list[Any] = []
        try:
            for chunk in stream:
                chunks.append(chunk)
                if time.monotonic() > deadline:
                    raise Ambiguous(f"{self.spec.model}: the stream was not done after {request.timeout:g} s")
        except Exception as error:
            raise self._as_lost(error, len(chunks)) from error
        if getattr(stream, "received_finish_reason", "stop") is None:
            raise Ambiguous(
                f"{self.spec.model}: the stream stopped after {len(chunks)} pieces without an end",
                "the request may have been executed; is api_base right?",
            )
        return litellm.stream_chunk_builder(chunks, messages=arguments["messages"])

    def _as_lost(self, error: Exception, pieces: int) -> ProviderError:
        """Classify a failure within a stream: the request was being executed, so nothing about it is free any more."""
        found = classify(error, self.spec, [self._key() or ""])
        if pieces or isinstance(found, NotExecuted) or type(found) is ProviderError:
            return (
                Ambiguous(f"{found.message} (cut after {pieces} pieces)", found.hint)
                if found.retryable or pieces
                else found
            )
        return found

    def _usage(self, litellm: Any, response: Any, request: ModelRequest) -> Usage:
        given = getattr(response, "usage", None)
        read = int(getattr(given, "prompt_tokens", 0) or 0)
        wrote = int(getattr(given, "completion_tokens", 0) or 0)
        if read:
            return Usage(read, wrote, estimated=False)
        messages = _as_dicts(request.messages)
        text = read_reply(response, Usage(0, 0, True), None, self.spec.model)
        try:
            read = litellm.token_counter(model=self.spec.model, messages=messages)
            wrote = wrote or litellm.token_counter(model=self.spec.model, text=text.text + text.reasoning)
        except Exception:  # an estimate must not lose a reply that is paid
            read = sum(count_tokens(m.content) for m in request.messages)
            wrote = wrote or count_tokens(text.text + text.reasoning)
        return Usage(read, wrote, estimated=True)

    def _cost(self, litellm: Any, response: Any, usage: Usage) -> float | None:
        price = self.spec.price
        if price is not None:
            return (usage.tokens_in * price.get("input", 0.0) + usage.tokens_out * price.get("output", 0.0)) / 1e6
        try:
            if usage.estimated:
                return float(
                    sum(
                        litellm.cost_per_token(
                            model=self.spec.model, prompt_tokens=usage.tokens_in, completion_tokens=usage.tokens_out
                        )
                    )
                )
            return float(litellm.completion_cost(completion_response=response, model=self.spec.model))
        except Exception:  # litellm says so, in many ways, when it does not know a price
            return None

    def _constrains(self, litellm: Any) -> bool:
        if "native_schema" in self.spec.params:
            return bool(self.spec.params["native_schema"])
        try:
            return bool(litellm.supports_response_schema(self.spec.model))
        except Exception:
            return False

    def _key(self) -> str | None:
        return (os.environ.get(self.spec.api_key_env, "").strip() or None) if self.spec.api_key_env else None

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
        return litellm


def with_schema(messages: Iterable[dict[str, str]], schema: dict[str, Any]) -> list[dict[str, str]]:
    """Return the messages with the wish for JSON of this schema at the end of the last one."""
    *before, last = messages
    wish = "Reply with one JSON value that fits this JSON Schema, and with nothing else:\n"
    wish += json.dumps(schema, ensure_ascii=False)
    return [*before, {**last, "content": f"{last['content']}\n\n{wish}"}]


def _as_dicts(messages: Iterable[Message]) -> list[dict[str, str]]:
    return [{"role": m.role, "content": m.content} for m in messages]


def _is_openai(api_base: str) -> bool:
    """Say whether an address is OpenAI's own; the user's OpenAI key goes nowhere else unasked."""
    host = urlsplit(api_base).hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")


def _hint_for(name: str) -> str:
    if name == "api_key":
        return "put the key into the environment and name the variable with `api_key_env`"
    if name in ("api_base", "base_url"):
        return "write `api_base` beside `model`, not below `params`"
    return "leave it out: it is set by rlm-agent"
