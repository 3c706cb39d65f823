"""What happens on the host when a cell asks for something: one method per kind of call.

The occurrence number makes equal calls of one cell different calls; it is counted anew each time the cell is run, so
that a cell that runs again meets the same keys.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Annotated, Any

import msgspec

from agent import subcalls
from agent.asked import Asked, hash_args, hash_request
from agent.budget import Grant
from agent.calls import gather_all
from agent.children import ChildRequest, run_children
from agent.errors import AgentError
from agent.lookback import look_back
from agent.milestones import Milestones
from agent.models.base import Message, ModelRequest, ModelSpec
from agent.runtime import in_thread
from agent.scope import Scope
from agent.toolcalls import call_tool, told_before
from agent.treecalls import ARGUMENTS as tree_arguments
from agent.treecalls import TreeCalls
from state import steps
from state.records import CallKey

_Number = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]


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
    limits: Grant | None = None


class _Tool(msgspec.Struct, frozen=True):
    name: str
    args: list[Any]
    kwargs: dict[str, Any]


class _Context(msgspec.Struct, frozen=True):
    branch: str | None = None
    commit: str | None = None
    log: _Number | None = None
    metadata: str | None = None
    step: _Number | None = None
    child: _Number | None = None
    find: str | None = None
    offset: _Number = 0


class _Nothing(msgspec.Struct, frozen=True):
    pass


#: The arguments of each kind of call. They come out of the sandbox, so they are checked before anything is journaled.
_ARGUMENTS: dict[str, Any] = {
    "llm": _Llm,
    "rlm": _Rlm,
    "tool": _Tool,
    "context": _Context,
    "budget": _Nothing,
    "history": _Nothing,
}


class CellCalls:
    """Serves the calls of one run of one cell."""

    def __init__(self, scope: Scope, step: int, milestones: Milestones | None) -> None:
        self._scope, self._rt, self._step = scope, scope.runtime, step
        self._seen: Counter[tuple[str, str]] = Counter()
        self._counting = threading.Lock()
        self._started = 0
        self._ended: list[tuple[int, str]] = []
        #: what this cell's children may spend; cancelling it cancels them
        self._children = scope.budget.child(Grant())
        self.tree = TreeCalls(scope, step, milestones, self._key, self._children)

    def serve(self, kind: str, args: dict[str, Any]) -> Future[Any]:
        """Answer a call. A mistake in its arguments becomes a failed outcome, not an error of the host.

        Called on one thread, in the order in which the cell asked: so keys are given in that order too.
        """
        shape = _ARGUMENTS.get(kind) or tree_arguments.get(kind)
        if shape is None:
            return _now(_failed(f"unknown call {kind!r}"))
        try:
            checked = msgspec.convert(args, shape)
        except (TypeError, ValueError) as error:
            return _now(_failed(f"{kind}: {error}"))
        if kind in tree_arguments:
            return self.tree.serve(kind, checked)
        future: Future[Any] = getattr(self, f"_{kind}")(checked)
        return future

    @property
    def notes(self) -> list[str]:
        """Lines about the children that this cell started, for its observation, in the order in which they began."""
        return [line for _, line in sorted(self._ended)]

    def cancel(self, at_once: bool = False) -> None:
        """Stop the children that this cell started: their cell is going to run again, or never. `at_once`: its calls too."""
        self._children.cancel()
        if at_once:
            self._scope.broker.drop(self._scope.budget)

    def close(self) -> None:
        """Let go of what was kept for the children."""
        self._children.end()

    def _llm(self, args: _Llm) -> Future[Any]:
        """Settle a batch of sub-calls."""
        spec, tools = self._spec(args.model), tuple(tool.spec() for tool in self._rt.tools.of_subcalls())
        system = (Message("system", args.system),) if args.system else ()
        asked = []
        for prompt in args.prompts:
            request = ModelRequest(
                (*system, Message("user", prompt)),
                max_tokens=args.max_tokens,
                schema=args.schema,
                tools=tools,
            )
            asked.append(Asked(self._key("llm", hash_request(spec, request)), spec, request))
        return self._scope.broker.submit(self._answers(asked))

    async def _answers(self, asked: Sequence[Asked]) -> list[dict[str, Any]]:
        """Settle all sub-calls of a batch, and tell how it goes."""
        done, failed, total = 0, 0, len(asked)

        async def one(item: Asked) -> dict[str, Any]:
            nonlocal done, failed
            outcome = await subcalls.answer(self._scope, item, self._run_tool)
            done, failed = done + 1, failed + (not outcome["ok"])
            self._rt.tell("batch", done=done, failed=failed, total=total, depth=self._scope.rollout.depth)
            return outcome

        return await gather_all(map(one, asked))

    def _rlm(self, args: _Rlm) -> Future[Any]:
        """Run children; at the depth limit each is a plain sub-call over its prompt."""
        if len(args.contexts) != len(args.prompts):
            return _now(_failed(f"rlm: {len(args.prompts)} prompts but {len(args.contexts)} contexts"))
        for context in args.contexts:
            if problem := self._outside(context):
                return _now(_failed(problem))
        if self._scope.rollout.depth + 1 > self._rt.task.limits.depth:
            try:
                prompts = [_with_inline(p, c) for p, c in zip(args.prompts, args.contexts, strict=True)]
            except (OSError, ValueError) as error:
                return _now(_failed(f"rlm: {error}"))
            return self._llm(_Llm(prompts, args.model))
        spec = self._spec(args.model)
        wanted = []
        for prompt, context in zip(args.prompts, args.contexts, strict=True):
            self._started += 1
            key = self._key("rlm", hash_args(prompt, context, spec.model))
            wanted.append(ChildRequest(key, prompt, context, spec, self._started, args.limits))
        return in_thread(lambda: self._run_children(wanted), "children")

    def _run_children(self, wanted: list[ChildRequest]) -> list[dict[str, Any]]:
        ended = run_children(self._scope, self._children, wanted)
        self._ended += [(one.number, child.line) for one, child in zip(wanted, ended, strict=True)]
        return [{"ok": child.ok, "value": child.text, "trajectory": child.trajectory} for child in ended]

    def _tool(self, args: _Tool) -> Future[Any]:
        """Run one of the user's own functions."""
        tools = {tool.name: tool for tool in self._rt.tools.of_rollout(self._scope.rollout.depth)}
        if args.name not in tools:
            return _now(_failed(f"there is no tool {args.name!r}"))
        key = self._key("tool", hash_args(args.name, args.args, args.kwargs))
        tool = tools[args.name]
        return in_thread(lambda: msgspec.structs.asdict(call_tool(self._rt, key, tool, args.args, args.kwargs)), "tool")

    async def _run_tool(self, name: str, kwargs: dict[str, Any], origin: list[Any]) -> dict[str, Any]:
        """Run a tool that a sub-call asked for; `origin` says which one, so that answers never change places."""
        tools = {tool.name: tool for tool in self._rt.tools.of_subcalls()}
        if name not in tools:
            return _failed(f"there is no tool {name!r}; there are {', '.join(tools)}")
        key = self._key("tool", hash_args(name, kwargs, origin))
        work: Future[Any] = in_thread(lambda: call_tool(self._rt, key, tools[name], [], kwargs), "tool")
        return msgspec.structs.asdict(await asyncio.wrap_future(work))

    def _context(self, args: _Context) -> Future[Any]:
        """Look back into commits, log, steps and children."""

        def look() -> dict[str, Any]:
            try:
                return _ok(look_back(self._scope, msgspec.structs.asdict(args)))
            except (ValueError, KeyError) as error:
                return _failed(f"CONTEXT: {error}")

        return in_thread(look, "context")

    def _budget(self, _args: _Nothing) -> Future[Any]:
        """Tell what is left, and the same again when the cell runs again: its prompts may name it."""
        key = self._key("budget", "")
        left = {"steps": self._rt.task.limits.steps - self._step, **self._scope.budget.left()}
        return in_thread(lambda: _ok(told_before(self._rt, key, left)), "budget")

    def _history(self, _args: _Nothing) -> Future[Any]:
        """Return all earlier steps in full."""
        rollout, last = self._scope.rollout.id, self._step - 1
        rows = self._rt.journal.read(lambda c: steps.steps_between(c, rollout, 1, last))
        fields = ("reply", "cell", "observation")
        return _now(_ok([{"step": r.seq, **{f: getattr(r, f) for f in fields}} for r in rows if r.state == "done"]))

    def _outside(self, context: dict[str, Any] | None) -> str:
        """Say which reference leaves the task's material; an empty string when none does."""
        if context is None or "refs" not in context:
            return ""
        from agent.context.manifest import check_refs

        try:
            check_refs(self._rt.manifest, [tuple(ref) for ref in context["refs"]])
        except AgentError as error:
            return error.message
        except (TypeError, ValueError) as error:
            return f"rlm: these are no references: {error}"
        return ""

    def _key(self, kind: str, digest: str) -> CallKey:
        """Return the key of the next call like this."""
        with self._counting:
            n = self._seen[kind, digest]
            self._seen[kind, digest] += 1
        return CallKey(self._scope.rollout.id, self._step, kind, digest, n)

    def _spec(self, model: str | None) -> ModelSpec:
        """Return the sub model, or the task's model of that name; others get the sub model's settings."""
        models = self._rt.task.models
        if model is None:
            return models.sub
        for spec in (models.sub, models.root, models.fold):
            if spec.model == model:
                return spec
        return ModelSpec(model)


def _with_inline(prompt: str, context: dict[str, Any] | None) -> str:
    if context is None:
        return prompt
    if "refs" in context:
        from agent.context import open_refs

        text = "\n".join(str(part) for part in open_refs(context["refs"]))
    else:
        text = str(context["value"])
    return f"{prompt}\n\n{text}"


def _now(value: Any) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(value)
    return done


def _ok(value: Any) -> dict[str, Any]:
    return {"ok": True, "value": value}


def _failed(message: str) -> dict[str, Any]:
    return {"ok": False, "value": message}
