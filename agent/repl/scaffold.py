"""The functions that a cell finds in its namespace. Each is a request to the host, which keeps limits, keys and the journal.

Nothing here can be trusted by the host: a cell may replace any of it, and the host checks every request anew.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Any

Call = Callable[..., Any]


class CallError(str):
    """A call that failed: falsy, prints as `Error: …`, and never passes for an answer."""

    def __new__(cls, message: str) -> CallError:
        return super().__new__(cls, f"Error: {message}")

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> Any:
        return CallError, (str(self)[len("Error: ") :],)


class ShellResult:
    """What a command did: `stdout`, `stderr`, `returncode`."""

    def __init__(self, stdout: str, stderr: str, returncode: int) -> None:
        self.stdout, self.stderr, self.returncode = stdout, stderr, returncode

    def __repr__(self) -> str:
        parts = [f"returncode={self.returncode}", self.stdout.rstrip(), self.stderr.rstrip()]
        return "\n".join(part for part in parts if part)


def shell(command: str, timeout: float | None = None) -> ShellResult:
    """Run a shell command in the workspace."""
    try:
        done = subprocess.run(
            command,
            shell=True,
            capture_output=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            errors="replace",
        )
    except subprocess.TimeoutExpired as error:
        out = error.stdout or b""
        text = out.decode("utf-8", "replace") if isinstance(out, bytes) else out
        return ShellResult(text, f"timed out after {timeout} s", 124)
    return ShellResult(done.stdout, done.stderr, done.returncode)


def build(
    call: Call, names: Callable[[], dict[str, Any]], show: Callable[[], list[tuple[str, str, int]]]
) -> dict[str, Any]:
    """Make the scaffold. `call(kind, **arguments)` asks the host, `names` gives the namespace, `show` its variables."""

    def llm_query(
        prompt: str,
        model: str | None = None,
        system: str | None = None,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
    ) -> Any:
        """Ask a model once; with a JSON schema the parsed value is returned."""
        return llm_query_batched([prompt], model, system, max_tokens, schema)[0]

    def llm_query_batched(
        prompts: Sequence[str],
        model: str | None = None,
        system: str | None = None,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
    ) -> list[Any]:
        """Ask many at once; answers come in order, a failed one is a falsy CallError."""
        if isinstance(prompts, str):
            raise TypeError("llm_query_batched takes a list of prompts; use llm_query for one")
        answers: list[Any] = [None] * len(prompts)
        good = [i for i, prompt in enumerate(prompts) if isinstance(prompt, str)]
        for i in set(range(len(prompts))) - set(good):
            answers[i] = CallError(f"prompt {i} is a {type(prompts[i]).__name__}, not a str")
        sent = [str(prompts[i]) for i in good]
        if sent:
            got = call("llm", prompts=sent, model=model, system=system, max_tokens=max_tokens, schema=schema)
            for i, outcome in zip(good, _or_raise(got), strict=True):
                answers[i] = outcome["value"] if outcome["ok"] else CallError(outcome["value"])
        return answers

    def rlm_query(prompt: str, context: Any = None, model: str | None = None) -> Any:
        """Let a child with a REPL of its own work on a prompt over a slice of the context."""
        return rlm_query_batched([prompt], None if context is None else [context], model)[0]

    def rlm_query_batched(
        prompts: Sequence[str], contexts: Sequence[Any] | None = None, model: str | None = None
    ) -> list[Any]:
        """Start many children at once; their answers come in order."""
        if contexts is not None and len(contexts) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts but {len(contexts)} contexts")
        packed = [pack_context(c) for c in contexts] if contexts is not None else [None] * len(prompts)
        got = call("rlm", prompts=[str(p) for p in prompts], contexts=packed, model=model)
        return [o["value"] if o["ok"] else CallError(o["value"]) for o in _or_raise(got)]

    def COMMIT(summary: str, contribution: str | None = None) -> str:
        """Record a milestone: one git commit of the work and of what is known."""
        more = None if contribution is None else str(contribution)
        return str(_or_raise(call("commit", summary=str(summary), contribution=more)))

    def CONTEXT(
        branch: str | None = None,
        commit: str | None = None,
        log: int | None = None,
        metadata: str | None = None,
        step: int | None = None,
        offset: int = 0,
    ) -> str:
        """Look back: roadmap and branches, a branch, a commit, log lines, metadata, or a step in full."""
        return str(
            _or_raise(
                call(
                    "context",
                    branch=branch,
                    commit=commit,
                    log=log,
                    metadata=metadata,
                    step=step,
                    offset=offset,
                )
            )
        )

    def budget() -> dict[str, Any]:
        """Tell what is left of steps, calls, tokens and money; None means no limit."""
        return dict(_or_raise(call("budget")))

    def history() -> list[dict[str, Any]]:
        """Return all earlier steps in full, oldest first: step, reply, cell, observation."""
        return list(_or_raise(call("history")))

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

    return {
        f.__name__: f
        for f in (
            llm_query, llm_query_batched, rlm_query, rlm_query_batched, COMMIT, CONTEXT, budget, history, FINAL,
            FINAL_VAR, SHOW_VARS, shell,
        )
    } | {"llm_batch": llm_query_batched, "CallError": CallError}  # fmt: skip


def pack_context(value: Any) -> dict[str, Any]:
    """Turn a child's context into what the host takes: references into the context, or plain values."""
    from agent.context import to_refs

    if value is None or isinstance(value, (str, int, float, bool)):
        return {"value": value}
    try:
        return {"refs": to_refs(value)}
    except TypeError:
        return {"value": value}


def _or_raise(outcome: Any) -> Any:
    """Return what a call gave: a batch's list as it is, else the value; raises RuntimeError when it was refused."""
    if isinstance(outcome, list):
        return outcome
    if not outcome["ok"]:
        raise RuntimeError(outcome["value"])
    return outcome["value"]
