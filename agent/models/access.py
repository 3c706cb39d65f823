"""How a hosted model is reached: its address and its key, checked before anything is asked.

A user's key goes only where it was meant to: the one of OpenAI to OpenAI, any other where the task names its variable.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from agent.errors import UsageError
from agent.models.base import ModelSpec
from agent.models.classify import missing_key

_NO_KEY_NEEDED = "local"  # what a server of one's own gets where the OpenAI client insists on a key
_OURS = {
    *("model", "messages", "api_key", "api_base", "base_url", "num_retries", "max_retries", "timeout", "n"),
    *("tools", "tool_choice", "functions", "shared_session"),
}


def check_access(spec: ModelSpec) -> None:
    """Raise `UsageError` for an address or a parameter that can't be used and `KeyRejected` for a named key that is missing."""
    taken = sorted(_OURS & spec.params.keys())
    if taken:
        raise UsageError(f"{spec.model}: params.{taken[0]} can't be set there", _hint_for(taken[0]))
    if spec.api_base is not None:
        parts = urlsplit(spec.api_base)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            hint = "write it with scheme and path, as in http://127.0.0.1:8080/v1"
            raise UsageError(f"{spec.model}: api_base {spec.api_base!r} is not an http(s) address", hint)
    if spec.api_key_env and not named_key(spec):
        raise missing_key(spec)


def named_key(spec: ModelSpec) -> str | None:
    """Return the key in the variable that the task names, None when there is none."""
    return (os.environ.get(spec.api_key_env, "").strip() or None) if spec.api_key_env else None


def key_to_send(spec: ModelSpec) -> str | None:
    """Return the key to send: the named one, else a placeholder for a server of one's own; None lets litellm find one."""
    key = named_key(spec)
    if key is None and spec.api_base and spec.model.startswith("openai/"):
        return os.environ.get("OPENAI_API_KEY") if is_openai(spec.api_base) else _NO_KEY_NEEDED
    return key


def is_openai(api_base: str) -> bool:
    """Say whether an address is OpenAI's own; the user's OpenAI key goes nowhere else unasked."""
    host = urlsplit(api_base).hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")


def _hint_for(name: str) -> str:
    if name == "api_key":
        return "put the key into the environment and name the variable with `api_key_env`"
    if name in ("api_base", "base_url"):
        return "write `api_base` beside `model`, not below `params`"
    return "leave it out: it is set by rlm-agent"
