"""What a person says to a run from another process: a file a message, until the journal has it.

Only the daemon writes to the journal, so `post` leaves the message in `.rlm-agent/inbox`, durably and whole; the daemon takes it
from there into the transaction that plans a step (`hearing.py`) or answers a question (`questions.py`).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from ulid import ULID

from agent.errors import UsageError
from workspaces.locks import sync_path

MAX_BYTES = 65_536
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Message(msgspec.Struct, frozen=True):
    """What was said, and when (Unix seconds)."""

    id: str
    text: str
    at: float


def post(workspace: Path, text: str) -> str:
    """Leave a message for the run in this workspace and return its id; it is on disk when this returns.

    Raises `UsageError` for one that is empty or too long.
    """
    if not text.strip():
        raise UsageError("there is nothing to say", 'rlm-agent say "use metres, not feet"')
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise UsageError(
            f"a message has at most {MAX_BYTES // 1024} kB", "put the text into a file in the workspace and name it"
        )
    folder = workspace / ".rlm-agent" / "inbox"
    folder.mkdir(exist_ok=True)
    message = Message(str(ULID()), text, time.time())
    fresh = folder / f".{message.id}"
    with fresh.open("xb") as file:
        file.write(msgspec.json.encode(message))
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(folder / f"{message.id}.json")
    for place in (folder, folder.parent):
        sync_path(place)
    return message.id


def waiting(workspace: Path) -> list[Message]:
    """Return the messages that wait, oldest first; a file that is none is put aside as `.broken`."""
    folder = workspace / ".rlm-agent" / "inbox"
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        try:
            with open(os.open(folder / name, _READ), "rb") as file:
                found.append(msgspec.json.decode(file.read(4 * MAX_BYTES), type=Message))
        except (OSError, msgspec.MsgspecError):
            with suppress(FileNotFoundError):
                (folder / name).rename(folder / f"{name}.broken")
    return sorted(found, key=lambda message: (message.at, message.id))


def taken(workspace: Path, ids: list[str]) -> None:
    """Delete messages that the journal has."""
    for message in ids:
        with suppress(FileNotFoundError):
            (workspace / ".rlm-agent" / "inbox" / f"{message}.json").unlink()
