"""The functions that a cell finds in its namespace. Each is a request to the host, which keeps limits, keys and the journal.

Nothing here can be trusted by the host: a cell may replace any of it, and the host checks every request anew.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, overload

from agent.repl import scaffold_tree
from agent.repl.answers import CallError, ChildAnswer, or_raise

Call = Callable[..., Any]

#: All names that a cell finds; a tool of the user's cannot have one of them.
NAMES = frozenset(
    ("answer", "context", "history", "llm_query", "llm_query_batched", "llm_batch", "rlm_query", "rlm_query_batched",
     "COMMIT", "BRANCH", "SWITCH", "MERGE", "ABANDON", "CONTEXT", "REWIND", "explore", "fold", "ask_user", "budget", "FINAL",
     "FINAL_VAR", "SHOW_VARS", "shell", "CallError")
)  # fmt: skip


class History(Sequence[dict[str, Any]]):
    """All earlier steps in full, oldest first: step, reply, cell, observation. Fetched when it is looked at."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __call__(self) -> list[dict[str, Any]]:
        """Return them as a list."""
        return list(or_raise(self._call("history")))

    def __len__(self) -> int:
        return len(self())

    @overload
    def __getitem__(self, where: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, where: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, where: int | slice) -> Any:
        return self()[where]

    def __repr__(self) -> str:
        return f"<history of {len(self)} steps: history[-1], or history() for a list>"


class ShellResult:
    """What a command did: `stdout`, `stderr`, `returncode`."""

    def __init__(self, stdout: str, stderr: str, returncode: int) -> None:
        self.stdout, self.stderr, self.returncode = stdout, stderr, returncode

    def __repr__(self) -> str:
        parts = [f"returncode={self.returncode}", self.stdout.rstrip(), self.stderr.rstrip()]
        return "\n".join(part for part in parts if part)


