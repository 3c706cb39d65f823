"""A workspace that this process alone works in: its lock, its journal under a fresh lease, and its repository."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from state.journal import Journal
from state.lease import RunLock, take_lease
from workspaces.workspace import Workspace


@contextmanager
def held(path: Path) -> Iterator[tuple[Journal, Workspace]]:
    """Hold a run's workspace for the time of the block; what a killed process left locked is free then.

    Raises `RunHeld` when another process works on it.
    """
    lock = RunLock(path / ".rlm-agent" / "lock")
    try:
        journal = Journal(path / ".rlm-agent" / "journal.db")
        try:
            with Workspace.open(path) as workspace:
                take_lease(journal, time.time)
                workspace.clear_stale_locks()
                yield journal, workspace
        finally:
            journal.close()
    finally:
        lock.release()
