"""One question over files, asked as `rlm-agent ask` does: the answer, the lines it cites, and what it took.

The journal lies in the state folder under the question's own digest until the answer is there, so that asking again after
a crash goes on where it was.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agent import home
from agent.completion import Completion
from agent.context import open_context
from agent.context.manifest import Manifest
from agent.errors import UsageError
from agent.evidence import Citation, citations
from agent.rlm import RLM

_GOAL = (
    "Answer this question over `context`, and cite the lines it rests on as [document:line].\n\nQUESTION: {question}"
)


class Answer(msgspec.Struct, frozen=True):
    """An answered question: the completion, the cited lines, and the documents that could not be read."""

    completion: Completion
    evidence: tuple[Citation, ...]
    refused: tuple[str, ...]
    documents: int
    bytes: int


def ask(question: str, paths: Sequence[Path], watch: Callable[..., None] | None = None, **options: Any) -> Answer:
    """Ask one question over files and folders; `options` are those of `RLM`.

    Raises `UsageError` for an empty question or paths that name nothing, `ProviderError` when a model cannot be had.
    """
    if not question.strip():
        raise UsageError("ask: the question is empty", "rlm-agent ask 'What …?' -c PATH")
    folder = home.state_dir() / "asks" / _digest(question, paths, options)
    with RLM(workspace=folder, watch=watch, warm=tuple(paths), **{"route": "auto", **options}) as rlm:
        completion = rlm.completion(_GOAL.format(question=question.strip()), context=list(paths))
        manifest: Manifest = rlm.manifest
    if completion.outcome.kind == "done":
        shutil.rmtree(folder, ignore_errors=True)
    found = citations(completion.response, open_context(manifest))
    refused = tuple(f"{refusal.path}: {refusal.reason}" for refusal in manifest.refused)
    return Answer(completion, tuple(found), refused, len(manifest.docs), manifest.size)


def _digest(question: str, paths: Sequence[Path], options: dict[str, Any]) -> str:
    said = [question, *(str(path.absolute()) for path in paths), repr(sorted(options.items()))]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:24]
