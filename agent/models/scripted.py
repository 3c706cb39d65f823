"""Placeholder."""

from __future__ import annotations

import re
import time
from pathlib import Path

import yaml

from agent.errors import RequestRejected
from agent.models.base import ModelReply, ModelRequest, ModelSpec


class Scripted:
    def __init__(self, spec: ModelSpec, task_dir: Path) -> None:
        self.spec = spec
        self.dir = task_dir
        self.entries = yaml.safe_load((task_dir / spec.params["script"]).read_text())

    def check(self) -> None: ...
    def close(self) -> None: ...
    def complete(self, request: ModelRequest) -> ModelReply:
        last = request.messages[-1].content
        if led := self.spec.params.get("ledger"):
            import hashlib
            import json

            h = hashlib.sha256(repr(request.messages).encode()).hexdigest()
            with open(self.dir / led, "a") as f:
                f.write(json.dumps({"hash": h}) + "\n")
        e = next((e for e in self.entries if "match" in e and re.search(e["match"], last)), None)
        if e is None:
            n = int(re.findall(r"step: (\d+)", last)[-1])
            flat = []
            for x in self.entries:
                if "match" in x:
                    continue
                flat += [x] * (x.get("times", 1) if not x.get("forever") else 10**5)
            if n > len(flat):
                raise RequestRejected("script is exhausted")
            e = flat[n - 1]
        time.sleep(e.get("delay", 0))
        return ModelReply(
            e["reply"],
            tokens_in=sum(len(m.content) for m in request.messages) // 4,
            tokens_out=len(e["reply"]) // 4,
            cost_usd=0.0,
            model=self.spec.model,
        )
