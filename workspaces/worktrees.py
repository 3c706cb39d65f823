"""Worktrees: a second folder of the same repository, in which a child works on a branch of its own.

The invariant: a worktree goes away only when its commit is on a branch and its files are in a commit or under
refs/rlm-agent/rescue. Each step may be cut off and is harmless to repeat.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from ulid import ULID

from workspaces.command import run_git
from workspaces.errors import WorkspaceError, disk_errors
from workspaces.store import Boundary, _no_boundary
from workspaces.workspace import Workspace


def add(workspace: Workspace, path: Path, branch: str, boundary: Boundary = _no_boundary) -> Workspace:
    """Make a worktree of a branch at `path`, or complete one whose making was cut off, and open it.

    Raises WorkspaceError when the branch is checked out elsewhere, or there is none.
    """
    with disk_errors(path):
        if not _is_whole(workspace, path, branch):
            if path.exists():
                shutil.rmtree(path)  # a half-made one: nobody has worked in it
            path.parent.mkdir(parents=True, exist_ok=True)
            git_dir = workspace.store.git_dir
            run_git(workspace.path, "worktree", "prune", git_dir=git_dir)
            run_git(workspace.path, "worktree", "add", "-q", "-f", "--no-checkout", str(path), branch, git_dir=git_dir)
            boundary("worktree.added")
    made = open_worktree(workspace, path, boundary)
    try:
        _place(made, path, branch, boundary)
    except BaseException:
        made.close()
        raise
    return made


def _place(made: Workspace, path: Path, branch: str, boundary: Boundary) -> None:
    """Put the branch's files there, unless they were once: later ones are the child's."""
    if not _mark(made).exists():
        commit = made.head().sha
        if commit is None:
            raise WorkspaceError(f"{path}: branch {branch} has no commit", "this is a fault in rlm-agent", "worktree")
        made.restore(made.work_tree(commit), str(ULID()))
        made.place_branch_files(commit)
        made.sync_index()
        boundary("worktree.placed")
        _mark(made).touch()


def open_worktree(workspace: Workspace, path: Path, boundary: Boundary = _no_boundary) -> Workspace:
    """Open a worktree; what it has to put aside goes to the main workspace's private folder."""
    return Workspace(path, boundary, private=workspace.private)


def remove(workspace: Workspace, path: Path) -> None:
    """Take a worktree away, after saving what its branch lacks to a rescue ref.

    Raises WorkspaceError when its commit is on no branch.
    """
    with disk_errors(path):
        if (path / ".git").exists() and (workspace.store.common_dir / "worktrees").is_dir():
            left = open_worktree(workspace, path)
            try:
                _save(left)
            finally:
                left.close()
        if path.exists():
            shutil.rmtree(path)
        run_git(workspace.path, "worktree", "prune", git_dir=workspace.store.git_dir)


def _save(worktree: Workspace) -> None:
    if not _mark(worktree).exists():
        return  # half made: nobody has worked in it
    if worktree.read_head() is None:
        at = worktree.read_ref("HEAD") or "gone"
        if not any(worktree.is_ancestor(at, tip) for tip in worktree.branches().values()):
            hint = f"keep it first: `git branch NAME {at[:12]}`"
            raise WorkspaceError(f"{worktree.path}: its commit {at[:12]} is on no branch", hint, "worktree")
    head = worktree.read_ref("HEAD")
    found = worktree.snapshot()
    if head is None or worktree.work_tree(head) != found:
        commit = worktree.write_commit(
            found, [head] if head else [], "Files of a worktree that ended\n", int(time.time())
        )
        worktree.move_ref(f"refs/rlm-agent/rescue/{ULID()}", commit, None)


def _is_whole(workspace: Workspace, path: Path, branch: str) -> bool:
    try:
        with open_worktree(workspace, path) as found:
            return found.head().branch == branch
    except (WorkspaceError, OSError):
        return False


def _mark(worktree: Workspace) -> Path:
    """Return the file that says that a worktree's files are all there; it goes away with git's own record of the worktree."""
    return worktree.store.git_dir / "rlm-agent-placed"
