"""What a cell prints, kept within a bound: the head and the tail, and how much was left out between.

The bound holds while the output is made, so a cell that prints ten gigabytes costs the worker two caps of memory.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
import threading

_CHUNK = 1 << 16


class Transcript(io.TextIOBase):
    """A text stream that keeps the first and last `cap // 2` characters."""

    def __init__(self, cap: int) -> None:
        self._half = max(1, cap // 2)
        self._head = ""
        self._tail = ""
        self._total = 0
        self._lock = threading.Lock()

    def writable(self) -> bool:
        """Say yes, as streams do."""
        return True

    def write(self, text: str) -> int:
        """Take text from any thread."""
        with self._lock:
            self._total += len(text)
            room = self._half - len(self._head)
            if room > 0:
                self._head += text[:room]
                rest = text[room:]
            else:
                rest = text
            if rest:
                self._tail = (self._tail + rest)[-self._half :] if len(rest) < self._half else rest[-self._half :]
        return len(text)

    def text(self) -> str:
        """Return what was kept, with a line that says how much was cut."""
        with self._lock:
            cut = self._total - len(self._head) - len(self._tail)
            if cut <= 0:
                return self._head + self._tail
            return f"{self._head}\n… [{cut} of {self._total} characters cut] …\n{self._tail}"


class _ThroughPipe(io.TextIOBase):
    """Python's stdout while a cell runs: through the same pipe as that of its commands, so that the order is theirs."""

    def __init__(self, fd: int, transcript: Transcript) -> None:
        self._fd, self._transcript = fd, transcript

    def writable(self) -> bool:
        """Say yes, as streams do."""
        return True

    def fileno(self) -> int:
        """Return the descriptor that commands write to."""
        return 1

    def write(self, text: str) -> int:
        """Write all of the text; straight into the transcript when the cell has closed the pipe."""
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        try:
            while data:
                data = data[os.write(self._fd, data[:_CHUNK]) :]
        except OSError:
            self._transcript.write(bytes(data).decode("utf-8", "replace"))
        return len(text)


class CapturedOutput:
    """Python's and the process's stdout and stderr, caught in one transcript while a cell runs."""

    def __init__(self) -> None:
        self.transcript = Transcript(1)
        read_end, self._write_end = os.pipe()
        os.dup2(self._write_end, 1)
        os.dup2(self._write_end, 2)
        self._mark = f"\0mark-{os.getpid()}\0".encode()
        self._seen = threading.Event()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may be split over two reads
        threading.Thread(target=self._drain, args=(read_end,), daemon=True).start()

    def begin(self, cap: int) -> None:
        """Start a new transcript of at most `cap` characters."""
        self.transcript = Transcript(cap)
        sys.stdout = sys.stderr = _ThroughPipe(self._write_end, self.transcript)
        for fd in (1, 2):  # an earlier cell may have closed or redirected them
            os.dup2(self._write_end, fd)

    def end(self) -> str:
        """Return the transcript, with all that subprocesses wrote so far."""
        self._seen.clear()
        os.write(self._write_end, self._mark)
        self._seen.wait(2.0)
        return self.transcript.text()

    def _drain(self, fd: int) -> None:
        rest = b""
        while chunk := os.read(fd, _CHUNK):
            data = rest + chunk
            while (at := data.find(self._mark)) >= 0:
                self._take(data[:at])
                data = data[at + len(self._mark) :]
                self._seen.set()
            # a mark may be split over two reads
            keep = len(self._mark) - 1 if b"\0" in data[-len(self._mark) :] else 0
            self._take(data[: len(data) - keep])
            rest = data[len(data) - keep :]

    def _take(self, data: bytes) -> None:
        if data:
            self.transcript.write(self._decoder.decode(data))
