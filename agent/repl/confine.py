"""The process between host and REPL where no pid namespace holds the tree together (Landlock, or no
sandbox).

It confines a child, hands it its program, and stays behind as the reaper of every descendant: when the
child ends, when it is told to (SIGTERM) or when the host dies, it ends only after the whole tree is dead
and the child's temporary folder is gone. Standard library only: it is started with `-I -S`, so that nothing
of the workspace can get in.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
from typing import Any

from agent.repl import landlock

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
FAILED = 125


class _Told(Exception):
    """SIGTERM came: the host wants the tree to end, or has died."""


def main() -> None:
    """Run `sys.argv[2:]` as the JSON in `sys.argv[1]` allows; exit with its code, or 128 + its signal."""
    plan, command = json.loads(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    signal.signal(signal.SIGTERM, _tell)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    code = FAILED
    try:
        if os.getppid() == plan["host"]:  # it may have died before the line above
            code = _supervise(plan, command)
    except _Told:
        code = 128 + signal.SIGKILL
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_descendants()
        shutil.rmtree(plan["temp"], ignore_errors=True)
    os._exit(code)


def _supervise(plan: dict[str, Any], command: list[str]) -> int:
    child = os.fork()
    if child == 0:
        _become(plan, command)
    for fd in plan["fds"]:  # or the host would never see the child hang up
        os.close(fd)
    for fd in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    while True:
        pid, status = os.wait()
        if pid == child:
            ended = os.waitstatus_to_exitcode(status)
            return ended if ended >= 0 else 128 - ended


def _become(plan: dict[str, Any], command: list[str]) -> None:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        if plan["landlock"]:
            landlock.drop_capabilities()
            landlock.restrict(plan["readable"], plan["writable"], network=plan["network"])
            landlock.filter_calls(network=plan["network"])
        os.execvpe(command[0], command, os.environ)
    except OSError as error:
        print(f"sandbox: {command[0]}: {error}", file=sys.stderr, flush=True)
    os._exit(FAILED)


def _end_descendants() -> None:
    """Kill until nothing is left: every orphan of the tree becomes our own child."""
    me = os.getpid()
    while True:
        for pid in _children(me):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def _children(parent: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as stat:
            if int(stat.read().rpartition(b")")[2].split()[1]) == parent:
                found.append(int(name))
    return found


def _tell(_number: int, _frame: object) -> None:
    raise _Told
