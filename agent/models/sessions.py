"""HTTP connections, one `aiohttp` session per event loop: a connection belongs to the loop that made it and ends with it."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections.abc import AsyncGenerator
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import aiohttp

_IDLE = 4.0  # seconds an unused connection is kept: servers close theirs after five and more, and a race would lose a request
_loaded = threading.Event()


class LoopSessions:
    """The sessions of one owner. Thread-safe; usable again after `close`."""

    def __init__(self) -> None:
        self._open: dict[asyncio.AbstractEventLoop, tuple[aiohttp.ClientSession, AsyncGenerator[None, None]]] = {}
        self._lock = threading.Lock()

    async def get(self) -> aiohttp.ClientSession:
        """Return the running loop's session, made on first use."""
        if not _loaded.is_set():
            await asyncio.to_thread(_load)
        loop = asyncio.get_running_loop()
        with self._lock:
            known = self._open.get(loop)
            if known is not None and not known[0].closed:
                return known[0]
            for ended in [other for other in self._open if other.is_closed()]:  # closed without its generators
                del self._open[ended]
            session = _session()
            keeper = self._keep(loop, session)
            self._open[loop] = session, keeper
        await anext(keeper)
        return session

    def close(self) -> None:
        """Close all connections, each on its loop."""
        with self._lock:
            self._open.clear()  # a keeper that nobody holds is closed by its loop, and closes its session

    async def _keep(
        self, loop: asyncio.AbstractEventLoop, session: aiohttp.ClientSession
    ) -> AsyncGenerator[None, None]:
        """Close a session when its loop ends: a loop closes the asynchronous generators that were begun on it."""
        try:
            yield
        finally:
            with self._lock:
                if self._open.get(loop, (None,))[0] is session:
                    del self._open[loop]
            await session.close()


def _session() -> aiohttp.ClientSession:
    import aiohttp

    # No limit of connections: how many requests are at work at once is the caller's to say.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE, ssl=_trust())
    return aiohttp.ClientSession(connector=connector, trust_env=True, cookie_jar=aiohttp.DummyCookieJar())


def _load() -> None:
    """Import aiohttp away from the loop: it takes a good part of a second, in which the loop has others to serve."""
    importlib.import_module("aiohttp")
    _trust()
    _loaded.set()


@cache
def _trust() -> Any:
    import ssl

    import certifi

    return ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or certifi.where())
