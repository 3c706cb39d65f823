"""Where model code runs: one `Launcher` per workspace, over the strongest layer that works here.

Whatever the layer, a process that was launched here has a clean environment (no keys), limits on memory,
files and processes, and ends with the host or with `kill`, which returns only when no descendant is left.
Layers: bubblewrap (namespaces), Landlock (with seccomp), none (only when the task says so). A layer counts
as working when it really ran a process.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agent.errors import SandboxError
from agent.repl import bubblewrap, interpreter, landlock

HINT = "install bubblewrap (`apt install bubblewrap`), or write `sandbox: {kind: none}` to run cells unprotected"
Fd = int | None


class SandboxSpec(msgspec.Struct, frozen=True):
    """What a sandbox shows and allows. Paths are absolute; sizes are bytes; `read_only` and `hidden` win
    inside `writable`.
    """

    writable: Path
    kind: str = "auto"
    network: bool = False
    memory_bytes: int = 2 << 30
    hidden: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    python_roots: tuple[Path, ...] = ()
    processes: int = 256
    file_bytes: int = 8 << 30
    open_files: int = 1024


class Layer(msgspec.Struct, frozen=True):
    """What holds the processes in: bubblewrap, landlock or none; `detail` says which program or version."""

    kind: str
    program: str = ""
    detail: str = ""
    #: `.git` stays read-only and `.rlm-agent` hidden inside the writable folder; Landlock, which only adds
    #: rights on the way down, can't take a part out of a folder.
    protects_inside: bool = False

    def describe(self) -> str:
        """Say in one line which layer this is, and what it does not cover."""
        if self.kind == "none":
            return "none: cells run unprotected, with your rights"
        gaps = [] if self.protects_inside else ["`.git` and `.rlm-agent` in the workspace are not protected"]
        if os.geteuid() == 0:
            gaps.append("as root, the number of processes is not limited")
        return f"{self.kind} {self.detail}".strip() + (f" ({'; '.join(gaps)})" if gaps else "")


def choose(kind: str = "auto") -> Layer:
    """Give the layer for `kind`; each is really tried, once per process. Raises SandboxError when none
    works.
    """
    if kind == "none":
        return Layer("none")
    for name, probe in (("bubblewrap", _probe_bubblewrap), ("landlock", _probe_landlock)):
        if kind in ("auto", name) and (layer := probe()[0]):
            return layer
    reasons = [probe()[1] for name, probe in _PROBES.items() if kind in ("auto", name)]
    raise SandboxError(f"no sandbox works here ({'; '.join(reasons) or f'{kind!r} is not known'})", HINT)


@functools.cache
def _probe_bubblewrap() -> tuple[Layer | None, str]:
    reason = "bubblewrap is not installed"
    for program in bubblewrap.programs():
        shown = bubblewrap.arguments(network=False, writable=(), read_only=(), hidden=(), programs=())
        command = [program, *shown, "--", "/bin/sh", "-c", ":"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, env={})
            if done.returncode == 0:
                version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, env={})
                detail = f"{version.stdout.split()[-1]} ({program})"
                return Layer("bubblewrap", program, detail, protects_inside=True), ""
            reason = f"{program}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}"
        except (OSError, subprocess.TimeoutExpired, IndexError) as error:
            reason = f"{program}: {error}"
    return None, reason


@functools.cache
def _probe_landlock() -> tuple[Layer | None, str]:
    if (version := landlock.abi()) == 0:
        return None, "the kernel has no Landlock"
    if not landlock.seccomp_known():
        return None, "no seccomp filter for this processor"
    with tempfile.TemporaryDirectory() as folder:
        launcher = Launcher(SandboxSpec(Path(folder)), Layer("landlock", detail=f"ABI {version}"))
        process = launcher.launch(["/bin/sh", "-c", "echo works"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, error = process.communicate(timeout=30)
        launcher.kill(process)
    return (
        (launcher.layer, "")
        if out == b"works\n"
        else (None, f"Landlock: {error.decode(errors='replace')[-200:].strip()}")
    )


_PROBES = {"bubblewrap": _probe_bubblewrap, "landlock": _probe_landlock}


def open_sandbox(spec: SandboxSpec) -> Launcher:
    """Give a launcher over the layer that `spec.kind` asks for; raises SandboxError when there is none."""
    return Launcher(spec, choose(spec.kind))


class Started(Protocol):
    """A process that runs in a sandbox, as `Launcher.kill` and whoever waits for it need to know it."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def inner(self) -> Fd:
        """A pidfd whose end means that nothing inside is left, where there is one."""

    @property
    def returncode(self) -> int | Any | None:
        """The exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises `subprocess.TimeoutExpired` after `timeout` seconds."""


