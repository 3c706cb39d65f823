"""The process from which REPLs are forked: Python with the worker's modules in memory, so that a REPL starts in milliseconds.

Started as `python -m agent.repl.forkserver FD` in a bubblewrap sandbox of its own, where it is root of its user namespace.
For each message on FD it forks an *init*, the first process of a PID namespace: with its end, all that the REPL started ends.
The init forks the worker, which lays a root of its own, becomes an ordinary user and gives up every right before it reads its
first frame. So no code of a model ever runs with a right of the fork server's. The fork server reads nothing but descriptors,
holds no secret, and has one thread, as forking demands.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import os
import random
import resource
import select
import signal
import socket
import sys

import msgspec

from agent.repl import forkserver_root, landlock
from agent.repl.wire import Channel

_NEW_NS, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_PR_SET_DUMPABLE, _CLOSE_RANGE = 4, 436
_DESCRIPTORS = 3  # with each message: the REPL's channel, the line to its init, and the log
_CHANNEL, _LINE = 3, 4  # where the first two are in the worker
_USER = 1000
#: What cells import most: loaded once here, and shared by all REPLs.
_WARM = (
    "agent.context", "asyncio", "collections", "concurrent.futures", "csv", "datetime", "difflib", "functools",
    "glob", "hashlib", "itertools", "json", "math", "pathlib", "random", "re", "shutil", "statistics", "string",
    "subprocess", "tempfile", "textwrap", "typing", "urllib.parse", "uuid",
)  # fmt: skip
_NAME, _TITLE = b"agent.repl.forkserver", b"agent.repl.worker"  # what `ps` shows of the fork server, and of a REPL

_libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.PyDLL(None, use_errno=True)  # calls that keep hold of the interpreter


class Plan(msgspec.Struct, frozen=True):
    """What one REPL may see and use: `mounts` in their order with sources as the fork server sees them; sizes are bytes."""

    mounts: list[tuple[str, ...]]
    cwd: str
    network: bool
    memory_bytes: int
    file_bytes: int
    tmp_bytes: int
    open_files: int
    processes: int


def main() -> None:
    """Fork REPLs until the host hangs up; in a fork, be the REPL."""
    control = socket.socket(fileno=int(sys.argv[1]))
    from agent.repl.worker import Worker

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # an init that ends needs no one to wait for it
    msgspec.convert(msgspec.to_builtins(Plan([], "", False, 0, 0, 0, 0, 0)), Plan)  # what it prepares is there for all
    landlock.seccomp_program(network=True)
    if _serve(control):
        Worker(Channel(socket.socket(fileno=_CHANNEL))).serve()


def _warm_up(control: socket.socket, left: list[str]) -> None:
    """Import what is `left` until a message waits: nobody waits for an import."""
    if not left:
        return
    while left and not select.select([control], [], [], 0)[0]:
        importlib.import_module(left.pop(0))
    if not left:
        gc.collect()
    gc.freeze()  # or the collector of each fork would touch, and so copy, all of it


def _serve(control: socket.socket) -> bool:
    """Fork for each message; False when the host hung up, True in a worker."""
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    title = _find_title()
    left = list(_WARM)
    while True:
        _warm_up(control, left)
        _, fds, _, _ = socket.recv_fds(control, 1, _DESCRIPTORS)
        if len(fds) != _DESCRIPTORS:
            return False
        _checked(_libc.unshare(_NEW_PID), "a PID namespace")  # for the next child
        if (child := _fork()) == 0:
            if title:
                ctypes.memmove(title, _TITLE.ljust(len(_NAME)), len(_NAME))
            _init(fds)
            control.detach()
            _work(fds)
            return True
        if child < 0:  # its line hangs up, which tells the host
            print(f"fork server: {os.strerror(ctypes.get_errno())}", file=sys.stderr, flush=True)
        _checked(_libc.setns(home, _NEW_PID), "back to our PID namespace")
        for fd in fds:
            os.close(fd)


def _init(fds: list[int]) -> None:
    """Be the first process of a REPL's namespace: fork the worker, then only reap; returns in the worker alone."""
    _, line, _ = fds
    os.write(line, b"+")  # the kernel adds who we are
    os.setsid()
    _libc.signal(signal.SIGCHLD, 0)  # the default: the worker is waited for
    if (worker := _fork()) == 0:
        return
    try:
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # the worker is the same user: it may not look into us
        landlock.give_up_capabilities()
        _close(0, line - 1)
        _close(line + 1)
        os.write(line, b"%d" % _wait_for(worker))
    finally:
        os._exit(0)  # and with us all that is left


