"""What a cell can change in the REPL's process, put back after it: the modules, limits and folder the REPL itself stands on.

A cell keeps what is its own to change (its recursion limit, handlers, environment, and a folder that exists). What the process
has lost for good, as a limit that was lowered and locked, raises `RuntimeError`: then only a fresh process helps.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from contextlib import suppress
from typing import Any

_get_limit, _set_limit = resource.getrlimit, resource.setrlimit
_chdir, _getcwd = os.chdir, os.getcwd
_set_depth, _get_depth, _switch = sys.setrecursionlimit, sys.getrecursionlimit, sys.setswitchinterval
_profile, _trace_threads, _profile_threads = sys.setprofile, threading.settrace, threading.setprofile
_RESERVE = 16 << 20  # bytes that a cell cannot have: with none left, not even its MemoryError could be reported
_LIMITS = {
    name: getattr(resource, name)
    for name in (
        "RLIMIT_AS",
        "RLIMIT_CPU",
        "RLIMIT_DATA",
        "RLIMIT_FSIZE",
        "RLIMIT_NOFILE",
        "RLIMIT_NPROC",
        "RLIMIT_STACK",
    )
    if hasattr(resource, name)
}


class ProcessState:
    """The state at the start, before any cell."""

    def __init__(self) -> None:
        self._folder = _getcwd()
        self._loaded, self._modules = sys.modules, dict(sys.modules)
        self._finders: list[tuple[list[Any], list[Any]]] = [
            (places, list(places)) for places in (sys.meta_path, sys.path_hooks, sys.path)
        ]
        self._limits = [(name, number, _get_limit(number)) for name, number in _LIMITS.items()]
        self._reserve: bytes | None = None
        self._depth = self._cell_depth = _get_depth()

    def prepare(self) -> None:
        """Make ready for a cell."""
        with suppress(MemoryError):
            self._reserve = bytes(_RESERVE)
        try:
            _getcwd()
        except OSError:  # an earlier cell removed it
            _chdir(self._folder)
        _set_depth(self._cell_depth)

    def mend(self) -> None:
        """Put back what the REPL needs; raises RuntimeError when it cannot."""
        self._reserve = None
        self._cell_depth = max(_get_depth(), self._depth)
        _set_depth(self._depth)  # or pickling a deep value would overrun the stack
        _switch(0.005)
        for reset in (_profile, _trace_threads, _profile_threads):
            reset(None)
        sys.modules = self._loaded
        for name in self._modules.keys() - self._loaded.keys():
            self._loaded[name] = self._modules[name]
        for places, at_start in self._finders:
            places += [place for place in at_start if place not in places]
        for name, number, before in self._limits:
            if _get_limit(number) != before:
                self._raise_limit(name, number, before)

    def _raise_limit(self, name: str, number: int, before: tuple[int, int]) -> None:
        try:
            _set_limit(number, before)
        except (OSError, ValueError):
            raise RuntimeError(f"the cell lowered {name} of its process, which cannot be raised again") from None