class SandboxedProcess(subprocess.Popen[bytes]):
    """A launched process. `inner` is a pidfd of the first process inside bubblewrap's namespace."""

    inner: Fd = None


class Launcher:
    """Starts processes inside one sandbox and ends them."""

    def __init__(self, spec: SandboxSpec, layer: Layer) -> None:
        self.spec = spec
        self.layer = layer

    def launch(
        self,
        argv: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdout: Any = None,
        stderr: Any = None,
    ) -> SandboxedProcess:
        """Start `argv` in `cwd` (default: the writable folder) with `env` added to a clean environment.

        stdin is empty. The fds in `pass_fds` keep their numbers. Raises SandboxError when it cannot be
        started.
        """
        start = self._bubblewrapped if self.layer.kind == "bubblewrap" else self._supervised
        command = [*_limits(self.spec), *argv]
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr}
        try:
            return start(command, dict(env or {}), str(cwd or self.spec.writable), tuple(pass_fds), options)
        except OSError as error:
            raise SandboxError(f"the sandbox could not be started: {error}", HINT) from error

    def kill(self, process: Started, *, timeout: float = 10.0) -> None:
        """End the whole tree of a launched process, and return when nothing of it is left (or after
        `timeout` seconds).
        """
        inner = process.inner
        with contextlib.suppress(OSError):  # it has ended; at the interpreter's exit its pidfd may be closed as well
            if inner is not None:
                signal.pidfd_send_signal(inner, signal.SIGKILL)
            elif process.returncode is None:
                os.kill(process.pid, signal.SIGKILL if self.layer.kind == "bubblewrap" else signal.SIGTERM)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if inner is not None:  # bwrap passes its program's exit on before the rest of the namespace is dead
            watch = select.poll()
            watch.register(inner, select.POLLIN)
            watch.poll(timeout * 1000)

    def view(self) -> list[bubblewrap.Mount]:
        """Give all that a process inside sees, in the order in which it is laid."""
        return bubblewrap.view(
            network=self.spec.network,
            writable=[self.spec.writable],
            read_only=[*interpreter.python_paths(), *self.spec.python_roots, *self.spec.read_only],
            hidden=self.spec.hidden,
            programs=interpreter.programs(),
        )

    def describe(self) -> str:
        """Say in one line what holds the cells in, and what it does not cover."""
        net = "network open" if self.spec.network else "no network"
        limits = f"{net}, {self.spec.memory_bytes / 2**30:.3g} GiB memory per process"
        return self.layer.describe() + ("" if self.layer.kind == "none" else f"; {limits}")

    def _bubblewrapped(
        self, command: list[str], env: dict[str, str], cwd: str, fds: tuple[int, ...], options: dict[str, Any]
    ) -> SandboxedProcess:
        rules = os.memfd_create("seccomp")
        os.write(rules, landlock.seccomp_program(network=True))  # the namespace has no network; this is for the rest
        os.lseek(rules, 0, os.SEEK_SET)
        seccomp = ["--seccomp", str(rules)] if landlock.seccomp_known() else []
        arguments = [*bubblewrap.options(self.view(), network=self.spec.network), *seccomp, "--chdir", cwd]
        clean = interpreter.environment(bubblewrap.HOME) | env
        try:
            return start_bubblewrap(self.layer.program, arguments, command, clean, (*fds, rules), options)
        finally:
            os.close(rules)

    def _supervised(
        self, command: list[str], env: dict[str, str], cwd: str, fds: tuple[int, ...], options: dict[str, Any]
    ) -> SandboxedProcess:
        temp = tempfile.mkdtemp(prefix="rlm-agent-")
        interpreter.link_packages(Path(temp, "python"))
        proc = ["/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg"]
        devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"]
        etc = [f"/etc/{name}" for name in (*bubblewrap.ETC, "resolv.conf")]
        paths = [*bubblewrap.SYSTEM, *etc, *proc, "/dev/urandom", "/dev/random", "/sys/devices/system/cpu"]
        paths += map(str, [*interpreter.python_paths(), *self.spec.python_roots, *self.spec.read_only])
        plan = {
            "host": os.getpid(),
            "temp": temp,
            "fds": fds,
            "landlock": self.layer.kind == "landlock",
            "network": self.spec.network,
            "readable": [os.path.realpath(path) if not path.startswith("/proc") else path for path in paths],
            "writable": [temp, os.path.realpath(self.spec.writable), *devices],
        }
        starter = [sys.executable, "-I", "-S", "-c", _confine_code(), json.dumps(plan), *command]
        try:
            clean = interpreter.environment(temp)
            clean["PYTHONPATH"] = clean["PYTHONPATH"].replace(str(interpreter.packages()), f"{temp}/python", 1)
            return _start(starter, env=clean | env, pass_fds=fds, cwd=cwd, **options)
        except BaseException:
            shutil.rmtree(temp, ignore_errors=True)
            raise


