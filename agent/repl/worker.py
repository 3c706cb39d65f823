"""The REPL process: runs cells, asks the host for calls, and hands its namespace over as bytes.

Started as `python -m agent.repl.worker FD` inside the sandbox. The main thread runs cells, so that an interrupt reaches them;
a second thread reads the channel, so that a cell may wait for many calls at once, from threads and coroutines too.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
from _thread import allocate_lock, start_new_thread
from os import _exit, getpid
from time import perf_counter
from typing import Any

from agent.repl import scaffold, snapshot
from agent.repl.interrupts import Interrupts
from agent.repl.namespace import Namespace
from agent.repl.output import CapturedOutput
from agent.repl.process import ProcessState
from agent.repl.wire import Channel

_HOST_GONE = "the host is gone"


class _Waiting:
    """A call that waits for its answer, on a lock that no cell can patch."""

    __slots__ = ("answered", "value")

    def __init__(self) -> None:
        self.value: Any = _HOST_GONE
        self.answered = allocate_lock()
        self.answered.acquire()


class Worker:
    """One REPL: its channel, its namespace, and the calls that wait for an answer."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.output = CapturedOutput()
        self.output.begin(1)
        self._waiting: dict[int, _Waiting] = {}
        self._next = 0
        self._lock = allocate_lock()
        self._gone = False
        self._pid = getpid()
        self._interrupts = Interrupts(_exit)
        self._process = ProcessState()
        self._on = {op: getattr(self, f"on_{op}") for op in ("init", "run", "read", "withdraw", "snapshot", "restore")}

    def serve(self) -> None:
        """Answer the host's frames until it hangs up; what a cell has broken for good is told, and ends the process."""
        self.channel.send_process()
        start_new_thread(self._read, ())
        while (frame := self.inbox.get()) is not None:
            try:
                self._on[frame["op"]](frame)
            except OSError:
                return  # the channel is closed
            except BaseException as error:
                self.channel.send(op="broken", why=f"{type(error).__name__}: {error}"[:300])
                _exit(1)

    def on_init(self, frame: dict[str, Any]) -> None:
        """Build the namespace: the context and the scaffold."""
        names = scaffold.build(self.call, lambda: self.namespace.names, lambda: self.namespace.variables())
        names |= {name: scaffold.tool(self.call, name, text) for name, text in frame.get("tools", ())}
        names |= frame.get("values", {})
        for name, given in {"context": frame["context"], **frame.get("contexts", {})}.items():
            names[name] = _open_context(given)
        for name in frame.get("remove", ()):
            names.pop(name, None)
        self.namespace = Namespace(names, lambda text: self.output.stream.write(text))
        self.writer = snapshot.NamespaceWriter(self.namespace.names)
        self.channel.send(op="ready")

    def on_run(self, frame: dict[str, Any]) -> None:
        """Run a cell and report what it showed."""
        self.output.begin(frame["output_chars"])
        began = perf_counter()
        good, content, ready, variables = False, "", False, []
        self._begin()
        try:
            good = self.namespace.run(frame["blocks"], frame["step"])
            content, ready = self.namespace.answer()
            variables = self.namespace.variables()[:200]
        except BaseException as error:  # an interrupt between two blocks, or an object that cannot be looked at
            good = False
            self.output.stream.write(f"{snapshot.why(error)}\n(while the cell's answer and variables were read)\n")
        finally:
            self._end()
        self.channel.send(
            op="ran",
            ok=good,
            output=self.output.end(),
            answer=content,
            ready=ready,
            variables=variables,
            seconds=perf_counter() - began,
        )

    def on_read(self, frame: dict[str, Any]) -> None:
        """Give the value of one variable as text, for a FINAL_VAR outside of a cell."""
        self._begin()
        try:
            found, text = frame["name"] in self.namespace.names, str(self.namespace.names.get(frame["name"], ""))
        except BaseException:  # its own code fails
            found, text = False, ""
        finally:
            self._end()
        self.channel.send(op="value", found=found, text=text)

    def on_withdraw(self, _frame: dict[str, Any]) -> None:
        """Take back the answer's `ready`."""
        self.namespace.lay_scaffold()
        self.namespace.names["answer"]["ready"] = False

    def on_snapshot(self, frame: dict[str, Any]) -> None:
        """Hand over the namespace: hashes of all variables, bytes of those that the host does not have."""
        skip = set(self.namespace.scaffold)
        began = perf_counter()
        self._begin()
        try:
            shas, values, lost = self.writer.write(skip, set(frame["known"]))
        finally:
            self._end()
        self.channel.send(op="snapshot", shas=shas, values=values, lost=lost, seconds=perf_counter() - began)

    def on_restore(self, frame: dict[str, Any]) -> None:
        """Fill the namespace from a snapshot; the answer so far takes the place of the blank one."""
        if "answer" in frame["shas"]:
            self.namespace.names.pop("answer", None)
        self._begin()
        try:
            lost = snapshot.restore(self.namespace.names, frame["shas"], frame["values"])
        finally:
            self._end()
        self.namespace.lay_scaffold()
        self.channel.send(op="restored", lost=lost)

    def call(self, kind: str, **arguments: Any) -> Any:
        """Ask the host and wait; may be used from any thread, but not from a forked process."""
        if getpid() != self._pid:
            raise RuntimeError("only the REPL's own process can make calls; use threads, or llm_query_batched")
        waiting = _Waiting()
        with self._lock:
            if self._gone:
                raise ConnectionError(_HOST_GONE)
            self._next += 1
            number = self._next
            self._waiting[number] = waiting
        self._interrupts.hold()
        try:
            self.channel.send(op="call", id=number, kind=kind, args=arguments)
        finally:
            self._interrupts.release()
        waiting.answered.acquire()
        if waiting.value is _HOST_GONE:
            raise ConnectionError(_HOST_GONE)
        return waiting.value

    def _begin(self) -> None:
        """Let an interrupt through from here on, whatever an earlier cell did to the signal or to the process."""
        self._process.prepare()
        self._interrupts.open()

    def _end(self) -> None:
        """Let no interrupt and no timer of the cell hit the REPL itself; a forked copy of the cell ends here."""
        self._interrupts.close()
        if getpid() != self._pid:
            _exit(0)
        self._process.mend()

    def _read(self) -> None:
        try:
            self._take_frames()
        except BaseException:  # no memory for a frame, say: a REPL that hears nothing must not look alive
            os._exit(71)

    def _take_frames(self) -> None:
        while (frame := self.channel.receive()) is not None:
            if frame["op"] == "reply":
                if waiting := self._waiting.pop(frame["id"], None):
                    waiting.value = frame["value"]
                    waiting.answered.release()
            elif frame["op"] == "interrupt":
                os.kill(getpid(), 2)
            else:
                if frame["op"] not in ("run", "withdraw"):
                    self.channel.send(op="heard")
                self.inbox.put(frame)
        self.inbox.put(None)
        with self._lock:
            self._gone = True
        for waiting in list(self._waiting.values()):
            waiting.answered.release()


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
