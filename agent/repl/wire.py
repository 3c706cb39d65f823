"""Length-prefixed msgpack between host and REPL: plain data only, never pickle.

A frame is a 4-byte big-endian length and a msgpack map with the key `op`. The same code runs on both sides. Text is made
fit for UTF-8 on the way (a file name that is not shows as `\\udcff`), and what is no frame raises `NoFrame`: a cell can
write to its end of the socket, so the host must outlive any bytes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from struct import pack, unpack
from typing import Any

import msgspec
from msgspec.msgpack import decode, encode

MAX_FRAME = 1 << 31
_PIECE = 1 << 24


class NoFrame(ValueError):
    """The other side sent bytes that are not a frame."""


class Channel:
    """One end of the socket pair. `send` may be called from any thread; `receive` from one.

    What a cell may replace in `socket`, `struct` or `msgspec` is not looked up again once the channel is open.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sendall, self._recv_into = sock.sendall, sock.recv_into
        self._lock = threading.Lock()
        self.closed = False

    def give_up_sending_after(self, seconds: float) -> None:
        """Let `send` raise OSError when the other side reads nothing for so long."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, pack("@ll", int(seconds), 0))

    def send_process(self) -> None:
        """Hand over a handle of this process: the first thing that a REPL sends."""
        try:
            handle = os.pidfd_open(os.getpid())
        except (AttributeError, OSError):  # a system without them
            self._sendall(b"-")
            return
        try:
            socket.send_fds(self._socket, [b"+"], [handle])
        finally:
            os.close(handle)

    def receive_process(self) -> int | None:
        """Take the handle (a pidfd) that the other side sends first; None when it has none or is gone."""
        try:
            _, handles, _, _ = socket.recv_fds(self._socket, 1, 1)
        except OSError:
            return None
        return handles[0] if handles else None

    def send(self, **frame: Any) -> None:
        """Send one frame; raises OSError when the other side is gone, ValueError when it is too large."""
        try:
            body = encode(frame)
        except UnicodeEncodeError:
            body = encode(_fit(frame))
        if len(body) >= MAX_FRAME:
            raise ValueError(f"a message of {len(body)} bytes is too large; pass a slice of the context instead")
        with self._lock:
            self._sendall(pack(">I", len(body)))
            self._sendall(body)

    def receive(self) -> dict[str, Any] | None:
        """Wait for the next frame; None when the other side is gone. Raises `NoFrame`."""
        head = self._exactly(4)
        if head is None:
            return None
        size = unpack(">I", head)[0]
        if size >= MAX_FRAME:
            raise NoFrame(f"a length of {size} bytes")
        body = self._exactly(size)
        if body is None:
            return None
        try:
            frame = decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise NoFrame(str(error)) from error
        if not isinstance(frame, dict) or not isinstance(frame.get("op"), str):
            raise NoFrame("no map with an op")
        return frame

    def close(self) -> None:
        """Close this end; the other side's `receive` returns None."""
        self.closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _exactly(self, size: int) -> bytearray | None:
        """Read `size` bytes; memory is taken as they come, so a made-up length costs nothing."""
        data, got = bytearray(min(size, _PIECE)), 0
        while got < size:
            if got == len(data):
                data.extend(bytes(min(size - got, max(_PIECE, got))))
            with memoryview(data) as view:
                try:
                    read = self._recv_into(view[got:])
                except OSError:
                    return None
            if read == 0:
                return None
            got += read
        return data


def _fit(value: Any) -> Any:
    """Return plain data with each lone surrogate written out."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_fit(key): _fit(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fit(item) for item in value]
    return value
