"""SIGINT as the way to stop a cell: it raises KeyboardInterrupt in the cell and never in the REPL's own code.

The first one raises where the cell stands. A cell that swallows it, as a loop around a bare `except:` does, is stopped by the
next ones: they also trace its frames, so that the very line which catches the exception raises it again.
"""

from __future__ import annotations

import signal
from _thread import get_ident
from collections.abc import Callable
from sys import _getframe as _frame
from sys import settrace
from types import FrameType
from typing import Any

_on_signal, _signal, _mask, _timer = signal.signal, signal.Signals, signal.pthread_sigmask, signal.setitimer
_INT, _IGNORE, _DEFAULT, _SETMASK = signal.SIGINT, signal.SIG_IGN, signal.SIG_DFL, signal.SIG_SETMASK
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_NEAREST = 500  # frames in which an exception is caught; a recursion may have made millions
RUNS_CELL = "run_block"  # the function below which all is the cell's doing, its event loop included
#: Their default would end the process: a cell that sends them to itself, or sets an alarm, is told instead.
_FATAL = (
    signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip


class Interrupts:
    """Opens and closes the main thread to signals; `exit_process` ends it when one comes outside of a cell."""

    def __init__(self, exit_process: Callable[[int], Any]) -> None:
        self._open, self._count, self._exit = False, 0, exit_process
        self._main, self._held, self._came = get_ident(), False, False
        _on_signal(_INT, _IGNORE)
        for number in _FATAL:
            _on_signal(number, self._other)

    def open(self) -> None:
        """Let signals through, whatever an earlier cell did to them."""
        self._count, self._held, self._came = 0, False, False
        _mask(_SETMASK, ())
        _on_signal(_INT, self._interrupt)
        self._open = True

    def hold(self) -> None:
        """Let none through to the main thread for a moment: half a frame on the channel could not be taken back."""
        if get_ident() == self._main:
            self._held = True

    def release(self) -> None:
        """Raise now what came in the meantime."""
        if get_ident() != self._main:
            return
        self._held = False
        if self._came:
            self._came = False
            raise KeyboardInterrupt

    def close(self) -> None:
        """Let none through, and stop the cell's timers and traces."""
        while True:
            try:
                self._open = False
                settrace(None)
                _on_signal(_INT, _IGNORE)
                for timer in _TIMERS:
                    _timer(timer, 0)
                return
            except KeyboardInterrupt:  # it came while the door was being shut
                pass

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        if not self._open:
            return
        if self._held:
            self._came = True
            return
        self._count += 1
        if self._count > 1:
            if not _in_cell(frame):
                return  # the cell is over, and is being reported
            _trace(frame)
        raise KeyboardInterrupt

    def _other(self, number: int, frame: FrameType | None) -> None:
        if self._open and not self._held and _in_cell(frame):
            raise InterruptedError(f"the signal {_signal(number).name} reached the cell, which has no handler for it")
        if number in (signal.SIGTERM, signal.SIGHUP):
            self._exit(128 + number)


class _Insisting(KeyboardInterrupt):
    """Raised by a trace. Python takes off a trace that raises; whoever swallows this puts it on again."""

    def __del__(self) -> None:
        frame = _frame()
        if _in_cell(frame):
            _trace(frame)


_Insisting.__name__ = _Insisting.__qualname__ = "KeyboardInterrupt"
_Insisting.__module__ = "builtins"


def _trace(frame: FrameType | None) -> None:
    """Make the next line of any of the cell's frames raise."""
    settrace(_raise)
    for _ in range(_NEAREST):
        if frame is None:
            return
        frame.f_trace = _raise
        frame = frame.f_back


def _raise(frame: FrameType, event: str, _argument: Any) -> Any:
    if event == "line" and frame.f_code.co_filename.startswith("<step "):
        raise _Insisting
    return _raise


def _in_cell(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<step ") or frame.f_code.co_name == RUNS_CELL:
            return True
        frame = frame.f_back
    return False