def _fork() -> int:
    """Fork without what `os.fork` does for processes of many threads, which costs a millisecond; -1 when it fails."""
    return int(_python.fork())


def _wait_for(worker: int) -> int:
    """Reap whatever ends, until the worker does; returns its exit code, or minus its signal."""
    while True:
        pid, status = os.wait()
        if pid == worker:
            return os.waitstatus_to_exitcode(status)


def _work(fds: list[int]) -> None:
    """Become a worker that holds nothing but its own channel, and is confined as the plan on its line says."""
    channel, line, log = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in fds)
    for source, fd in ((log, 1), (log, 2), (channel, _CHANNEL), (line, _LINE)):
        os.dup2(source, fd, inheritable=fd < _CHANNEL)
    _close(_LINE + 1)
    random.seed()  # of all that `os.fork` would do, the one thing that a process of one thread needs
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.socket(fileno=_LINE) as end:
        host = Channel(end)
        try:
            frame = host.receive()
            if frame is None:
                os._exit(0)
            _confine(msgspec.convert(frame["plan"], Plan))
        except (OSError, ValueError, msgspec.ValidationError) as error:
            host.send(op="failed", why=str(error))
            os._exit(1)
        host.send(op="up")


def _close(first: int, last: int = 0xFFFFFFFF) -> None:
    if first <= last:
        _checked(_libc.syscall(_CLOSE_RANGE, ctypes.c_uint(first), ctypes.c_uint(last), 0), "close_range")


def _confine(plan: Plan) -> None:
    """Take the plan's view and limits, and give up every right; raises OSError."""
    _checked(_libc.unshare(_NEW_NS | _NEW_IPC | (0 if plan.network else _NEW_NET)), "namespaces")
    if not plan.network:
        forkserver_root.raise_loopback()
    ourselves = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # gone from the new root
    forkserver_root.enter(plan.mounts, plan.tmp_bytes)
    _become_user(ourselves)
    os.close(ourselves)
    os.chdir(plan.cwd)
    os.environ["PWD"] = plan.cwd
    landlock.give_up_capabilities()
    landlock.filter_calls(network=True)  # the namespace has no network; this is for the rest
    _limit(plan)


def _limit(plan: Plan) -> None:
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, plan.memory_bytes),
        (resource.RLIMIT_FSIZE, plan.file_bytes),
        (resource.RLIMIT_NOFILE, plan.open_files),
        (resource.RLIMIT_NPROC, plan.processes),
    ):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _become_user(ourselves: int) -> None:
    """Enter a user namespace below the one that owns the mounts: no right over them can be had in it."""
    _checked(_libc.unshare(_NEW_USER), "a user namespace")
    for name, text in (("uid_map", f"{_USER} 0 1"), ("setgroups", "deny"), ("gid_map", f"{_USER} 0 1")):
        fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=ourselves)
        os.write(fd, text.encode())
        os.close(fd)


def _find_title() -> int:
    """Give the address of the fork server's name in the memory that holds our arguments, 0 when it is not there."""
    with open("/proc/self/stat", "rb") as stat:
        start, end = map(int, stat.read().rpartition(b")")[2].split()[45:47])
    at = ctypes.string_at(start, end - start).find(_NAME)
    return start + at if at >= 0 else 0


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
