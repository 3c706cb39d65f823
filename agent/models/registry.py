"""From a model's name to the object that answers.

`offline/…` and `local/…` are ours, `openai/…` with an `api_base` of one's own is asked directly, everything else is litellm's.

A `ModelPool` opens each distinct spec once, whoever asks from whichever thread, and closes them all.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agent.errors import UsageError
from agent.models.base import Model, ModelSpec

OWN_NAMES = ("offline/explorer", "offline/digest", "offline/scripted", "local/smollm2")


def open_model(spec: ModelSpec, task_dir: Path) -> Model:
    """Return the model that a spec names; relative paths in its params start at `task_dir`.

    Loads nothing heavy. Raises `UsageError` for an unknown `offline/…` or `local/…` name and for a broken script.
    """
    if spec.model == "offline/scripted":
        from agent.models.scripted import Scripted

        return Scripted(spec, task_dir)
    if spec.model == "offline/explorer":
        from agent.explorer.model import Explorer

        return Explorer(spec)
    if spec.model == "offline/digest":
        from agent.models.digest import Digest

        return Digest(spec)
    if spec.model == "local/smollm2":
        from agent.models.local import LocalModel

        return LocalModel(spec, task_dir)
    if spec.model.split("/")[0] in ("offline", "local"):
        raise UsageError(f"unknown model {spec.model!r}{_suggestion(spec.model)}", f"known are {', '.join(OWN_NAMES)}")
    from agent.models.litellm_model import LitellmModel

    return LitellmModel(spec)


class ModelPool:
    """The open models of a process. Thread-safe; usable until `close`."""

    def __init__(self, task_dir: Path) -> None:
        self._task_dir = task_dir
        self._open: dict[bytes, Model] = {}
        self._lock = threading.Lock()
        self._closed = False

    def get(self, spec: ModelSpec) -> Model:
        """Return the model of a spec, opened on first use; equal specs share one."""
        key = msgspec.json.encode(spec, order="deterministic")
        with self._lock:
            if self._closed:
                raise RuntimeError("the model pool is closed")
            if key not in self._open:
                self._open[key] = open_model(spec, self._task_dir)
            return self._open[key]

    def check(self, specs: Sequence[ModelSpec]) -> None:
        """Open and check each model before anything is spent; raises the first model's `AgentError`."""
        for spec in specs:
            self.get(spec).check()

    def close(self) -> None:
        """Close all models; a second call does nothing."""
        with self._lock:
            models, self._open, self._closed = list(self._open.values()), {}, True
        for model in models:
            model.close()


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, OWN_NAMES, n=1, cutoff=0.5)
    return f", did you mean {close[0]!r}?" if close else ""
