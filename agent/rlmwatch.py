"""What `RLM` tells while it works: the caller's callbacks (`watch` gets everything), and lines on stderr when it is verbose."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agent.rlmoptions import Options


class Watch:
    """Turns what rollouts tell into `on_iteration_…` and `on_subcall_…`; an exception in a callback is dropped."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._began: dict[Any, float] = {}
        self._tell = options.watch
        if options.verbose:
            from agent.cli.progress import Progress

            self._tell = Progress().watch

    def __call__(self, kind: str, /, **facts: Any) -> None:
        if self._tell is not None:
            with suppress(Exception):
                self._tell(kind, **facts)
        now, options = time.monotonic(), self._options
        if kind == "step":
            self._began[facts["rollout"], facts["step"]] = now
            _call(options.on_iteration_start, facts["depth"], facts["step"])
        elif kind == "observation":
            began = self._began.pop((facts["rollout"], facts["step"]), now)
            _call(options.on_iteration_complete, facts["depth"], facts["step"], now - began)
        elif kind == "child":
            self._began[facts["rollout"]] = now
            _call(options.on_subcall_start, facts["depth"], facts["model"], facts["prompt"][:80])
        elif kind == "child_done":
            began = self._began.pop(facts["rollout"], now)
            failed = None if facts["outcome"] == "done" else facts["reason"]
            _call(options.on_subcall_complete, facts["depth"], facts["model"], now - began, failed)


def _call(tell: Callable[..., Any] | None, *arguments: Any) -> None:
    if tell is not None:
        with suppress(Exception):
            tell(*arguments)
