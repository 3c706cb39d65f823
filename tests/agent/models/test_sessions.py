"""Connections to hosted models belong to an event loop, and end with it."""

from __future__ import annotations

import contextlib
import os
import threading

import pytest

from agent.models.base import Message, ModelRequest, ModelSpec, complete
from agent.models.litellm_model import LitellmModel, load_litellm
from tests.loopback.behaviours import behaviour
from tests.loopback.server import loopback

REQUEST = ModelRequest((Message("system", "Be brief."), Message("user", "ping")), max_tokens=50, timeout=10)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydantic", "ignore::UserWarning:litellm")


def test_connections_end_with_their_loop() -> None:
    """Each run has a loop of its own; litellm alone would keep a connection of each for an hour."""
    load_litellm()
    with loopback() as server:
        server.behave = behaviour("fixed:hi")
        model = LitellmModel(ModelSpec("openai/loopback-1", api_base=server.api_base))
        complete(model, REQUEST)
        sockets = _sockets()
        for _ in range(3):
            complete(model, REQUEST)
        waited = threading.Event()
        for _ in range(500):  # the server's ends are closed a moment later
            if _sockets() <= sockets:
                break
            waited.wait(0.01)
        assert _sockets() <= sockets


def _sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found
