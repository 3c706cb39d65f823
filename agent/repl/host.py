"""The host's side of a REPL: start it in its sandbox, run cells, serve their calls, take and give its namespace.

Cell time counts compute only: the clock stands while a call of the cell is being served. A cell that overruns is
interrupted first and killed second; a REPL that dies raises `ReplDied`, and the loop restores it from the checkpoint.
"""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from agent.errors import ReplDied
from agent.repl.sandbox import Launcher
from agent.repl.wire import Channel, NoFrame

CallHandler = Callable[[str, dict[str, Any]], Any]
_GRACE = 5.0  # seconds between the interrupt and the kill
_START = 60.0  # seconds for a REPL to come up, on a busy machine
_SAVE = 600.0  # seconds for all variables to be stored or restored
_ONE_VALUE = 60.0  # seconds until a variable that is being stored or restored is interrupted and given up


class CellResult(msgspec.Struct, frozen=True):
    """What a cell did: `output` as captured, the current answer, `seconds` of wall time, whether it was interrupted."""

    ok: bool
    output: str
    answer: str
    ready: bool
    variables: list[tuple[str, str, int]]
    seconds: float
    interrupted: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """The namespace: hash of each variable, the bytes of new values, and why some were lost."""

    shas: dict[str, str]
    values: dict[str, bytes]
    lost: dict[str, str]
    seconds: float


class _Call(msgspec.Struct, frozen=True):
    id: int
    kind: str
    args: dict[str, Any]


class _Value(msgspec.Struct, frozen=True):
    found: bool
    text: str


class _Restored(msgspec.Struct, frozen=True):
    lost: dict[str, str]


#: What the REPL may send, by `op`. A cell can send anything: what is of another shape ends the REPL.
_SHAPES: dict[str, Any] = {
    "ready": dict,
    "ran": CellResult,
    "call": _Call,
    "value": _Value,
    "snapshot": Snapshot,
    "restored": _Restored,
}


