"""What a cell prints, kept within a bound: the head and the tail, and how much was left out between.

The bound holds while the output is made, so a cell that prints ten gigabytes costs the worker two caps of memory. Each cell has
a pipe of its own: what a process of an earlier cell still writes is read, so that it can go on, and not shown.
"""

from __future__ import annotations

import codecs
import io
import selectors
import sys
from _thread import allocate_lock, start_new_thread
from contextlib import suppress
from os import close, dup2, getpid, pipe, read, write

_CHUNK = 1 << 16


class Transcript(io.TextIOBase):
    """A text stream that keeps the first and last `cap // 2` characters."""

    def __init__(self, cap: int) -> None:
        self._half = max(1, cap // 2)
        self._head = ""
        self._tail = ""
        self._total = 0
        self._lock = allocate_lock()

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


class _BytesThroughPipe(io.RawIOBase):
    """What `sys.stdout.buffer` is while a cell runs."""

    def __init__(self, fd: int, transcript: Transcript) -> None:
        self._fd, self._transcript = fd, transcript

    def writable(self) -> bool:
        """Say yes, as streams do."""
        return True

    def fileno(self) -> int:
        """Return the descriptor that commands write to."""
        return 1

    def write(self, data: object) -> int:
        """Write all of the bytes; straight into the transcript when the cell has closed the pipe."""
        left = memoryview(data).cast("B")  # type: ignore[arg-type]
        size = len(left)
        try:
            while left:
                left = left[write(self._fd, left[:_CHUNK]) :]
        except OSError:
            self._transcript.write(bytes(left).decode("utf-8", "replace"))
        return size


class _ThroughPipe(io.TextIOBase):
    """Python's stdout while a cell runs: through the same pipe as that of its commands, so that the order is theirs."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, fd: int, transcript: Transcript) -> None:
        self.buffer = _BytesThroughPipe(fd, transcript)

    def writable(self) -> bool:
        """Say yes, as streams do."""
        return True

    def fileno(self) -> int:
        """Return the descriptor that commands write to."""
        return 1

    def write(self, text: str) -> int:
        """Write all of the text, piece by piece: a copy of a gigabyte could be one too many."""
        for at in range(0, len(text), _CHUNK):
            self.buffer.write(text[at : at + _CHUNK].encode("utf-8", "backslashreplace"))
        return len(text)


class _Pipe:
    """The pipe of one cell, and where what comes out of it goes."""

    def __init__(self, cap: int) -> None:
        self.transcript = Transcript(cap)
        self.read_end, self.write_end = pipe()
        self.mark = f"\0mark-{getpid()}-{self.read_end}\0".encode()
        self.drained = allocate_lock()  # held until the mark has come through
        self.drained.acquire()
        self._rest = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may be split over two reads

    def take(self, chunk: bytes) -> None:
        """Put bytes into the transcript, up to the mark that ends the cell's."""
        data = self._rest + chunk
        if (at := data.find(self.mark)) >= 0:
            self._show(data[:at])
            data = data[at + len(self.mark) :]
            if self.drained.locked():
                self.drained.release()
        keep = len(self.mark) - 1 if b"\0" in data[-len(self.mark) :] else 0  # a mark may be split over two reads
        self._show(data[: len(data) - keep])
        self._rest = data[len(data) - keep :]

    def _show(self, data: bytes) -> None:
        if data:
            self.transcript.write(self._decoder.decode(data))


class CapturedOutput:
    """Python's and the process's stdout and stderr, caught in one transcript while a cell runs."""

    def __init__(self) -> None:
        self._poll = selectors.DefaultSelector()
        self._pipe = self._open(1)
        start_new_thread(self._drain, ())

    def begin(self, cap: int) -> None:
        """Start a new transcript of at most `cap` characters."""
        last = self._pipe
        with suppress(OSError):
            for fd in (1, 2):  # closed by an earlier cell, they would be taken for the ends of the new pipe
                dup2(last.write_end, fd)
        try:
            self._pipe = self._open(cap)
        except OSError:  # the cells hold every descriptor there is
            last.transcript = Transcript(cap)
        else:
            close(last.write_end)
        self.stream = sys.stdout = sys.stderr = _ThroughPipe(self._pipe.write_end, self._pipe.transcript)

    def end(self) -> str:
        """Return the transcript, with all that subprocesses wrote so far."""
        write(self._pipe.write_end, self._pipe.mark)
        self._pipe.drained.acquire(timeout=2.0)
        return self._pipe.transcript.text()

    def _open(self, cap: int) -> _Pipe:
        """Make a pipe and let fds 1 and 2 lead into it, also when an earlier cell has closed them."""
        fresh = _Pipe(cap)
        try:
            for fd in (1, 2):
                dup2(fresh.write_end, fd)
        except OSError:
            close(fresh.read_end)
            close(fresh.write_end)
            raise
        self._poll.register(fresh.read_end, selectors.EVENT_READ, fresh)
        return fresh

    def _drain(self) -> None:
        while True:
            for key, _ in self._poll.select():
                try:
                    chunk = read(key.fd, _CHUNK)
                except OSError:  # a cell closed it
                    chunk = b""
                if chunk:
                    with suppress(MemoryError):  # the cell has it all
                        key.data.take(chunk)
                else:
                    self._poll.unregister(key.fd)
                    close(key.fd)
