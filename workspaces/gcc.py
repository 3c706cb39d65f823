"""`.GCC`: the roadmap, and for each branch its commits, its log and its metadata, all derived from the
journal's records.

The invariant: the files are a function of the records (and of the keys that people add to metadata.yaml), and
bringing them up to date costs what is new. So they can be lost, torn or edited, and are made again. Reading
them is in `recall.py`.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workspaces.entries import CommitRecord, LogRecord, render_commit_entry, render_log_entry, render_main
from workspaces.errors import WorkspaceError
from workspaces.ledger import put, write_ledger
from workspaces.recall import (
    BRANCHES,
    MAIN,
    context_branch,
    context_commit,
    context_log,
    context_metadata,
    context_overview,
)
from workspaces.shared import keep_kind, make_folder, read_text

__all__ = [
    "BRANCHES",
    "MAIN",
    "CommitRecord",
    "LogRecord",
    "check_branch_name",
    "context_branch",
    "context_commit",
    "context_log",
    "context_metadata",
    "context_overview",
    "make_branches_folder",
    "read_roadmap",
    "render_commit_entry",
    "render_log_entry",
    "render_main",
    "write_branch_files",
    "write_log",
]

_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")

CommitsAfter = Callable[[int], Sequence[CommitRecord]]
LogsAfter = Callable[[int], Sequence[LogRecord]]


def check_branch_name(branch: str) -> None:
    """Raise WorkspaceError when a name can't be both a git branch and a folder."""
    if not _BRANCH.fullmatch(branch) or ".." in branch or re.search(r"(\.lock|\.)(/|$)", branch) or len(branch) > 100:
        hint = "use letters, digits, dots, dashes and underscores, at most 100"
        raise WorkspaceError(f"{branch!r} is no name for a branch", hint, "usage")


def read_roadmap(ws_path: Path) -> str:
    """Return `.GCC/main.md`, or an empty string when there is no ordinary file of that name."""
    return read_text(ws_path, MAIN) or ""


def make_branches_folder(ws_path: Path) -> Path:
    """Return the folder of the branches' files, made where missing."""
    return make_folder(ws_path, BRANCHES)


def write_branch_files(
    ws_path: Path,
    branch: str,
    purpose: str,
    commits: Sequence[CommitRecord] | CommitsAfter,
    logs: Sequence[LogRecord] | LogsAfter,
    metadata: Mapping[str, Any],
) -> None:
    """Bring commit.md, log.md and metadata.yaml of a branch to what the records say, appending where they only grew.

    `commits` and `logs` are complete and in order, or functions that return the records behind a given number.
    """
    write_log(ws_path, branch, logs)
    folder = ws_path / BRANCHES / branch
    lines = " ".join(purpose.split()) or "(none given)"
    commit_head = f"# Commits of branch {branch}\n\n**Branch Purpose**: {lines}\n\n"
    made = commits if callable(commits) else lambda number: [c for c in commits if c.seq > number]
    write_ledger(folder, "commit", commit_head, lambda n: ((c.seq, render_commit_entry(c)) for c in made(n)))
    if metadata:
        _write_metadata(folder / "metadata.yaml", metadata)


def write_log(ws_path: Path, branch: str, logs: Sequence[LogRecord] | LogsAfter) -> None:
    """Bring log.md of a branch to what the records say, appending where they only grew."""
    check_branch_name(branch)
    folder = make_folder(ws_path, f"{BRANCHES}/{branch}")
    after = logs if callable(logs) else _after(logs)
    write_ledger(folder, "log", f"# Log of branch {branch}\n\n", lambda n: _logs_after(after, n))


def _after(logs: Sequence[LogRecord]) -> LogsAfter:
    def after(step: int) -> Sequence[LogRecord]:
        at = len(logs)
        while at and logs[at - 1].step > step:
            at -= 1
        return logs[at:]

    return after


def _logs_after(after: LogsAfter, number: int) -> Iterable[tuple[int, str]]:
    return ((record.number or record.step, render_log_entry(record)) for record in after(number))


def _write_metadata(path: Path, metadata: Mapping[str, Any]) -> None:
    """Bring our keys up to date, leaving the other keys, the order and the comments as they are."""
    import yaml

    text = path.read_text("utf-8", "replace") if keep_kind(path, stat.S_IFREG) else ""
    try:
        there = yaml.safe_load(text)
        root = yaml.compose(text, yaml.SafeLoader)
        if there is not None and not isinstance(there, dict):
            raise yaml.YAMLError("not a mapping")
    except yaml.YAMLError:
        path.replace(path.with_name("metadata.broken.yaml"))  # what a person wrote is kept, if it can't be read
        text, there, root = "", None, None
    there = there or {}
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if root is not None and getattr(root, "flow_style", False):
        lines = yaml.safe_dump(there, sort_keys=False, allow_unicode=True).splitlines(keepends=True)
        root = yaml.compose("".join(lines), yaml.SafeLoader)
    starts = {key.value: key.start_mark.line for key, _ in root.value} if root is not None and there else {}
    ends = {key.value: value.end_mark for key, value in root.value} if starts and root is not None else {}
    for name in sorted(metadata, key=lambda n: -starts.get(n, -1)):  # from the end, so that line numbers stay right
        if name in there and there[name] == metadata[name]:
            continue
        block = yaml.safe_dump({name: metadata[name]}, sort_keys=False, allow_unicode=True).splitlines(keepends=True)
        if name in starts:
            end = ends[name].line + (1 if ends[name].column else 0)
            lines[starts[name] : end] = block
    for name in metadata:
        if name not in starts:
            lines += yaml.safe_dump({name: metadata[name]}, sort_keys=False, allow_unicode=True).splitlines(
                keepends=True
            )
    put(path, "".join(lines).encode())
