"""The host's side of a REPL: start it in its sandbox, run cells, serve their calls, take and give its namespace.

Cell time counts compute only: the clock stands while a call of the cell is being served. A cell that overruns is
interrupted first, again and again for a while, and killed second; a REPL that dies raises `ReplDied`, and the loop restores
it from the checkpoint.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agent.errors import ReplDied
from agent.repl.celltime import OVERRUN, ComputeClock, Limit
from agent.repl.endings import ending_of
from agent.repl.sandbox import Launcher, Started, launch_worker
from agent.repl.taskwatch import watch_tasks
from agent.repl.wire import Channel, NoFrame


class CallServer(Protocol):
    """What answers the calls of one run of a cell."""

    def serve(self, kind: str, args: dict[str, Any]) -> Future[Any]:
        """Begin to answer a call; called in the order in which the cell asked, never blocks for long."""

    def cancel(self, at_once: bool = False) -> None:
        """Give up what can be given up without losing what was paid, `at_once` that as well: the cell ends before its calls."""

    def close(self) -> None:
        """End: the cell was run and all its calls are answered."""


#: Starts a worker on a channel with a cwd and a log: `launch_worker`, or a pool's `start`.
Spawn = Callable[[Launcher, socket.socket, Path, Path], Started]
_MOST = 10_000  # frames and calls of a cell that may wait to be looked at
_UNREAD = 120.0  # seconds for which a REPL may leave unread what it is sent
_START = 60.0  # seconds for a REPL to come up, on a busy machine
_HEARD = 30.0  # seconds until a REPL has said that it heard, on a busy machine
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


class _Broken(msgspec.Struct, frozen=True):
    why: str


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
    "broken": _Broken,
    "heard": dict,
}


class Repl:
    """One REPL process. Used by one rollout's thread; calls of its cells are served on threads of their own."""

    def __init__(self, launcher: Launcher, cwd: Path, log: Path, spawn: Spawn = launch_worker) -> None:
        self._launcher = launcher
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = spawn(launcher, theirs, cwd, log)
        self._channel = Channel(ours)
        self._frames: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._server: CallServer | None = None
        self._outstanding = _Outstanding()
        #: calls of threads that outlived their cell; they are served with the next one
        self._late: list[dict[str, Any]] = []
        self._broken = ""
        self._handle: int | None = None
        self._replies: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="repl-reader", daemon=True).start()
        threading.Thread(target=self._reply, name="repl-writer", daemon=True).start()

    def init(self, frame: dict[str, Any]) -> None:
        """Lay the scaffold: `context`, and where given `tools` [name, description], `values`, names to `remove`."""
        self._channel_send(op="init", **frame)
        self._expect("ready", _START)

    def run(self, blocks: list[str], step: int, server: CallServer, timeout: float, output_chars: int) -> CellResult:
        """Run a cell, its calls answered by `server`.

        `timeout` is seconds of compute. Raises `ReplDied` when the process ends or must be killed, and whatever an answer
        raises, after the REPL was stopped.
        """
        self._server = server
        try:
            return self._run(blocks, step, server, timeout, output_chars)
        except Exception:
            raise
        except BaseException:  # Ctrl-C: nobody is going to wait for what is in flight
            server.cancel(at_once=True)
            self.kill()
            raise
        finally:
            self._server = None
            server.close()

    def _run(self, blocks: list[str], step: int, server: CallServer, timeout: float, output_chars: int) -> CellResult:
        self._channel_send(op="run", blocks=blocks, step=step, output_chars=output_chars)
        clock = ComputeClock(timeout)
        failed: list[BaseException] = []
        limit = Limit(clock, self._interrupt)
        late, self._late = self._late, []
        for call in late:
            self._serve(call, server, clock, failed)
        while True:
            try:
                frame = self._frames.get(timeout=limit.pause())
            except queue.Empty:
                frame = {"op": "tick"}
            if failed:
                self.kill()
                raise failed[0]
            if frame is None:
                raise self._died()
            if frame["op"] == "call":
                self._serve(frame, server, clock, failed)
            elif frame["op"] == "ran":
                clock.wait_for_calls()  # a thread's COMMIT must not meet the checkpoint
                if failed:
                    self.kill()
                    raise failed[0]
                return msgspec.convert({**frame, "interrupted": limit.reached}, CellResult)
            if not limit.hold():  # looked at with every frame: a flood of them leaves no pause
                self.kill()
                raise ReplDied(OVERRUN.format(timeout))

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
        server = self._server
        if server is not None:
            server.cancel()
        self._outstanding.wait()
        self._replies.put(None)

    def _serve(
        self, frame: dict[str, Any], server: CallServer, clock: ComputeClock, failed: list[BaseException]
    ) -> None:
        """Have a call answered; its answer goes out on whichever thread has it."""
        clock.begin(frame["kind"])
        self._outstanding.begin()

        def answered(future: Future[Any]) -> None:
            error = CancelledError() if future.cancelled() else future.exception()
            clock.end(frame["kind"])
            if error is not None:
                failed.append(error)
                self._frames.put({"op": "tick"})
            else:
                self._replies.put((frame["id"], future.result()))
            self._outstanding.end()

        server.serve(frame["kind"], frame["args"]).add_done_callback(answered)

    def _reply(self) -> None:
        """Send answers: a REPL that was stopped and reads nothing holds up this thread and no other."""
        while (reply := self._replies.get()) is not None:
            try:
                self._channel.send(op="reply", id=reply[0], value=reply[1])
            except (OSError, TypeError, ValueError) as error:  # the REPL is gone, or the answer is too large for it
                with suppress(OSError):
                    self._channel.send(op="reply", id=reply[0], value={"ok": False, "value": str(error)})

    def _expect(self, op: str, timeout: float, interrupt_every: float | None = None) -> dict[str, Any]:
        until, heard_by = time.monotonic() + timeout, time.monotonic() + _HEARD
        while True:
            left = until - time.monotonic()
            try:
                frame = self._frames.get(
                    timeout=max(0.0, min(left, interrupt_every or left, heard_by - time.monotonic()))
                )
            except queue.Empty:
                if heard_by <= time.monotonic():
                    self.kill()
                    raise ReplDied(
                        "the REPL hears nothing: something in the cell read from its channel; it was ended"
                    ) from None
                if left > 0:
                    self._interrupt()
                    continue
                self.kill()
                raise ReplDied(f"the REPL did not answer ({op}) within {timeout:g} s") from None
            if frame is None:
                raise self._died()
            if frame["op"] == "call":
                self._late.append(frame)
                if len(self._late) > _MOST:
                    self.kill()
                    raise ReplDied(
                        f"threads of the cell made more than {_MOST} calls after it had ended; it was killed"
                    )
                continue
            if frame["op"] == "heard":
                heard_by = until
            if frame["op"] in ("tick", "heard"):
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

    def _interrupt(self) -> None:
        """Raise KeyboardInterrupt in the cell; a signal from outside reaches code that holds the interpreter, too."""
        if self._handle is None:
            self._channel_send(op="interrupt")
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGINT)
            signal.pidfd_send_signal(self._handle, signal.SIGCONT)  # a cell may have stopped its own process

    def _lives(self) -> bool:
        """Say whether the worker itself, as far as it can be seen, has not ended."""
        return self._handle is not None and not select.select([self._handle], [], [], 0.2)[0]

    def _died(self) -> ReplDied:
        if self._broken:
            self.kill()
            return ReplDied(f"{self._broken}; the REPL was ended")
        try:
            code = self.process.wait(1.0 if self._lives() else 5.0)
        except subprocess.TimeoutExpired:
            self.kill()
            return ReplDied("something in the cell closed the REPL's own channel; the REPL was ended")
        self.kill()
        died = ReplDied(f"the REPL process ended ({ending_of(code)})", "see .rlm-agent/repl.log for what it printed")
        died.signalled = code < 0 or code == 128 + signal.SIGKILL
        return died

    def _read(self) -> None:
        self._channel.give_up_sending_after(_UNREAD)
        self._handle = self._channel.receive_process()
        if self._handle is not None:
            weakref.finalize(self, os.close, self._handle)
            watch_tasks(self, self._handle, self._launcher.spec.processes)
        try:
            while (frame := self._channel.receive()) is not None:
                shape = _SHAPES.get(frame["op"])
                if shape is None:
                    raise NoFrame(f"unknown op {frame['op'][:40]!r}")
                told = msgspec.convert(frame, shape)
                if isinstance(told, _Broken):
                    self._broken = f"the cell broke the REPL from inside ({told.why[:300]})"
                    break
                self._frames.put(frame)
                while self._frames.qsize() + self._outstanding.count > _MOST and not self._channel.closed:
                    time.sleep(0.01)  # a cell that floods us waits
        except (NoFrame, msgspec.ValidationError) as error:
            self._broken = f"something in the cell wrote to the REPL's own channel ({error})"
        self._frames.put(None)

    def end_because(self, why: str) -> None:
        """End the process from any thread; whoever waits for it is told `why`."""
        self._broken = why
        self._launcher.kill(self.process)


class _Outstanding:
    """The calls that are being answered."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()

    def begin(self) -> None:
        with self._changed:
            self.count += 1

    def end(self) -> None:
        with self._changed:
            self.count -= 1
            self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.count == 0)
