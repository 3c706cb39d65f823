"""The REPL process: runs cells, asks the host for calls, and hands its namespace over as bytes.

Started as `python -m agent.repl.worker FD` inside the sandbox. The main thread runs cells, so that an interrupt reaches them;
a second thread reads the channel, so that a cell may wait for many calls at once, from threads and coroutines too.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
from concurrent.futures import Future
from typing import Any

from agent.repl import scaffold, snapshot
from agent.repl.namespace import Namespace
from agent.repl.output import CapturedOutput
from agent.repl.wire import Channel


class Worker:
    """One REPL: its channel, its namespace, and the calls that wait for an answer."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.output = CapturedOutput()
        self._waiting: dict[int, Future[Any]] = {}
        self._next = 0
        self._lock = threading.Lock()
        self._running = False
        self._pid = os.getpid()

    def serve(self) -> None:
        """Answer the host's frames until it hangs up."""
        threading.Thread(target=self._read, name="channel", daemon=True).start()
        while (frame := self.inbox.get()) is not None:
            getattr(self, "on_" + frame["op"])(frame)

    def on_init(self, frame: dict[str, Any]) -> None:
        """Build the namespace: the context and the scaffold."""
        names = scaffold.build(self.call, lambda: self.namespace.names, lambda: self.namespace.variables())
        names["context"] = _open_context(frame["context"])
        for name in frame.get("remove", ()):
            names.pop(name, None)
        self.namespace = Namespace(names)
        self.writer = snapshot.NamespaceWriter(self.namespace.names)
        self.channel.send(op="ready")

    def on_run(self, frame: dict[str, Any]) -> None:
        """Run a cell and report what it showed."""
        self.output.begin(frame["output_chars"])
        began = time.perf_counter()
        good, content, ready, variables = False, "", False, []
        self._begin()
        try:
            good = self.namespace.run(frame["blocks"], frame["step"])
            content, ready = self.namespace.answer()
            variables = self.namespace.variables()[:200]
        except BaseException as error:  # an interrupt between two blocks, or an object that cannot be looked at
            good = False
            print(f"{type(error).__name__}: while the cell's answer and variables were read")
        finally:
            self._end()
        self.channel.send(
            op="ran",
            ok=good,
            output=self.output.end(),
            answer=content,
            ready=ready,
            variables=variables,
            seconds=time.perf_counter() - began,
        )

    def on_read(self, frame: dict[str, Any]) -> None:
        """Give the value of one variable as text, for a FINAL_VAR outside of a cell."""
        found = frame["name"] in self.namespace.names
        self.channel.send(op="value", found=found, text=str(self.namespace.names.get(frame["name"], "")))

    def on_withdraw(self, _frame: dict[str, Any]) -> None:
        """Take back the answer's `ready`."""
        self.namespace.names["answer"]["ready"] = False

    def on_snapshot(self, frame: dict[str, Any]) -> None:
        """Hand over the namespace: hashes of all variables, bytes of those that the host does not have."""
        skip = set(self.namespace.scaffold)
        began = time.perf_counter()
        self._begin()
        try:
            shas, values, lost = self.writer.write(skip, set(frame["known"]))
        finally:
            self._end()
        self.channel.send(op="snapshot", shas=shas, values=values, lost=lost, seconds=time.perf_counter() - began)

    def on_restore(self, frame: dict[str, Any]) -> None:
        """Fill the namespace from a snapshot."""
        self._begin()
        try:
            lost = snapshot.restore(self.namespace.names, frame["shas"], frame["values"])
        finally:
            self._end()
        self.namespace.lay_scaffold()
        self.channel.send(op="restored", lost=lost)

    def call(self, kind: str, **arguments: Any) -> Any:
        """Ask the host and wait; may be used from any thread, but not from a forked process."""
        if os.getpid() != self._pid:
            raise RuntimeError("only the REPL's own process can make calls; use threads, or llm_query_batched")
        future: Future[Any] = Future()
        with self._lock:
            self._next += 1
            number = self._next
            self._waiting[number] = future
        self.channel.send(op="call", id=number, kind=kind, args=arguments)
        return future.result()

    def _begin(self) -> None:
        """Let an interrupt through from here on, whatever an earlier cell did to the signal."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._running = True

    def _end(self) -> None:
        """Let no interrupt and no timer of the cell hit the REPL itself; a forked copy of the cell ends here."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._running = False
        for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            signal.setitimer(timer, 0)
        if os.getpid() != self._pid:
            os._exit(0)

    def _read(self) -> None:
        while (frame := self.channel.receive()) is not None:
            if frame["op"] == "reply":
                if waiting := self._waiting.pop(frame["id"], None):
                    waiting.set_result(frame["value"])
            elif frame["op"] == "interrupt":
                if self._running:
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            else:
                self.inbox.put(frame)
        self.inbox.put(None)
        for future in self._waiting.values():
            future.set_exception(ConnectionError("the host is gone"))


def _open_context(given: dict[str, Any]) -> Any:
    if "value" in given:
        return given["value"]
    from agent.context import open_context, open_refs

    return open_refs(given["refs"]) if "refs" in given else open_context(given["manifest"])


def main() -> None:
    """Serve the channel whose descriptor is the first argument."""
    Worker(Channel(socket.socket(fileno=int(sys.argv[1])))).serve()


if __name__ == "__main__":
    main()
