"""The right to run a run: an flock held for life, and a lease row whose epoch fences off stale writers.

A process is identified by (pid, start time, boot id), so a reused pid is never taken for the owner. The lock file is one
of its own, never the database: closing any descriptor of a database drops SQLite's locks on it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from sqlalchemy import Connection, insert, select, update

from state import schema
from state.errors import RunHeld
from state.journal import Journal


class Owner(msgspec.Struct, frozen=True):
    """Who holds or held a run."""

    epoch: int
    pid: int
    started: str
    boot: str
    taken_at: float

    def alive(self) -> bool:
        """Say whether exactly this process still exists."""
        return self.boot == boot_id() and self.started == process_started(self.pid)


def boot_id() -> str:
    """Return the kernel's id of this boot, or an empty string where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_started(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot, as the kernel tells it; empty when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


class RunLock:
    """The exclusive flock on `<workspace>/.rlm-agent/lock`, held until `release` or the process's end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise RunHeld(
                f"{path.parent.parent}: another process is working on this run",
                "see `rlm-agent status`; stop it with `rlm-agent stop`",
            ) from error

    def release(self) -> None:
        """Let another process have the run."""
        os.close(self._fd)


def take_lease(journal: Journal, now: Callable[[], float]) -> Owner:
    """Write this process into the lease row under the next epoch and fence all later writes with it.

    The caller must hold the `RunLock`.
    """
    pid = os.getpid()

    def take(connection: Connection) -> Owner:
        before = connection.execute(select(schema.lease.c.epoch)).scalar()
        owner = Owner((before or 0) + 1, pid, process_started(pid), boot_id(), now())
        row = {"id": 1, **msgspec.structs.asdict(owner)}
        connection.execute(insert(schema.lease).values(row) if before is None else update(schema.lease).values(row))
        return owner

    owner = journal.write(take)
    journal.epoch = owner.epoch
    return owner


def read_owner(connection: Connection) -> Owner | None:
    """Return the last owner, alive or not; None when the run was never started."""
    row = connection.execute(select(schema.lease)).mappings().first()
    return None if row is None else Owner(**{key: row[key] for key in Owner.__struct_fields__})
