"""Reading what a branch tells: its commits with subject, body and trailers, newest first. GitPython reads
here; it never writes, because its writes ignore `core.fsync`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from workspaces.command import git_environment
from workspaces.errors import WorkspaceError

_TRAILER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*): (.*)")


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One commit: subject, body without its trailers, the trailers, and when it was made (Unix seconds)."""

    sha: str
    subject: str
    body: str
    trailers: dict[str, str]
    when: int


class History:
    """The commits of one repository, opened when first read."""

    def __init__(self, work_tree: Path, git_dir: Path) -> None:
        self._work_tree, self._git_dir = work_tree, git_dir
        self._repo: object | None = None

    def log(self, commit: str, limit: int | None) -> tuple[CommitEntry, ...]:
        """Return up to `limit` commits (None: all) reachable from a commit's sha, newest first."""
        repo = self._open()
        found = repo.iter_commits(commit, max_count=-1 if limit is None else limit)  # type: ignore[attr-defined]
        return tuple(_entry(c.hexsha, str(c.message), int(c.committed_date)) for c in found)

    def close(self) -> None:
        """End GitPython's processes."""
        repo, self._repo = self._repo, None
        if repo is not None:
            repo.close()  # type: ignore[attr-defined]

    def _open(self) -> object:
        if self._repo is None:
            before = os.environ.get("GIT_PYTHON_REFRESH")
            os.environ["GIT_PYTHON_REFRESH"] = "quiet"  # else the import itself raises where git is missing
            try:
                import git
            finally:
                if before is None:
                    del os.environ["GIT_PYTHON_REFRESH"]
                else:
                    os.environ["GIT_PYTHON_REFRESH"] = before
            try:
                repo = git.Repo(self._work_tree, search_parent_directories=False)
            except git.exc.InvalidGitRepositoryError as error:
                hint = "look at it with `git status`"
                raise WorkspaceError(f"{self._work_tree}: git cannot open it", hint, "git") from error
            repo.git.update_environment(**git_environment(self._work_tree, self._git_dir))
            self._repo = repo
        return self._repo


def _entry(sha: str, message: str, when: int) -> CommitEntry:
    subject, _, rest = message.strip("\n").partition("\n")
    body, trailers = split_trailers(rest.strip("\n"))
    return CommitEntry(sha, subject, body, trailers, when)


def split_trailers(text: str) -> tuple[str, dict[str, str]]:
    """Split a message's body from the trailers in its last paragraph."""
    body, _, last = text.rpartition("\n\n")
    lines = [_TRAILER.fullmatch(line) for line in last.splitlines()]
    if not lines or not all(lines):
        return text, {}
    return body.strip("\n"), {match[1]: match[2] for match in lines if match is not None}