def shell(command: str, timeout: float | None = None) -> ShellResult:
    """Run a shell command in the workspace; what it started ends with it when it takes longer than `timeout` seconds."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, error = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _end_group(process)
        out, _ = process.communicate()
        return ShellResult(out, f"timed out after {timeout} s", 124)
    except BaseException:  # the cell was interrupted
        _end_group(process)
        raise
    return ShellResult(out, error, process.returncode)


def _end_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def build(
    call: Call, names: Callable[[], dict[str, Any]], show: Callable[[], list[tuple[str, str, int]]]
) -> dict[str, Any]:
    """Make the scaffold. `call(kind, **arguments)` asks the host, `names` gives the namespace, `show` its variables."""

    def llm_query(
        prompt: str,
        model: str | None = None,
        system: str | None = None,
        max_tokens: int | None = None,
        schema: Any = None,
    ) -> Any:
        """Ask a model once; with a JSON schema, or a pydantic model, the checked value is returned."""
        return llm_query_batched([prompt], model, system, max_tokens, schema)[0]

    def llm_query_batched(
        prompts: Sequence[str],
        model: str | None = None,
        system: str | None = None,
        max_tokens: int | None = None,
        schema: Any = None,
    ) -> list[Any]:
        """Ask many at once; answers come in order, a failed one is a falsy CallError."""
        if isinstance(prompts, str):
            raise TypeError("llm_query_batched takes a list of prompts; use llm_query for one")
        prompts = list(prompts)
        wanted, build = _typed(schema)
        answers: list[Any] = [None] * len(prompts)
        good = [i for i, prompt in enumerate(prompts) if isinstance(prompt, str)]
        for i in set(range(len(prompts))) - set(good):
            answers[i] = CallError(f"prompt {i} is a {type(prompts[i]).__name__}, not a str")
        sent = [str(prompts[i]) for i in good]
        if sent:
            got = call("llm", prompts=sent, model=model, system=system, max_tokens=max_tokens, schema=wanted)
            for i, outcome in zip(good, or_raise(got), strict=True):
                answers[i] = build(outcome["value"]) if outcome["ok"] else CallError(outcome["value"])
        return answers

    def rlm_query(
        prompt: str, context: Any = None, model: str | None = None, limits: dict[str, Any] | None = None
    ) -> Any:
        """Let a child with a REPL of its own work on a prompt over a slice of the context.

        `limits` may give it less than all that is left: calls, tokens, usd, seconds.
        """
        return rlm_query_batched([prompt], None if context is None else [context], model, limits)[0]

    def rlm_query_batched(
        prompts: Sequence[str],
        contexts: Sequence[Any] | None = None,
        model: str | None = None,
        limits: dict[str, Any] | None = None,
    ) -> list[Any]:
        """Start many children at once; their answers come in order. `limits` hold for each of them."""
        if isinstance(prompts, str):
            raise TypeError("rlm_query_batched takes a list of prompts; use rlm_query for one")
        if contexts is not None and len(contexts) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts but {len(contexts)} contexts")
        if not prompts:
            return []
        packed = [pack_context(c) for c in contexts] if contexts is not None else [None] * len(prompts)
        got = call("rlm", prompts=[str(p) for p in prompts], contexts=packed, model=model, limits=limits)
        return [_child_answer(outcome) for outcome in or_raise(got)]

    def CONTEXT(
        branch: str | None = None,
        commit: str | None = None,
        log: int | None = None,
        metadata: str | None = None,
        step: int | None = None,
        child: int | None = None,
        find: str | None = None,
        offset: int = 0,
    ) -> str:
        """Look back: roadmap and branches, a branch, a commit, log lines, metadata, a step in full or its n-th child.

        `find` searches all that was said, done and seen.
        """
        asked = {"branch": branch, "commit": commit, "log": log, "metadata": metadata, "step": step}
        return str(or_raise(call("context", **asked, child=child, find=find, offset=offset)))

    def budget() -> dict[str, Any]:
        """Tell what is left of steps, calls, tokens, usd and seconds; None means no limit."""
        return dict(or_raise(call("budget")))

    def FINAL(content: Any) -> None:
        """End the rollout with this answer."""
        names()["answer"] = {"content": content if isinstance(content, str) else str(content), "ready": True}

    def FINAL_VAR(name: str) -> None:
        """End the rollout with the value of a variable."""
        if name not in names():
            raise NameError(f"FINAL_VAR({name!r}): no such variable; SHOW_VARS() lists them")
        FINAL(names()[name])

    def SHOW_VARS() -> None:
        """Print the names and sizes of all variables."""
        rows = show()
        print("\n".join(f"{n}: {k}" + (f", {s} long" if s >= 0 else "") for n, k, s in rows) or "no variables yet")

    answers = {"llm_batch": llm_query_batched, "CallError": CallError, "history": History(call)}
    return {
        f.__name__: f
        for f in (
            llm_query, llm_query_batched, rlm_query, rlm_query_batched, CONTEXT, budget, FINAL, FINAL_VAR, SHOW_VARS, shell,
        )
    } | answers | scaffold_tree.build(call)  # fmt: skip


def tool(call: Call, name: str, description: str) -> Callable[..., Any]:
    """Return the function that stands for one of the user's own, which run on the host."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return or_raise(call("tool", name=name, args=list(args), kwargs=kwargs))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = description
    return run


def pack_context(value: Any) -> dict[str, Any]:
    """Turn a child's context into what the host takes: references into the context, or plain values."""
    from agent.context import to_refs

    if value is None or isinstance(value, (str, int, float, bool)):
        return {"value": value}
    try:
        return {"refs": to_refs(value)}
    except TypeError:
        return {"value": value}


def _typed(schema: Any) -> tuple[dict[str, Any] | None, Callable[[Any], Any]]:
    """Return (the JSON Schema that is sent, what makes the value of a checked reply); pydantic models give both."""
    if schema is None or isinstance(schema, dict):
        return schema, lambda value: value
    if hasattr(schema, "model_json_schema") and hasattr(schema, "model_validate"):
        return schema.model_json_schema(), schema.model_validate
    raise TypeError(f"schema= takes a JSON Schema (a dict) or a pydantic model, not a {type(schema).__name__}")


def _child_answer(outcome: dict[str, Any]) -> Any:
    if not outcome["ok"]:
        return CallError(outcome["value"])
    trajectory = outcome.get("trajectory")
    return ChildAnswer(outcome["value"], trajectory) if trajectory else outcome["value"]
