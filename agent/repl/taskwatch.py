"""Ends a REPL that has started more processes than it may: a fork bomb, where the kernel does not hold it.

RLIMIT_NPROC is not enforced for what is root outside of the sandbox. One thread per host looks at the number of tasks on the
whole machine, which costs microseconds, and counts the processes of each REPL's PID namespace only when that has grown.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import suppress
from typing import Protocol

_EVERY = 0.2  # seconds


class Ended(Protocol):
    """A REPL, to the watch."""

    def end_because(self, why: str) -> None:
        """End it, and tell `why`."""


class _Watched:
    """One REPL's namespace, found through a pidfd of its worker."""

    def __init__(self, repl: Ended, handle: int, most: int) -> None:
        self.repl, self.most = weakref.ref(repl), most
        self.namespace = _namespace(_pid_of(handle))


_watched: list[_Watched] = []
_lock = threading.Lock()
_thread: list[threading.Thread] = []


def watch_tasks(repl: Ended, handle: int, most: int) -> None:
    """Let `repl` be ended when more than `most` processes are in the PID namespace of its worker, whose pidfd `handle` is."""
    if os.geteuid() != 0:
        return  # the kernel does it
    with suppress(OSError, ValueError):
        watched = _Watched(repl, handle, most)
        if watched.namespace == _namespace(os.getpid()):
            return  # no namespace of its own: ours would be counted
        with _lock:
            _watched.append(watched)
            if not _thread:
                _thread.append(threading.Thread(target=_watch, name="task-watch", daemon=True))
                _thread[0].start()


def _watch() -> None:
    looked_at = _tasks()
    while True:
        time.sleep(_EVERY)
        with _lock:
            _watched[:] = [watched for watched in _watched if watched.repl() is not None]
            watching = list(_watched)
        now = _tasks()
        looked_at = min(looked_at, now)
        if watching and now > looked_at + min(watched.most for watched in watching) // 4:
            _look(watching)
            looked_at = _tasks()


def _look(watching: list[_Watched]) -> None:
    counts = _processes()
    for watched in watching:
        repl, count = watched.repl(), counts.get(watched.namespace, 0)
        if repl is not None and count > watched.most:
            repl.end_because(f"the cell started more than {watched.most} processes, {count} at once, and was killed")


def _tasks() -> int:
    """Return the number of processes and threads on this machine."""
    with open("/proc/loadavg", "rb") as file:
        return int(file.read().split()[3].split(b"/")[1])


def _processes() -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                namespace = _namespace(int(name))
                counts[namespace] = counts.get(namespace, 0) + 1
    return counts


def _namespace(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


def _pid_of(handle: int) -> int:
    """Return the process of a pidfd; raises OSError or ValueError when there is none."""
    with open(f"/proc/self/fdinfo/{handle}", encoding="ascii") as file:
        fields = dict(line.split(":\t", 1) for line in file.read().splitlines())
    pid = int(fields["Pid"])
    if pid <= 0:
        raise ValueError("it has ended")
    return pid
