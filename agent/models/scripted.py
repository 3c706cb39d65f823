"""`offline/scripted`: replays a YAML script, errors and delays included; the test double, so that nothing needs a mock.

Which reply comes next is read from the request, never remembered: entries with `match` answer what they match, all others answer
step N with the N-th reply (the last `step: N` line of the last message). So a restarted process goes on where the script is.
Errors stand before the reply they delay, and count per process, or over processes when `params.ledger` names a file.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.errors import (
    Ambiguous,
    ContextOverflow,
    KeyRejected,
    NotExecuted,
    ProviderError,
    QuotaExhausted,
    RequestRejected,
    UsageError,
)
from agent.models.base import Message, ModelReply, ModelRequest, ModelSpec
from agent.models.costmap import cost_at
from agent.models.script import Entry, Failure, read_script

_STEP = re.compile(r"^step: (\d+)\s*$", re.MULTILINE)
_CLASSES: dict[str, type[ProviderError]] = {
    "not_executed": NotExecuted,
    "ambiguous": Ambiguous,
    "rejected": RequestRejected,
    "context_overflow": ContextOverflow,
    "key": KeyRejected,
    "quota": QuotaExhausted,
    "unknown": ProviderError,
}


class Scripted:
    """A `Model` that replays a script. `params`: script (a YAML file), ledger (a file: one JSON line per request),
    prompts (a file: all messages of each request, one JSON line per request).
    """

    def __init__(self, spec: ModelSpec, task_dir: Path) -> None:
        self.spec = spec
        script = spec.params.get("script")
        if not isinstance(script, str) or not script:
            raise UsageError(
                "offline/scripted needs params.script",
                "write {model: offline/scripted, params: {script: replies.yaml}}",
            )
        self._path = task_dir / script
        self._entries = read_script(self._path)
        self._ledger = task_dir / spec.params["ledger"] if spec.params.get("ledger") else None
        self._prompts = task_dir / spec.params["prompts"] if spec.params.get("prompts") else None
        self._lock = threading.Lock()
        self._fired = _fired_before(self._ledger)

    def check(self) -> None:
        """Do nothing: the script was read when the model was opened."""

    def close(self) -> None:
        """Do nothing: the script holds no connection."""

    async def acomplete(self, request: ModelRequest) -> ModelReply:
        """Return the reply that the script has for this request, or raise the error that it has."""
        last = request.messages[-1].content if request.messages else ""
        steps = (
            _STEP.findall(last) if "step: " in last else []
        )  # the plain search skips a large prompt ten times faster
        step = int(steps[-1]) if steps else None
        with self._lock:
            entry = self._choose(last, step)
            self._record(request, entry, step)
        if entry is None:
            raise self._exhausted(step)
        if entry.delay:
            await asyncio.sleep(entry.delay)
        if entry.error is not None:
            raise _raised(entry.error)
        return self._reply(entry, request)

    def _choose(self, last: str, step: int | None) -> Entry | None:
        for entry in self._entries:
            if entry.match is not None and re.search(entry.match, last) and self._due(entry, None):
                return entry
        return self._by_step(step) if step is not None else None

    def _by_step(self, step: int) -> Entry | None:
        """Return the N-th reply; the errors that stand right before it come first, each as often as it says."""
        end = 0
        for entry in self._entries:
            if entry.match is not None:
                continue
            if entry.error is not None:
                if step == end + 1 and self._due(entry, step):
                    return entry
                continue
            if entry.times is None or step <= end + entry.times:
                return entry
            end += entry.times
        return None

    def _due(self, entry: Entry, step: int | None) -> bool:
        return entry.error is None or entry.times is None or self._fired.get((entry.number, step), 0) < entry.times

    def _record(self, request: ModelRequest, entry: Entry | None, step: int | None) -> None:
        failed = entry is not None and entry.error is not None
        if entry is not None and failed:
            key = (entry.number, step if entry.match is None else None)
            self._fired[key] = self._fired.get(key, 0) + 1
        if self._prompts is not None:
            _append(self._prompts, [[message.role, message.content] for message in request.messages])
        if self._ledger is None:
            return
        line = {
            "hash": _hash(request.messages),
            "step": step,
            "entry": entry.number if entry else None,
            "matched": bool(entry and entry.match),
            "error": entry.error.kind if entry and entry.error else None,
        }
        _append(self._ledger, line)

    def _exhausted(self, step: int | None) -> RequestRejected:
        if step is None:
            return RequestRejected(
                f"{self._path}: no entry matches this sub-call",
                "add one with `match:`; entries without it answer steps",
            )
        replies = sum(e.times or 0 for e in self._entries if e.match is None and e.error is None)
        hint = "end the script with an answer, or repeat its last reply with `forever: true`"
        return RequestRejected(
            f"{self._path}: the script is exhausted: it has {replies} replies, this is step {step}", hint
        )

    def _reply(self, entry: Entry, request: ModelRequest) -> ModelReply:
        text = entry.reply or ""
        read, wrote = sum(len(m.content) for m in request.messages) // 4, (len(text) + len(entry.reasoning)) // 4
        return ModelReply(
            text=text,
            reasoning=entry.reasoning,
            tokens_in=read,
            tokens_out=wrote,
            cost_usd=cost_at(self.spec.price or {}, read, wrote),
            finish=entry.finish,
            model=self.spec.model,
            tool_calls=entry.tool_calls if request.tools else (),
        )


def _append(path: Path, line: Any) -> None:
    """Write one line, without fsync: it outlives this process however that ends, and the event loop does not wait for a disk."""
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def _hash(messages: Sequence[Message]) -> str:
    made = hashlib.sha256()
    for message in messages:
        for text in (message.role, message.content, *(call.arguments for call in message.tool_calls)):
            made.update(text.encode(errors="surrogatepass"))
            made.update(b"\0")
    return made.hexdigest()


def _raised(failure: Failure) -> ProviderError:
    error = _CLASSES[failure.kind](failure.message, "this error stands in the script")
    error.retry_after = failure.retry_after
    return error


def _fired_before(ledger: Path | None) -> dict[tuple[int, int | None], int]:
    """Count the errors that earlier processes raised; a torn last line is passed over."""
    fired: dict[tuple[int, int | None], int] = {}
    if ledger is None or not ledger.exists():
        return fired
    for text in ledger.read_text(encoding="utf-8").splitlines():
        try:
            line: dict[str, Any] = json.loads(text)
        except ValueError:
            continue
        if line.get("error"):
            key = (line["entry"], None if line["matched"] else line["step"])
            fired[key] = fired.get(key, 0) + 1
    return fired