class Repl:
    """One REPL process. Used by one rollout's thread; calls of its cells are served on threads of their own."""

    def __init__(self, launcher: Launcher, cwd: Path, log: Path) -> None:
        self._launcher = launcher
        ours, theirs = socket.socketpair()
        ours.set_inheritable(False)
        argv = [sys.executable, "-P", "-m", "agent.repl.worker", str(theirs.fileno())]
        with log.open("ab") as sink:
            self.process: subprocess.Popen[bytes] = launcher.launch(
                argv, pass_fds=(theirs.fileno(),), cwd=cwd, stdout=sink, stderr=sink
            )
        theirs.close()
        self._channel = Channel(ours)
        self._frames: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._calls = ThreadPoolExecutor(64, thread_name_prefix="cell-call")
        #: calls of threads that outlived their cell; they are served with the next one
        self._late: list[dict[str, Any]] = []
        self._broken = ""
        threading.Thread(target=self._read, name="repl-reader", daemon=True).start()

    def init(self, context: dict[str, Any], remove: tuple[str, ...] = ()) -> None:
        """Lay the scaffold over the given context; `remove` names functions this rollout does not have."""
        self._channel_send(op="init", context=context, remove=list(remove))
        self._expect("ready", _START)

    def run(self, blocks: list[str], step: int, handler: CallHandler, timeout: float, output_chars: int) -> CellResult:
        """Run a cell and serve its calls with `handler(kind, arguments)`.

        `timeout` is seconds of compute. Raises `ReplDied` when the process ends or must be killed, and whatever the
        handler raises, after the REPL was stopped.
        """
        self._channel_send(op="run", blocks=blocks, step=step, output_chars=output_chars)
        clock = _ComputeClock(timeout)
        failed: list[BaseException] = []
        interrupted_at: float | None = None
        late, self._late = self._late, []
        for call in late:
            clock.begin()
            self._calls.submit(self._serve, call, handler, clock, failed)
        while True:
            try:
                frame = self._frames.get(timeout=0.1 if interrupted_at or clock.outstanding else clock.left() + 0.01)
            except queue.Empty:
                frame = {"op": "tick"}
            if failed:
                self.kill()
                raise failed[0]
            if frame is None:
                raise self._died()
            if frame["op"] == "call":
                clock.begin()
                self._calls.submit(self._serve, frame, handler, clock, failed)
            elif frame["op"] == "ran":
                clock.wait_for_calls()  # a thread's COMMIT must not meet the checkpoint
                if failed:
                    self.kill()
                    raise failed[0]
                return msgspec.convert({**frame, "interrupted": interrupted_at is not None}, CellResult)
            elif clock.left() <= 0:
                if interrupted_at is None:
                    interrupted_at = time.monotonic()
                    self._channel_send(op="interrupt")
                elif time.monotonic() - interrupted_at > _GRACE:
                    self.kill()
                    raise ReplDied(f"the cell ran for more than {timeout:g} s, ignored the interrupt and was killed")

    def read(self, name: str) -> str | None:
        """Return the text of a variable, or None where there is none."""
        self._channel_send(op="read", name=name)
        frame = self._expect("value", 30.0)
        return str(frame["text"]) if frame["found"] else None

    def withdraw_answer(self) -> None:
        """Take back the answer's `ready`: it was not accepted."""
        self._channel_send(op="withdraw")

    def snapshot(self, known: set[str]) -> Snapshot:
        """Return the namespace; values whose hash is in `known` come without their bytes."""
        self._channel_send(op="snapshot", known=list(known))
        frame = self._expect("snapshot", _SAVE, interrupt_every=_ONE_VALUE)
        return Snapshot(frame["shas"], frame["values"], frame["lost"], frame["seconds"])

    def restore(self, shas: dict[str, str], values: dict[str, bytes]) -> dict[str, str]:
        """Fill the namespace; returns the names that could not be restored, each with the reason."""
        self._channel_send(op="restore", shas=shas, values=values)
        return dict(self._expect("restored", _SAVE, interrupt_every=_ONE_VALUE)["lost"])

    def kill(self) -> None:
        """End the process and all that it started, and wait for the calls that are being served.

        What is in flight is paid: its outcome must be in the journal before the cell may run again and ask for it.
        """
        self._launcher.kill(self.process)
        self._channel.close()
        self._calls.shutdown(wait=True, cancel_futures=True)

    def _serve(
        self, frame: dict[str, Any], handler: CallHandler, clock: _ComputeClock, failed: list[BaseException]
    ) -> None:
        try:
            value = handler(frame["kind"], frame["args"])
        except BaseException as error:
            failed.append(error)
            self._frames.put({"op": "tick"})
            return
        finally:
            clock.end()
        with suppress(OSError):  # the REPL is gone; its reader reports that, and the outcome is in the journal
            self._channel.send(op="reply", id=frame["id"], value=value)

    def _expect(self, op: str, timeout: float, interrupt_every: float | None = None) -> dict[str, Any]:
        until = time.monotonic() + timeout
        while True:
            left = until - time.monotonic()
            try:
                frame = self._frames.get(timeout=max(0.0, min(left, interrupt_every or left)))
            except queue.Empty:
                if left > 0:
                    self._channel_send(op="interrupt")
                    continue
                self.kill()
                raise ReplDied(f"the REPL did not answer ({op}) within {timeout:g} s") from None
            if frame is None:
                raise self._died()
            if frame["op"] == "call":
                self._late.append(frame)
                continue
            if frame["op"] == "tick":
                continue
            if frame["op"] != op:
                self.kill()
                raise ReplDied(f"the REPL sent {frame['op']!r} where {op!r} was due")
            return frame

    def _channel_send(self, **frame: Any) -> None:
        try:
            self._channel.send(**frame)
        except OSError:
            raise self._died() from None

    def _died(self) -> ReplDied:
        if self._broken:
            self.kill()
            return ReplDied(f"something in the cell wrote to the REPL's own channel ({self._broken}); it was ended")
        try:
            code = self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            code = None
        self.kill()
        died = ReplDied(f"the REPL process ended ({_ending(code)})", "see .rlm-agent/repl.log for what it printed")
        died.signalled = code is None or code < 0 or code == 137
        return died

    def _read(self) -> None:
        try:
            while (frame := self._channel.receive()) is not None:
                shape = _SHAPES.get(frame["op"])
                if shape is None:
                    raise NoFrame(f"unknown op {frame['op'][:40]!r}")
                msgspec.convert(frame, shape)
                self._frames.put(frame)
        except (NoFrame, msgspec.ValidationError) as error:
            self._broken = str(error)
        self._frames.put(None)


class _ComputeClock:
    """Counts the seconds in which a cell computes; stands while one of its calls is outstanding."""

    def __init__(self, limit: float) -> None:
        self._left = limit
        self._since = time.monotonic()
        self.outstanding = 0
        self._lock = threading.Condition()

    def begin(self) -> None:
        with self._lock:
            if self.outstanding == 0:
                self._left -= time.monotonic() - self._since
            self.outstanding += 1

    def end(self) -> None:
        with self._lock:
            self.outstanding -= 1
            if self.outstanding == 0:
                self._since = time.monotonic()
                self._lock.notify_all()

    def wait_for_calls(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: self.outstanding == 0)

    def left(self) -> float:
        with self._lock:
            running = 0.0 if self.outstanding else time.monotonic() - self._since
            return max(0.0, self._left - running)


def _ending(code: int | None) -> str:
    if code is None:
        return "it does not answer"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
