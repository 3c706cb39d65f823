"""Length-prefixed msgpack between host and REPL: plain data only, never pickle.

A frame is a 4-byte big-endian length and a msgpack map with the key `op`. The same code runs on both sides.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Any

import msgspec

MAX_FRAME = 1 << 31


class Channel:
    """One end of the socket pair. `send` may be called from any thread; `receive` from one."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()

    def send(self, **frame: Any) -> None:
        """Send one frame; raises OSError when the other side is gone."""
        body = msgspec.msgpack.encode(frame)
        if len(body) >= MAX_FRAME:
            raise ValueError(f"a message of {len(body)} bytes is too large; pass a slice of the context instead")
        with self._lock:
            self._socket.sendall(struct.pack(">I", len(body)))
            self._socket.sendall(body)

    def receive(self) -> dict[str, Any] | None:
        """Wait for the next frame; None when the other side is gone."""
        head = self._exactly(4)
        if head is None:
            return None
        body = self._exactly(struct.unpack(">I", head)[0])
        return None if body is None else msgspec.msgpack.decode(body)

    def close(self) -> None:
        """Close this end; the other side's `receive` returns None."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _exactly(self, size: int) -> bytearray | None:
        data = bytearray(size)
        view, got = memoryview(data), 0
        while got < size:
            try:
                read = self._socket.recv_into(view[got:])
            except OSError:
                return None
            if read == 0:
                return None
            got += read
        return data
