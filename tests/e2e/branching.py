"""Write tasks whose scripted model works on branches, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import yaml


def cell(code: str, thought: str = "Go on.") -> dict[str, object]:
    """Return a script's entry whose reply runs this code."""
    return {"reply": f"{thought}\n```repl\n{code.strip()}\n```"}


def task(folder: Path, *entries: dict[str, object], **fields: object) -> Path:
    """Write a task with a scripted model and return its file; the workspace is `w` beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "script.yaml").write_text(yaml.safe_dump(list(entries), sort_keys=False))
    params = {"script": "script.yaml", "ledger": "ledger.jsonl", "prompts": "prompts.jsonl"}
    model = {"model": "offline/scripted", "params": params}
    document = {
        "name": "branches",
        "goal": "Try two ideas.",
        "models": {"root": model, "sub": model, "fold": "offline/digest"},
        "workspace": "./w",
        **fields,
    }
    file = folder / "task.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file