def launch_worker(launcher: Launcher, channel: socket.socket, cwd: Path, log: Path) -> Started:
    """Start a REPL's worker on `channel` in a sandbox and a Python of its own; what it prints goes to `log`."""
    argv = [sys.executable, "-P", "-m", "agent.repl.worker", str(channel.fileno())]
    with log.open("ab") as sink:
        return launcher.launch(argv, pass_fds=(channel.fileno(),), cwd=cwd, stdout=sink, stderr=sink)


def start_bubblewrap(
    program: str,
    arguments: Sequence[str],
    command: Sequence[str],
    env: Mapping[str, str],
    fds: Sequence[int],
    options: Mapping[str, Any],
) -> SandboxedProcess:
    """Start `command` below bwrap with nothing but `env`; `inner` of what is returned holds its namespace."""
    info, told = os.pipe()
    whole = [program, *arguments, "--info-fd", str(told), "--", *command]
    try:
        process = _start(whole, env=env, pass_fds=(*fds, told), cwd="/", **options)
    except BaseException:
        os.close(info)
        raise
    finally:
        os.close(told)
    with os.fdopen(info, "rb") as pipe:
        _note_inner(process, pipe.read())
    return process


def _confine_code() -> str:
    """Give code that runs `agent.repl.confine` without the packages' own `__init__` and what they import."""
    here = Path(__file__).resolve().parent
    folders = {"agent": str(here.parent), "agent.repl": str(here)}
    return (
        "import sys, types\n"
        f"for name, folder in {folders!r}.items():\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        "    sys.modules[name].__path__ = [folder]\n"
        "sys.dont_write_bytecode = True\n"
        "from agent.repl.confine import main\n"
        "main()\n"
    )


def _limits(spec: SandboxSpec) -> list[str]:
    """Give the shell prefix that sets the limits inside. Not RLIMIT_AS: a mapped context of gigabytes is no
    memory used.
    """
    limits = [
        "ulimit -c 0",
        f"ulimit -d {spec.memory_bytes >> 10}",
        f"ulimit -f {spec.file_bytes >> 9}",
        f"ulimit -n {spec.open_files}",
        f"ulimit -u {spec.processes} 2>/dev/null || ulimit -p {spec.processes} 2>/dev/null",  # dash says -p
        'exec "$@"',
    ]
    return ["/bin/sh", "-c", "; ".join(limits), "sh"]


def _note_inner(process: SandboxedProcess, told: bytes) -> None:
    """Hold the namespace's first process by a pidfd: its end means that nothing inside is left."""
    with contextlib.suppress(OSError, ValueError, KeyError):  # it has ended already, or failed to start
        process.inner = os.pidfd_open(json.loads(told)["child-pid"])
        weakref.finalize(process, os.close, process.inner)


_wanted: queue.SimpleQueue[tuple[Callable[[], SandboxedProcess], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
_starter_lock = threading.Lock()
_starter: list[threading.Thread] = []


def _start(command: list[str], **options: Any) -> SandboxedProcess:
    """Start a process from a thread that lives as long as we do: "die with parent" means the thread that
    started it.
    """
    with _starter_lock:
        if not _starter:
            _starter.append(threading.Thread(target=_serve, name="sandbox-starter", daemon=True))
            _starter[0].start()
    answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
    _wanted.put((lambda: SandboxedProcess(command, start_new_session=True, close_fds=True, **options), answer))
    result = answer.get()
    if isinstance(result, BaseException):
        raise result
    started: SandboxedProcess = result
    return started


def _serve() -> None:
    while True:
        start, answer = _wanted.get()
        try:
            answer.put(start())
        except Exception as error:
            answer.put(error)
