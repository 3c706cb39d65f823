"""Where runs are: the state folder with default workspaces and a small index, so that any folder can list them all.

Everything that a run needs is in its workspace; the index only says where workspaces are. A lost index loses nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec

from agent.errors import UsageError


class IndexEntry(msgspec.Struct, frozen=True):
    """Where a run lives."""

    run: str
    name: str
    workspace: str


def state_dir() -> Path:
    """Return `$RLM_AGENT_HOME`, else the user's state folder for rlm-agent."""
    if named := os.environ.get("RLM_AGENT_HOME"):
        return Path(named).expanduser().absolute()
    from platformdirs import user_state_path

    return user_state_path("rlm-agent", appauthor=False)


def document_cache() -> Path:
    """Return where the text of PDFs and the like is kept, by the hash of the file it came from."""
    return state_dir() / "documents"


def default_workspace(name: str) -> Path:
    """Return the workspace of a task that names none."""
    return state_dir() / "workspaces" / name


def remember(entry: IndexEntry) -> None:
    """Put a run into the index."""
    folder = state_dir() / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{entry.run}.{os.getpid()}"
    fresh.write_text(json.dumps(msgspec.structs.asdict(entry)))
    fresh.rename(folder / f"{entry.run}.json")
    for other in known_runs():
        if other.workspace == entry.workspace and other.run != entry.run:
            (folder / f"{other.run}.json").unlink(missing_ok=True)  # its workspace was removed and made anew


def known_runs() -> list[IndexEntry]:
    """Return the runs whose workspace is still there, oldest first; an unreadable entry is passed over."""
    found = []
    for file in sorted((state_dir() / "runs").glob("*.json")):
        try:
            entry = msgspec.json.decode(file.read_bytes(), type=IndexEntry)
        except (OSError, msgspec.MsgspecError):
            continue
        if is_workspace(Path(entry.workspace)):
            found.append(entry)
    return found


def is_workspace(path: Path) -> bool:
    """Say whether a run has begun in this folder."""
    return (path / ".rlm-agent" / "journal.db").exists()


def find_workspace(run: str | None) -> Path:
    """Return the workspace that RUN means: a folder, an id (or its beginning), a name; left out, this folder's or the only one.

    Raises `UsageError` that lists what there is.
    """
    if run is None:
        here = Path.cwd()
        for folder in (here, *here.parents):
            if is_workspace(folder):
                return folder
        entries = known_runs()
    else:
        if is_workspace(Path(run)):
            return Path(run).absolute()
        entries = [e for e in known_runs() if e.name == run or e.run.startswith(run.upper())]
    if len(entries) == 1:
        return Path(entries[0].workspace)
    listed = "\n".join(f"  {e.run}  {e.name}  {e.workspace}" for e in entries or known_runs())
    if entries:
        raise UsageError("which run? name its id or its workspace:\n" + listed)
    asked = f"no run {run!r}" if run else "no run here"
    raise UsageError(
        asked + (f"; there are:\n{listed}" if listed else ""), "begin one: rlm-agent start --task task.yaml"
    )
