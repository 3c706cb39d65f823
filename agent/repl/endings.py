"""What an exit code says about how a REPL ended, in words for a model that has to do better next time."""

from __future__ import annotations

import signal
from contextlib import suppress

_SIGNALS: dict[int, str] = {
    signal.SIGKILL: "killed, as the kernel does when memory runs out",
    signal.SIGSEGV: "it crashed in native code, or its recursion or its data were too deep",
    signal.SIGABRT: "native code gave up",
    signal.SIGXCPU: "a limit of processor time that the cell had set",
}


def ending_of(code: int) -> str:
    """Explain a code as `Popen` gives it (minus the signal) or as a shell does (128 + the signal)."""
    number = -code if code < 0 else code - 128
    if number <= 0:
        return f"exit code {code}: something in the cell ended the process itself, as os._exit does"
    with suppress(ValueError):
        return f"{signal.Signals(number).name}: {_SIGNALS.get(number, 'a signal ended it')}"
    return f"exit code {code}"
