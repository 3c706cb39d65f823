"""REPLs of one run: forked from a warm process where that works here, started one by one where it does not.

`start` keeps the contract of `Launcher.launch`: the same view, limits and death. The first REPL is the fork server's trial: when
it cannot be forked, it and all others are launched the long way; a server that dies later is started again. Whatever a fork
cannot give (a path that the server does not see, a layer other than bubblewrap) is launched the long way too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path

from agent.errors import SandboxError
from agent.repl import bubblewrap, interpreter
from agent.repl.forkserver import Plan
from agent.repl.forkserver_root import PLACE
from agent.repl.sandbox import Launcher, Layer, SandboxSpec, Started, launch_worker, start_bubblewrap
from agent.repl.wire import Channel, NoFrame

_SOURCES = "/run/rlm-agent/sources"
_START = 30.0  # seconds for a REPL to come up, on a busy machine
_CREDENTIALS = struct.Struct("=iII")


class _Refused(Exception):
    """A REPL could not be confined as its plan says."""


class ForkedProcess:
    """A REPL that was forked: its init, seen from outside. `pid` is the init's, `inner` a pidfd of it."""

    def __init__(self, line: socket.socket, pid: int, inner: int) -> None:
        self._line = line
        self._lock = threading.Lock()
        self.pid, self.inner = pid, inner
        self.returncode: int | None = None
        weakref.finalize(self, os.close, inner)

    def poll(self) -> int | None:
        """Give the exit code, None while the worker runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the worker's end; gives its exit code, 128 + its signal, or -9 when all was killed from outside.

        Raises `subprocess.TimeoutExpired` after `timeout` seconds.
        """
        with self._lock:
            if self.returncode is None:
                if not _readable(self._line.fileno(), timeout):
                    raise subprocess.TimeoutExpired("a REPL", timeout or 0.0)
                told = self._line.recv(
                    16
                )  # the worker's exit code or minus its signal; nothing when the init was killed
                code = int(told or -signal.SIGKILL)
                self.returncode = code if code >= 0 or not told else 128 - code
                self._line.close()
            return self.returncode

    def kill(self) -> None:
        """Kill the init, and so all that the REPL started."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.inner, signal.SIGKILL)


class ReplPool:
    """Starts the REPLs of one run; may be used from any thread.

    `spec` says what all of them may see: `read_only` and `hidden` as for the root. `roots` are the folders in which a REPL may
    be given a part to write, the workspace and the scratch root; they must exist when the first REPL starts.
    """

    def __init__(self, spec: SandboxSpec, layer: Layer, roots: Sequence[Path], log: Path) -> None:
        self._spec, self._layer, self._roots, self._log = spec, layer, tuple(roots), log
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._closed = self._proven = False
        #: why REPLs are launched one by one; empty while they are forked
        self.reason = "" if layer.kind == "bubblewrap" else f"a {layer.kind} sandbox cannot be forked into"

    def warm(self) -> None:
        """Start the fork server in the background; returns at once."""
        threading.Thread(target=self._ready_server, name="repl-pool", daemon=True).start()

    def start(self, launcher: Launcher, channel: socket.socket, cwd: Path, log: Path) -> Started:
        """Start a worker on `channel` with `launcher`'s view and limits, its cwd and what it prints going to `log`.

        Raises SandboxError when no way to start one works.
        """
        for _ in range(2):  # a server that was killed is started again
            server = self._ready_server()
            plan = server.plan(launcher, cwd) if server else None
            if server is None or plan is None:
                break
            try:
                process = server.fork(plan, channel, log)
            except _Refused as error:
                if not self._proven:
                    self._give_up(server, error)
                break
            except (OSError, NoFrame) as error:
                if not self._proven:
                    self._give_up(server, error)
                elif server.ended():
                    self._drop(server)
                    continue
                break
            self._proven = True
            return process
        return launch_worker(launcher, channel, cwd, log)

    def close(self) -> None:
        """End the fork server and every REPL that is left."""
        with self._lock:
            self._closed = True
            server, self._server = self._server, None
        if server is not None:
            server.close()

    def _ready_server(self) -> _Server | None:
        with self._lock:
            if self._server is None and not self.reason and not self._closed:
                try:
                    self._server = _Server(self._spec, self._layer, self._roots, self._log)
                except (OSError, SandboxError) as error:
                    self.reason = str(error)
            return self._server

    def _give_up(self, server: _Server, error: Exception) -> None:
        """Launch the long way from here on: the first REPL could not be forked, so none can."""
        self.reason = f"no REPL can be forked here: {error} (see {self._log})"
        self._drop(server)

    def _drop(self, server: _Server) -> None:
        with self._lock:
            if self._server is server:
                self._server = None
        server.close()


class _Server:
    """The host's side of one fork server: its process, the socket to it, and where it sees what."""

    def __init__(self, spec: SandboxSpec, layer: Layer, roots: tuple[Path, ...], log: Path) -> None:
        self._launcher = Launcher(spec, layer)
        self._hidden = [Path(os.path.realpath(path)) for path in spec.hidden]
        self._roots = {Path(os.path.realpath(root)): f"{_SOURCES}/{n}" for n, root in enumerate(roots)}
        self._identity = {root: _identity(root) for root in self._roots}
        shown = {Path(os.path.realpath(path)) for path in (*spec.read_only, *spec.python_roots) if path.exists()}
        shown -= self._roots.keys()
        self._shown = {path: f"{_SOURCES}/{n + len(roots)}" for n, path in enumerate(sorted(shown))}
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        command = [sys.executable, "-P", "-m", "agent.repl.forkserver", str(theirs.fileno())]
        arguments = bubblewrap.options(self._view(), network=spec.network, user=bubblewrap.MAKER)
        with theirs, log.open("ab") as sink:
            options = {"stdin": subprocess.DEVNULL, "stdout": sink, "stderr": sink}
            clean = interpreter.environment(bubblewrap.HOME)
            self.process = start_bubblewrap(layer.program, arguments, command, clean, (theirs.fileno(),), options)

    def plan(self, launcher: Launcher, cwd: Path) -> Plan | None:
        """Give the plan for a REPL with `launcher`'s view; None when the server cannot make one."""
        spec = launcher.spec
        if launcher.layer != self._launcher.layer or (spec.network and not self._launcher.spec.network):
            return None
        if not set(self._launcher.spec.hidden) <= set(spec.hidden):
            return None
        if any(_identity(root) != known for root, known in self._identity.items()):
            return None  # another folder stands where the server's source was
        mounts: list[bubblewrap.Mount] = [("--ro-bind", "/etc", "/etc")]
        for mount in launcher.view():
            if mount in self._own:  # as bwrap laid it for the server, read-only; /etc as a whole is there already
                mounts += [] if mount[2].startswith("/etc/") else [("--bind", mount[2], mount[2])]
            elif mount[0] in ("--bind", "--ro-bind"):
                source = self._source(Path(mount[1]), writable=mount[0] == "--bind")
                if source is None:
                    return None
                mounts.append((mount[0], source, mount[2]))
            else:
                mounts.append(mount)
        return Plan(
            mounts, str(cwd), spec.network, spec.memory_bytes, spec.file_bytes, bubblewrap.TMP_BYTES,
            spec.open_files, spec.processes,
        )  # fmt: skip

    def fork(self, plan: Plan, channel: socket.socket, log: Path) -> ForkedProcess:
        """Have a REPL forked; returns when it is confined. Raises OSError or NoFrame when the server or the plan fails."""
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            with theirs, log.open("ab") as sink, self._lock:
                socket.send_fds(self._control, [b"+"], [channel.fileno(), theirs.fileno(), sink.fileno()])
            return _greet(ours, plan)
        except BaseException:
            ours.close()
            raise

    def ended(self) -> bool:
        """Say whether the server is gone; waits a second for one that is about to be."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        return self.process.returncode is not None

    def close(self) -> None:
        """End the server, and with it all that it forked."""
        self._control.close()
        self._launcher.kill(self.process)

    def _view(self) -> list[bubblewrap.Mount]:
        """Give what the server sees: Python, and each source in a place of its own."""
        view = bubblewrap.view(
            network=self._launcher.spec.network,
            writable=(),
            read_only=interpreter.python_paths(),
            hidden=(),
            programs=interpreter.programs(),
        )
        self._own = {mount for mount in view if mount[0] == "--ro-bind"}  # the system and Python, where REPLs have them
        for path, source in self._roots.items():
            view.append(("--bind", str(path), source))
            for hidden in self._hidden:
                if hidden.is_relative_to(path) and hidden != path and hidden.is_dir():
                    view.append(("--tmpfs", f"{source}/{hidden.relative_to(path)}"))
        view += [("--ro-bind", str(path), source) for path, source in self._shown.items()]
        return [*view, ("--dir", PLACE)]

    def _source(self, path: Path, *, writable: bool) -> str | None:
        """Give the place where the server sees `path`, None when it does not."""
        places = self._roots if writable else self._shown | self._roots
        above = [place for place in places if path.is_relative_to(place)]
        if not above:
            return None
        nearest = max(above, key=lambda place: len(place.parts))
        if any(path.is_relative_to(hidden) and not nearest.is_relative_to(hidden) for hidden in self._hidden):
            return None
        return str(Path(places[nearest], path.relative_to(nearest)))


def _greet(line: socket.socket, plan: Plan) -> ForkedProcess:
    """Learn who the new init is, hand it its plan, and wait until it is confined. Raises OSError and _Refused."""
    line.settimeout(_START)
    data, notes, _, _ = line.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
    if not data or not notes:
        raise ConnectionError("the fork server is gone")
    pid, _, _ = _CREDENTIALS.unpack(notes[0][2][: _CREDENTIALS.size])
    line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    inner = os.pidfd_open(pid)  # it waits for its plan: when it answers that, it is this one that lives
    try:
        channel = Channel(line)
        channel.send(op="plan", plan=plan)
        frame = channel.receive()
        if frame is None:
            raise ConnectionError("the REPL ended before it was confined")
        if frame["op"] != "up":
            raise _Refused(str(frame.get("why")))
        line.settimeout(None)
        return ForkedProcess(line, pid, inner)
    except BaseException:
        os.close(inner)
        raise


def _identity(path: Path) -> tuple[int, int] | None:
    """Give what tells a folder from another one of the same name."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _readable(fd: int, timeout: float | None) -> bool:
    watch = select.poll()
    watch.register(fd, select.POLLIN)
    return bool(watch.poll(None if timeout is None else timeout * 1000))
