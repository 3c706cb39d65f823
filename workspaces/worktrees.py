"""Worktrees: a second folder of the same repository, in which a child works on a branch of its own.

The invariant: a worktree goes away only when its commit is on a branch, and its files are in a commit, under
refs/rlm-agent/rescue or, what no snapshot holds, in the private folder's `rescue/worktrees`; only what the user's own rules
ignore goes with it. Each step may be cut off and is harmless to repeat.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from ulid import ULID

from workspaces.command import run_git
from workspaces.errors import WorkspaceError, disk_errors
from workspaces.locks import sync_path
from workspaces.store import Boundary, _no_boundary
from workspaces.workspace import Workspace


def add(workspace: Workspace, path: Path, branch: str, boundary: Boundary = _no_boundary) -> Workspace:
    """Make a worktree of a branch at `path`, or complete one whose making was cut off, and open it.

    Whatever else is at `path` is saved and taken away as `remove` does it. Raises WorkspaceError when the branch is
    checked out elsewhere, there is none, or what is there can't be taken away.
    """
    with disk_errors(path):
        if not _is_whole(workspace, path, branch):
            remove(workspace, path)
            path.parent.mkdir(parents=True, exist_ok=True)
            git_dir = workspace.store.git_dir
            run_git(workspace.path, "worktree", "add", "-q", "--no-checkout", str(path), branch, git_dir=git_dir)
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
        sync_path(_mark(made).parent)


def open_worktree(workspace: Workspace, path: Path, boundary: Boundary = _no_boundary) -> Workspace:
    """Open a worktree; what it has to put aside goes to the main workspace's private folder."""
    return Workspace(path, boundary, private=workspace.private)


def remove(workspace: Workspace, path: Path) -> None:
    """Take a worktree away, after saving what its branch lacks to a rescue ref.

    Raises WorkspaceError when its commit is on no branch.
    """
    with disk_errors(path):
        if os.path.lexists(path):
            left = _opened(workspace, path)
            if left is None:  # git knows nothing of it (any more), and can save nothing of it
                shutil.move(path, _aside(workspace, path))
            else:
                try:
                    _save(left)
                finally:
                    left.close()
                shutil.rmtree(path)
        # Not `prune`: it passes over a record that a killed `worktree add` left locked, and takes other people's away.
        run_git(
            workspace.path, "worktree", "remove", "-f", "-f", str(path), git_dir=workspace.store.git_dir, check=False
        )


def _opened(workspace: Workspace, path: Path) -> Workspace | None:
    """Open what is at `path`, or return None when it is no worktree of this repository."""
    try:
        found = open_worktree(workspace, path)
    except (WorkspaceError, OSError):
        return None
    store, ours = found.store, workspace.store
    if store.common_dir.resolve() == ours.common_dir.resolve() and store.git_dir.resolve() != ours.git_dir.resolve():
        return found
    found.close()
    return None


def _aside(workspace: Workspace, path: Path) -> Path:
    """Return a new place for what is taken away from `path`."""
    aside = workspace.private / "rescue" / "worktrees" / f"{path.name}-{ULID()}"
    aside.parent.mkdir(parents=True, exist_ok=True)
    return aside


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
    _move_left_out(worktree)


def _move_left_out(worktree: Workspace) -> None:
    """Move aside what no snapshot holds: oversized and secret files, and the repositories made inside."""
    left = [item.path for item in worktree.skipped if item.reason != "special"]
    for folder, inner, _ in os.walk(worktree.path):
        nested = os.path.relpath(os.path.join(folder, ".git"), worktree.path)
        if nested != ".git" and ".git" in inner:
            inner.remove(".git")
            left.append(nested)
    aside = _aside(worktree, worktree.path)
    for name in dict.fromkeys(left):
        (aside / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(worktree.path / name, aside / name)


def _is_whole(workspace: Workspace, path: Path, branch: str) -> bool:
    try:
        with open_worktree(workspace, path) as found:
            return found.head().branch == branch
    except (WorkspaceError, OSError):
        return False


def _mark(worktree: Workspace) -> Path:
    """Return the file that says that a worktree's files are all there; it goes away with git's own record of the worktree."""
    return worktree.store.git_dir / "rlm-agent-placed"
