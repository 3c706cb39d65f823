"""What tests ask of git itself, and a whole milestone as the daemon makes it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from workspaces.workspace import Workspace


def git(path: Path, *args: str) -> str:
    env = {
        **os.environ,
        "GIT_AUTHOR_NAME": "p",
        "GIT_AUTHOR_EMAIL": "p@x",
        "GIT_COMMITTER_NAME": "p",
        "GIT_COMMITTER_EMAIL": "p@x",
    }
    done = subprocess.run(
        ["git", "-C", str(path), *args], capture_output=True, text=True, env=env, errors="surrogateescape"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def milestone(ws: Workspace, message: str, when: int = 1_700_000_100) -> str:
    head = ws.head()
    tree = ws.full_tree(ws.snapshot())
    commit = ws.write_commit(tree, [head.sha] if head.sha else [], message, when)
    ws.move_ref(f"refs/heads/{head.branch}", commit, head.sha)
    ws.sync_index()
    return commit


def assert_sound(ws: Workspace) -> None:
    git(ws.path, "fsck", "--strict")
    assert ws.fsck() == []
