"""An `RLM` with a scripted model, for the parity tests: everything but the model's words is real.

The usual script is a model that runs what stands in `context` as its cell and answers with the variable `out`, so that one object
serves a whole module; sub-calls are answered by the entries with `match`.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import yaml

from agent import RLM

#: Runs the context as a cell, in every step of every rollout.
RUNS_CONTEXT = {"reply": "I run it.\n```repl\nexec(context)\nFINAL(repr(out))\n```", "forever": True}


def cell(code: str, **more: Any) -> dict[str, Any]:
    """Return a script's entry that replies with this cell."""
    return {"reply": f"I look.\n```repl\n{code}\n```", **more}


def write_script(folder: Path, *entries: dict[str, Any] | str) -> dict[str, str]:
    """Write a script into a folder and return the `params` of a model that follows it; a text is a cell."""
    folder.mkdir(parents=True, exist_ok=True)
    file, made = folder / "script.yaml", [cell(e) if isinstance(e, str) else e for e in entries]
    file.write_text(yaml.safe_dump(made))
    return {"script": str(file), "ledger": str(folder / "ledger.jsonl")}


def scripted(folder: Path, *entries: dict[str, Any] | str, **options: Any) -> RLM:
    """Return an RLM whose model follows these entries."""
    return RLM(model="offline/scripted", model_params=write_script(folder, *entries), **options)


def out(rlm: RLM, code: str) -> Any:
    """Run code as the cell of one completion and return what it leaves in `out`."""
    done = rlm.completion(code, question="Run what stands in the context.")
    assert done.outcome.kind == "done", done
    return ast.literal_eval(done.response)


def requests(folder: Path) -> list[dict[str, Any]]:
    """Return what the model of `scripted` was asked, as its ledger has it."""
    file = folder / "ledger.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
