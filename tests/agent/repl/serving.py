"""A call server for tests of the REPL alone: a plain function answers, each call on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from agent.runtime import in_thread


class Serving:
    """Answers calls with `handler(kind, arguments)`."""

    def __init__(self, handler: Callable[[str, dict[str, Any]], Any]) -> None:
        self._handler = handler
        self.cancelled = False

    def serve(self, kind: str, args: dict[str, Any]) -> Future[Any]:
        return in_thread(lambda: self._handler(kind, args), "call")

    def cancel(self, at_once: bool = False) -> None:
        self.cancelled = True

    def close(self) -> None:
        pass
