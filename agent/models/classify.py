"""Our own table from what litellm raises to what may be done about it.

litellm's classes can't be trusted alone: a refused connection and a missing key both arrive as a 500. So each row looks at
the whole chain of causes. Only what certainly was not executed becomes `NotExecuted`; what nobody knows here stays a plain
`ProviderError`, which is never repeated. Exceptions are matched by class name: this imports neither litellm nor httpx.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

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
from agent.models.retry_after import pause_from, pause_from_text

_OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|exceed(s|ed)? (the |your )?(available |model'?s? |maximum )*context|"
    r"exceed_context_size|context window|prompt is too long|input is too long|request_too_large",
    re.IGNORECASE,
)
_NO_QUOTA = re.compile(
    r"insufficient[_ ](quota|credits?|balance|funds)|credit balance is too low|exceeded your current quota|billing_hard_limit"
    r"|billing hard limit|payment required",
    re.IGNORECASE,
)
_NO_KEY = re.compile(
    r"missing credentials|missing \w*( \w+)? ?api[ _-]?key|api[ _-]?key (is )?(not (set|found|provided|valid)|missing)"
    r"|no api[ _-]?key|api_key client option must be set|invalid[_ ]api[_ ]key|incorrect api key|api_key_invalid",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model_not_found|model.{0,80}(does not exist|not found|not exist)|no such model", re.IGNORECASE | re.DOTALL
)
_NO_JSON = re.compile(r"empty or invalid response from llm endpoint|invalid response object", re.IGNORECASE)

#: What a client raises before the request is on its way.
_NOT_SENT = {
    *("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "ConnectionRefusedError", "gaierror"),
    *("ClientConnectorError", "ClientConnectorDNSError", "ClientConnectorSSLError", "ClientProxyConnectionError"),
    *("ClientHttpProxyError", "ConnectionTimeoutError"),
}
#: What it raises when the request may have arrived.
_LOST = {
    *("ReadError", "WriteError", "CloseError", "ReadTimeout", "WriteTimeout", "RemoteProtocolError", "IncompleteRead"),
    *(
        "ConnectionResetError",
        "BrokenPipeError",
        "ConnectionAbortedError",
        "TimeoutError",
        "APITimeoutError",
        "Timeout",
    ),
    *(
        "MidStreamFallbackError",
        "APIResponseValidationError",
        "JSONDecodeError",
        "APIConnectionError",
    ),
    *(
        "ServerDisconnectedError",
        "UploadAbortedError",
        "ClientConnectionError",
        "ClientPayloadError",
        "ClientOSError",
        "ClientConnectionResetError",
        "ServerTimeoutError",
        "SocketTimeoutError",
        "BadHttpMessage",
        "ClientResponseError",
        "ReadTimeoutError",
        "EndpointConnectionError",
    ),
}
_BAD_URL = {
    *("UnsupportedProtocol", "InvalidURL", "LocalProtocolError"),
    *("InvalidUrlClientError", "NonHttpUrlClientError"),
}
_OUR_FAULT = (TypeError, ValueError, LookupError, AttributeError, ImportError, NotImplementedError)
_BEFORE_WORK = {409, 425, 429}
_NO_TRUST = {"SSLCertVerificationError", "CertificateError", "ClientConnectorCertificateError"}


def classify(
    error: BaseException, spec: ModelSpec, secrets: Sequence[str] = (), now: float | None = None
) -> ProviderError:
    """Return the `ProviderError` that an exception of a model call stands for; `now` is the time in seconds since 1970."""
    if isinstance(error, ProviderError):
        return error
    chain = list(_chain(error))
    names = {type(e).__name__ for e in chain}
    status = _status(chain)
    text = " ".join(str(e) for e in chain)
    said = f"{spec.model}: {clean(str(error), secrets)}"
    pause = _pause(chain, text, status, time.time() if now is None else now)
    made = _by_meaning(said, text, names, status, pause, spec)
    made = made or _by_transport(said, names, chain, spec) or _by_status(said, status, names, chain, spec)
    if made is None:
        root = type(chain[-1]).__name__
        made = ProviderError(
            f"{said} ({root})",
            "this failure is not known here, so it is not tried again; see the traceback with --debug",
        )
    made.retry_after = pause if made.retryable else None
    return made


def never_began(error: BaseException) -> bool:
    """Say whether a failure shows that there was no answer of 2xx: a status, or no connection at all."""
    names = {type(e).__name__ for e in _chain(error)}
    return "HTTPStatusError" in names or bool(names & _NOT_SENT)


def clean(text: str, secrets: Sequence[str] = ()) -> str:
    """Return a provider's message in one line of at most 300 characters, without litellm's prefixes and any key."""
    for secret in secrets:
        if len(secret) >= 6:
            text = text.replace(secret, "…")
    text = re.sub(r"\b(sk|pk|key|gsk|xai)-[A-Za-z0-9_*-]{8,}", "…", text)
    text = re.split(r"\nTraceback \(most recent", text)[0]
    text = re.sub(r"^(litellm\.)?(\w+(Error|Exception|Timeout)|Timeout)(: | - )", "", " ".join(text.split()))
    text = re.sub(r"^(litellm\.)?((\w+Error|\w+Exception|Timeout)( Error)?(: | - ))+", "", text)
    return text if len(text) <= 300 else text[:299] + "…"


def missing_key(spec: ModelSpec, variables: Sequence[str] = ()) -> KeyRejected:
    """Return the error for a key that is not there; it names the variable to set."""
    wanted = [spec.api_key_env] if spec.api_key_env else list(variables) or [_usual_variable(spec)]
    return KeyRejected(f"{spec.model}: no API key", f"set {' or '.join(wanted)} in the environment and resume")


def _by_meaning(
    said: str, text: str, names: set[str], status: int | None, pause: float | None, spec: ModelSpec
) -> ProviderError | None:
    """Read the rows where the provider says in words what is wrong; these hold whatever the status is."""
    refused = status is None or status < 500
    if "ContextWindowExceededError" in names or status == 413 or (refused and status != 429 and _OVERFLOW.search(text)):
        return ContextOverflow(
            said, "the prompt is longer than the model's window; lower limits.prompt_tokens or the slice"
        )
    # Gemini says "quota" for a limit per minute as well, but then with a delay after which it is worth to try again.
    if "insufficient_quota" in text or status == 402 or "PaymentRequiredError" in names:
        return _no_quota(said)
    if refused and pause is None and _NO_QUOTA.search(text):
        return _no_quota(said)
    if _NO_KEY.search(text) and (status in (None, 400, 401, 403, 500)) and "HTTPStatusError" not in names:
        return missing_key(spec, _named_variables(text))  # litellm found none and sent nothing
    if status in (401, 403) or "AuthenticationError" in names or (status == 400 and _NO_KEY.search(text)):
        wanted = spec.api_key_env or _usual_variable(spec)
        return KeyRejected(said, f"the key was refused; check {wanted} in the environment and resume")
    return None


def _by_transport(said: str, names: set[str], chain: Sequence[BaseException], spec: ModelSpec) -> ProviderError | None:
    """Read the rows where there was no whole answer: not sent, or sent and lost."""
    if "HTTPStatusError" in names:
        return None
    where = f" at {spec.api_base}" if spec.api_base else ""
    if names & _NO_TRUST:
        return ProviderError(said, "the server's certificate is not trusted here; name your CA in SSL_CERT_FILE")
    if names & _BAD_URL:
        return RequestRejected(said, f"api_base {spec.api_base!r} is not an http(s) address")
    if _NO_JSON.search(said) or "JSONDecodeError" in names:
        return Ambiguous(
            f"{said} (no JSON came back{where})", "is api_base right, and is no login page or proxy in between?"
        )
    if names & _NOT_SENT:
        cause = next(e for e in reversed(chain) if type(e).__name__ in _NOT_SENT)
        return NotExecuted(
            f"{spec.model}: not reachable{where}: {clean(str(cause))}", "is the address right and the server up?"
        )
    lost = names & _LOST
    if lost and not isinstance(chain[-1], _OUR_FAULT):
        return Ambiguous(
            f"{said} ({type(chain[-1]).__name__})", "the request may have been executed, and its answer was lost"
        )
    return None


def _by_status(
    said: str, status: int | None, names: set[str], chain: Sequence[BaseException], spec: ModelSpec
) -> ProviderError | None:
    """Read the rows where a status alone decides; a 500 that litellm made up itself is not believed."""
    if status is None:
        return None
    # A mistake on this side comes as a 500 as well, and is no outage to be waited out.
    ours = status == 500 and isinstance(chain[-1], (*_OUR_FAULT, RuntimeError, Warning))
    answered = "HTTPStatusError" in names or (len(names) > 2 and not ours)
    if status in _BEFORE_WORK:
        return NotExecuted(said, "the provider refuses for now; it is tried again after a pause")
    if status == 408 or 500 <= status < 600:
        kind = Ambiguous if status == 408 else ServerFailed
        return kind(said, "the provider failed on this request, which may have been paid") if answered else None
    if 300 <= status < 500:
        if status == 404 or _NO_MODEL.search(said):
            hint = f"model not found: check the name {spec.model!r}" + (
                f" and api_base {spec.api_base}" if spec.api_base else ""
            )
        elif "LLM Provider NOT provided" in said:
            hint = f"write the provider before the name, as in openai/{spec.model}"
        else:
            hint = "the provider refuses this request; the same request would be refused again"
        return RequestRejected(said, hint)
    return None


def _no_quota(said: str) -> QuotaExhausted:
    return QuotaExhausted(said, "the account has no quota or credit left; top it up and resume")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Give an exception and its causes, litellm's `original_exception` among them, at most twelve."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen and len(seen) < 12:
        seen.append(current)
        yield current
        original = getattr(current, "original_exception", None)
        if isinstance(original, BaseException) and original not in seen and current.__cause__ is None:
            current = original
        else:
            current = current.__cause__ or current.__context__


def _status(chain: Sequence[BaseException]) -> int | None:
    for error in chain:
        status = getattr(error, "status_code", None)
        if isinstance(status, (int, str)) and str(status).isdigit():
            return int(status)
    return None


def _pause(chain: Sequence[BaseException], text: str, status: int | None, now: float) -> float | None:
    for error in chain:
        for source in (
            getattr(getattr(error, "response", None), "headers", None),
            getattr(error, "litellm_response_headers", None),
        ):
            if source:
                pause = pause_from(dict(source), now, limited=status == 429)
                if pause is not None:
                    return pause
    return pause_from_text(text) if status == 429 else None


def _named_variables(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_API_KEY\b", text)))[:2]


def _usual_variable(spec: ModelSpec) -> str:
    provider = spec.model.split("/")[0] if "/" in spec.model else "provider"
    return f"{re.sub(r'[^A-Za-z0-9]', '_', provider).upper()}_API_KEY"
