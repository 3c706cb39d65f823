"""Where the host's time goes while a bench runs: all its threads sampled, each stack weighed with the CPU time it used since.

A sampler beside the work distorts it less than a hook at every call, and CPU time as the weight leaves every wait out by
itself. It can't see inside of the REPL's process.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

_EVERY = 0.002  # seconds


class Samples:
    """Seconds of CPU by function: at work itself, and together with what it calls."""

    def __init__(self) -> None:
        self.own: Counter[str] = Counter()
        self.whole: Counter[str] = Counter()
        self._used: dict[int, int] = {}
        for thread in threading.enumerate():
            self._spent_since(thread.native_id or 0)

    def take(self) -> None:
        """Sample all threads but the caller's."""
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if thread is threading.current_thread() or thread.ident not in frames or thread.native_id is None:
                continue
            spent = self._spent_since(thread.native_id)
            if spent:
                stack = [_place(frame) for frame in _stack(frames[thread.ident])]
                self.own[stack[0]] += spent
                for place in set(stack):
                    self.whole[place] += spent

    def report(self, lines: int = 15) -> str:
        """Return the functions that used most, in seconds of CPU."""
        parts = []
        for title, counter in (("seconds of CPU, by itself", self.own), ("with what it calls", self.whole)):
            parts += [title, *(f"{spent / 1e9:8.3f}  {place}" for place, spent in counter.most_common(lines))]
        return "\n".join([f"{sum(self.own.values()) / 1e9:.2f} s of CPU in all threads of the host", *parts])

    def _spent_since(self, native: int) -> int:
        with suppress(OSError):  # the thread ended
            now = int(Path(f"/proc/self/task/{native}/schedstat").read_text().split()[0])
            before = self._used.get(native, 0)
            self._used[native] = now
            return max(0, now - before)
        return 0


@contextmanager
def sampled() -> Iterator[Samples]:
    """Sample the process for the time of the block."""
    samples, end, interval = Samples(), threading.Event(), sys.getswitchinterval()
    sys.setswitchinterval(_EVERY / 4)

    def watch() -> None:
        while not end.is_set():
            samples.take()
            time.sleep(_EVERY)

    thread = threading.Thread(target=watch, name="sampler", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        end.set()
        thread.join()
        sys.setswitchinterval(interval)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{'/'.join(Path(code.co_filename).parts[-2:])}:{code.co_firstlineno} {code.co_qualname}"
