"""Placeholder."""

from __future__ import annotations

import threading
from pathlib import Path

from agent.models.base import Model, ModelReply, ModelRequest, ModelSpec


class _Digest:
    def __init__(self, spec):
        self.spec = spec

    def check(self): ...
    def close(self): ...
    def complete(self, request: ModelRequest) -> ModelReply:
        t = request.messages[-1].content
        return ModelReply(
            "\n".join(l for l in t.splitlines() if l.strip())[:400], tokens_in=1, tokens_out=1, cost_usd=0.0
        )


class ModelPool:
    def __init__(self, task_dir: Path) -> None:
        self._dir = task_dir
        self._open = {}
        self._lock = threading.Lock()

    def get(self, spec: ModelSpec) -> Model:
        with self._lock:
            k = repr(spec)
            if k not in self._open:
                if spec.model == "offline/scripted":
                    from agent.models.scripted import Scripted

                    self._open[k] = Scripted(spec, self._dir)
                elif spec.model == "offline/explorer":
                    from agent.explorer.model import Explorer

                    self._open[k] = Explorer(spec)
                else:
                    self._open[k] = _Digest(spec)
            return self._open[k]

    def close(self) -> None: ...
