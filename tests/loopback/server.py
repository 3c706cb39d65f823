"""A small real OpenAI-compatible HTTP server for the tests: `python -m tests.loopback.server --behaviour NAME --ledger FILE`.

It listens on 127.0.0.1 only, prints its port, and is the oracle of what was really asked: each request is a line in the ledger when
it arrives, in the kernel's hands before it is worked on, and another when it was answered. The ledger outlives the server, killed
or not; a new one counts on.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.loopback.behaviours import Answer, Behaviour, behaviour, last_text


class Ledger:
    """An append-only file of JSON lines: what arrived, and what was answered."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._lines = read_ledger(path) if path else []
        self._count = sum(line["event"] == "arrived" for line in self._lines)
        self._file = path.open("ab", buffering=0) if path else None

    def arrived(self, request: dict[str, Any], key: str) -> int:
        """Write that a request came; return its number, from 1."""
        text = json.dumps([request.get("model"), request.get("messages")], sort_keys=True)
        line = {
            "hash": hashlib.sha256(text.encode()).hexdigest(),
            "model": request.get("model"),
            "stream": bool(request.get("stream")),
            "format": (request.get("response_format") or {}).get("type"),
            "tools": [tool["function"]["name"] for tool in request.get("tools") or []],
            "key": key,
            "last": last_text(request)[-500:],
        }
        with self._lock:
            self._count += 1
            self._write(event="arrived", n=self._count, **line)
            return self._count

    def answered(self, n: int, status: int) -> None:
        """Write that request `n` was answered; status 0 is a connection that was cut on purpose or by the client."""
        with self._lock:
            self._write(event="answered", n=n, status=status)

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The arrivals, in order."""
        with self._lock:
            return [line for line in self._lines if line["event"] == "arrived"]

    def _write(self, **line: Any) -> None:
        line["at"] = time.time()
        self._lines.append(line)
        if self._file is not None:
            self._file.write(json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Close the file; what arrives after that is still counted."""
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a ledger; a torn last line is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


class Loopback(ThreadingHTTPServer):
    """The server; `api_base` is its address, `ledger` what it saw, `behave` may be changed while it runs."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, behave: Behaviour, ledger: Ledger, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.behave = behave
        self.ledger = ledger

    @property
    def api_base(self) -> str:
        """The address as a task's `api_base`."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet: clients that go away are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # headers and body in one segment: two would wait for each other's acknowledgement
    disable_nagle_algorithm = True
    server: Loopback

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet; the ledger has it all."""

    def do_GET(self) -> None:
        body = {"object": "list", "data": [{"id": "loopback", "object": "model"}]}
        self._send(200, json.dumps(body).encode(), {})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        n = self.server.ledger.arrived(request, self.headers.get("Authorization", "").removeprefix("Bearer "))
        status = 0
        try:
            answer = self.server.behave(request, n)
            time.sleep(answer.delay)
            if answer.cut == "reset":
                self._reset()
            elif request.get("stream") and answer.raw is None:
                self._stream(answer, request, n)
            else:
                self._whole(answer, request, n)
            status = 0 if answer.cut else answer.status
        finally:
            self.server.ledger.answered(n, status)

    def _whole(self, answer: Answer, request: dict[str, Any], n: int) -> None:
        body = (answer.raw if answer.raw is not None else json.dumps(_completion(answer, request, n))).encode()
        self._send(answer.status, body, answer.headers, half=answer.cut == "half")

    def _send(self, status: int, body: bytes, headers: dict[str, str], half: bool = False) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if half else body)
        self.wfile.flush()
        if half:
            self.close_connection = True

    def _stream(self, answer: Answer, request: dict[str, Any], n: int) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = list(_chunks(answer, request, n))
        for event in events[: len(events) // 2] if answer.cut else events:
            data = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        if answer.cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())  # with this linger setting a close is a RST, not a FIN
        self.close_connection = True


def _usage(answer: Answer, request: dict[str, Any]) -> dict[str, int]:
    read = len(json.dumps(request.get("messages"))) // 4
    wrote = len((answer.text or "") + (answer.reasoning or "")) // 4
    return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}


def _head(request: dict[str, Any], n: int, kind: str) -> dict[str, Any]:
    return {"id": f"loopback-{n}", "object": kind, "created": 1, "model": request.get("model") or "loopback"}


def _message(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.reasoning is not None:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"id": f"call_{k}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for k, (name, arguments) in enumerate(answer.calls, 1)
        ]
    return message


def _call_fragments(answer: Answer) -> Iterator[dict[str, Any]]:
    """Give the deltas of the tool calls as providers do: id and name first, then the arguments in pieces, calls interleaved."""
    for at, call in enumerate(_message(answer).get("tool_calls", [])):
        yield {"index": at, **call, "function": {**call["function"], "arguments": ""}}
    pieces = [[text[k : k + 7] for k in range(0, len(text), 7)] for _, text in answer.calls]
    for turn in itertools.zip_longest(*pieces):
        for at, piece in enumerate(turn):
            if piece is not None:
                yield {"index": at, "function": {"arguments": piece}}


def _completion(answer: Answer, request: dict[str, Any], n: int) -> dict[str, Any]:
    body = _head(request, n, "chat.completion")
    body["choices"] = [{"index": 0, "message": _message(answer), "finish_reason": answer.finish}]
    if answer.usage:
        body["usage"] = _usage(answer, request)
    return body


def _chunks(answer: Answer, request: dict[str, Any], n: int) -> Iterator[str]:
    """Give the events of a stream: the reasoning, the text in eight pieces, the end, the usage if it was asked for."""
    head = _head(request, n, "chat.completion.chunk")

    def event(delta: dict[str, Any], finish: str | None = None) -> str:
        return json.dumps({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield event({"role": "assistant", "content": ""})
    if answer.reasoning:
        yield event({"reasoning_content": answer.reasoning})
    for fragment in _call_fragments(answer):
        yield event({"tool_calls": [fragment]})
    text = answer.text or ""
    size = max(1, -(-len(text) // 8))
    for at in range(0, len(text), size):
        yield event({"content": text[at : at + size]})
    yield event({}, answer.finish)
    if answer.usage and (request.get("stream_options") or {}).get("include_usage"):
        yield json.dumps({**head, "choices": [], "usage": _usage(answer, request)})
    yield "[DONE]"


@contextmanager
def loopback(behave: Behaviour | str = "fixed", ledger: Path | None = None) -> Iterator[Loopback]:
    """Run a server in this process on a free port for the length of a `with` block."""
    chosen = behaviour(behave) if isinstance(behave, str) else behave
    server = Loopback(chosen, Ledger(ledger))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        server.ledger.close()


def main() -> None:
    """Run as a process of its own: print the port, then serve until killed."""
    parser = argparse.ArgumentParser(description="an OpenAI-compatible server for tests, on 127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--behaviour", default="fixed", help="a name, or a file.py with a function answer(request, n)")
    parser.add_argument("--ledger", type=Path, default=None)
    given = parser.parse_args()
    server = Loopback(behaviour(given.behaviour), Ledger(given.ledger), given.port)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
