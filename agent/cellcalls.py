"""What happens on the host when a cell asks for something: one method per kind of call.

The occurrence number makes equal calls of one cell different calls; it is counted anew each time the cell is run, so
that a cell that runs again meets the same keys.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from agent.calls import Asked, CallBroker, hash_args
from agent.errors import AgentError
from agent.lookback import look_back
from agent.milestones import Milestones
from agent.models.base import Message, ModelRequest, ModelSpec
from agent.runtime import Runtime
from state import steps
from state.records import CallKey, RolloutRecord

_Number = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]
StartChildren = Callable[[list["ChildRequest"]], list[dict[str, Any]]]


class ChildRequest(msgspec.Struct, frozen=True):
    """A child rollout that a cell asks for; `context` is {"refs": …} or {"value": …}."""

    key: CallKey
    prompt: str
    context: dict[str, Any] | None
    spec: ModelSpec


class _Llm(msgspec.Struct, frozen=True):
    prompts: list[str]
    model: str | None = None
    system: str | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=1 << 32)] | None = None
    schema: dict[str, Any] | None = None


class _Rlm(msgspec.Struct, frozen=True):
    prompts: list[str]
    contexts: list[dict[str, Any] | None]
    model: str | None = None


class _Commit(msgspec.Struct, frozen=True):
    summary: str
    contribution: str | None = None


class _Context(msgspec.Struct, frozen=True):
    branch: str | None = None
    commit: str | None = None
    log: _Number | None = None
    metadata: str | None = None
    step: _Number | None = None
    offset: _Number = 0


#: The arguments of each kind of call. They come out of the sandbox, so they are checked before anything is journaled.
_ARGUMENTS: dict[str, Any] = {"llm": _Llm, "rlm": _Rlm, "commit": _Commit, "context": _Context}


class CellCalls:
    """Serves the calls of one run of one cell. Called from many threads at once."""

    def __init__(
        self,
        runtime: Runtime,
        broker: CallBroker,
        rollout: RolloutRecord,
        step: int,
        milestones: Milestones | None,
        start_children: StartChildren,
    ) -> None:
        self._rt, self._broker, self._rollout, self._step = runtime, broker, rollout, step
        self._milestones, self._start_children = milestones, start_children
        self._seen: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._commits = threading.Lock()

    def __call__(self, kind: str, args: dict[str, Any]) -> Any:
        """Answer a call; a mistake in its arguments becomes a failed outcome, not an error of the host."""
        method = getattr(self, f"on_{kind}", None)
        if method is None:
            return _failed(f"unknown call {kind!r}")
        try:
            if kind in _ARGUMENTS:
                msgspec.convert(args, _ARGUMENTS[kind])
            return method(args)
        except (TypeError, KeyError, ValueError) as error:
            return _failed(f"{kind}: {type(error).__name__}: {error}")

    def on_llm(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """Settle a batch of sub-calls."""
        spec = self._spec(args.get("model"))
        asked = [self._asked(spec, prompt, args) for prompt in args["prompts"]]
        self._rt.tell("subcalls", count=len(asked))
        outcomes = self._broker.ask(asked)
        return [_outcome(o.ok, o.text, args.get("schema")) for o in outcomes]

    def on_rlm(self, args: dict[str, Any]) -> Any:
        """Run children; at the depth limit each is a plain sub-call over its prompt."""
        if self._rollout.depth + 1 > self._rt.task.limits.depth:
            prompts = [_with_inline(p, c) for p, c in zip(args["prompts"], args["contexts"], strict=True)]
            return self.on_llm({"prompts": prompts, "model": args.get("model")})
        for context in args["contexts"]:
            if problem := self._outside(context):
                return _failed(problem)
        spec = self._spec(args.get("model"))
        wanted = [
            ChildRequest(self._key("rlm", prompt, context, spec.model), prompt, context, spec)
            for prompt, context in zip(args["prompts"], args["contexts"], strict=True)
        ]
        return self._start_children(wanted)

    def on_commit(self, args: dict[str, Any]) -> dict[str, Any]:
        """Record a milestone."""
        if self._milestones is None:
            return _failed("COMMIT: only the root rollout commits; return what you found as your answer")
        summary, contribution = args["summary"], args.get("contribution") or ""
        with self._commits:
            return _ok(self._milestones.commit(self._key("commit", summary, contribution), summary, contribution))

    def on_context(self, args: dict[str, Any]) -> dict[str, Any]:
        """Look back into commits, log and steps."""
        return _ok(look_back(self._rt, self._rollout.id, args))

    def on_budget(self, _args: dict[str, Any]) -> dict[str, Any]:
        """Tell what is left."""
        return _ok(self._rt.budget.left(self._step))

    def on_history(self, _args: dict[str, Any]) -> dict[str, Any]:
        """Return all earlier steps in full."""
        rows = self._rt.journal.read(lambda c: steps.steps_between(c, self._rollout.id, 1, self._step - 1))
        return _ok(
            [
                {"step": r.seq, "reply": r.reply, "cell": r.cell, "observation": r.observation}
                for r in rows
                if r.state == "done"
            ]
        )

    def _outside(self, context: dict[str, Any] | None) -> str:
        """Say which reference leaves the task's material; an empty string when none does."""
        if context is None or "refs" not in context:
            return ""
        from agent.context.manifest import check_refs

        try:
            check_refs(self._rt.manifest, [tuple(ref) for ref in context["refs"]])
        except AgentError as error:
            return error.message
        return ""

    def _asked(self, spec: ModelSpec, prompt: str, args: dict[str, Any]) -> Asked:
        system, tokens, schema = args.get("system"), args.get("max_tokens"), args.get("schema")
        messages = ((Message("system", system),) if system else ()) + (Message("user", prompt),)
        key = self._key("llm", prompt, spec.model, system, tokens, schema)
        return Asked(key, spec, ModelRequest(messages, max_tokens=tokens, schema=schema))

    def _key(self, kind: str, *arguments: Any) -> CallKey:
        digest = hash_args(*arguments)
        with self._lock:
            n = self._seen[kind, digest]
            self._seen[kind, digest] += 1
        return CallKey(self._rollout.id, self._step, kind, digest, n)

    def _spec(self, model: str | None) -> ModelSpec:
        """Return the sub model, or the task's model of that name; others get the sub model's settings."""
        models = self._rt.task.models
        if model is None:
            return models.sub
        for spec in (models.sub, models.root, models.fold):
            if spec.model == model:
                return spec
        return ModelSpec(model)


def _outcome(ok: bool, text: str, schema: dict[str, Any] | None) -> dict[str, Any]:
    if not ok or schema is None:
        return {"ok": ok, "value": text}
    try:
        return _ok(json.loads(text))
    except ValueError:
        return _failed(f"the reply is not the JSON that was asked for: {text[:200]!r}")


def _with_inline(prompt: str, context: dict[str, Any] | None) -> str:
    if context is None:
        return prompt
    if "refs" in context:
        from agent.context import open_refs

        text = "\n".join(str(part) for part in open_refs(context["refs"]))
    else:
        text = str(context["value"])
    return f"{prompt}\n\n{text}"


def _ok(value: Any) -> dict[str, Any]:
    return {"ok": True, "value": value}


def _failed(message: str) -> dict[str, Any]:
    return {"ok": False, "value": message}
