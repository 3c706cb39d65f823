"""Making a workspace, step by step, each step harmless to repeat: a making that was cut off is completed by
the next call.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from workspaces import gcc
from workspaces.command import IDENTITY, run_git
from workspaces.errors import NotAWorkspace, WorkspaceError
from workspaces.locks import sync_all, sync_path
from workspaces.rules import exclude_lines
from workspaces.shared import keep_kind, make_folder
from workspaces.store import Boundary

if TYPE_CHECKING:
    from workspaces.workspace import Workspace

_CONFIG = f"""
# What rlm-agent sets: who commits, no collecting of garbage behind its back, and everything synced.
[user]
\tname = {IDENTITY[0]}
\temail = {IDENTITY[1]}
[gc]
\tauto = 0
[maintenance]
\tauto = false
[core]
\tfsync = all
"""
# Blobs are the files' bytes: no line-end conversion and no filter may make `git status` see another file.
_SUBJECT = "Start of "
_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding\n"


def create(path: Path, goal: str, name: str, clone: Path | None, boundary: Boundary, when: int | None) -> None:
    """Bring a folder to a workspace with its first commit, from whatever an earlier call left."""
    _claim(path)
    boundary("create.claimed")
    run_git_init(path)
    boundary("create.init")
    if clone is not None:
        _fetch(path, Path(clone).absolute())
        boundary("create.fetched")
    sync_all(path / ".git")
    _first_commit(path, goal, name, boundary, int(time.time()) if when is None else when)


def run_git_init(path: Path) -> None:
    """Make the repository and its settings; an existing one keeps its content."""
    run_git(path, "init", "-q", "-b", "main", "--template=", "--object-format=sha1")
    config = path / ".git" / "config"
    text = config.read_text()
    if _CONFIG not in text:
        config.write_text(text + _CONFIG)
    info = path / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "exclude").write_text(exclude_lines())
    (info / "attributes").write_text(_ATTRIBUTES)


def _claim(path: Path) -> None:
    """Make the folder ours, or refuse one that holds other things."""
    private = path / ".rlm-agent"
    if path.exists() and not path.is_dir():
        raise NotAWorkspace(f"{path} is a file", "name a folder that is empty or does not exist yet")
    if path.is_dir() and not private.is_dir() and any(path.iterdir()):
        hint = "name an empty folder, or use `workspace: {clone: …}` to start from a copy of a repository"
        raise NotAWorkspace(f"{path} is not empty and is not a workspace", hint)
    private.mkdir(parents=True, exist_ok=True)
    (private / ".gitignore").write_text("*\n")
    sync_path(private)
    sync_path(path)
    sync_path(path.parent)


def _fetch(path: Path, source: Path) -> None:
    """Fetch a local repository's branches and make `main` its checked-out commit, unless that is done already."""
    if not source.exists():
        raise WorkspaceError(f"{source}: there is no repository to clone", "correct `workspace: {clone: …}`", "usage")
    if run_git(path, "rev-parse", "-q", "--verify", "refs/heads/main", check=False).strip():
        return
    if not run_git(path, "config", "remote.origin.url", check=False).strip():
        run_git(path, "remote", "add", "origin", str(source))
    with tempfile.NamedTemporaryFile("w", suffix=".gitconfig") as config:
        # `safe.directory` for the process that reads the source: it takes it from no other place than a file.
        config.write("[safe]\n\tdirectory = *\n")
        config.flush()
        env = ("-c", f"remote.origin.uploadpack=GIT_CONFIG_GLOBAL={config.name} git-upload-pack")
        run_git(
            path,
            *env,
            "fetch",
            "-q",
            "--no-auto-gc",
            "--tags",
            "origin",
            "+refs/heads/*:refs/remotes/origin/*",
        )
        has_head = run_git(path, *env, "ls-remote", "origin", "HEAD").split()
        if not has_head:
            return  # an empty repository
        run_git(path, *env, "fetch", "-q", "--no-auto-gc", "origin", "HEAD")
        run_git(path, "update-ref", "refs/heads/main", has_head[0].decode(), "")


def _first_commit(path: Path, goal: str, name: str, boundary: Boundary, when: int) -> None:
    from workspaces.workspace import Workspace

    with Workspace(path, boundary) as workspace:
        workspace.clear_stale_locks()
        head = workspace.head()
        if head.sha is None or not _is_started(workspace, head.sha):
            if head.sha is not None:
                workspace.restore(head.sha, "creation")
            _write_roadmap(path, goal)
            tree = workspace.full_tree(workspace.snapshot())
            message = f"{_SUBJECT}{name}\n\n{goal.strip()}\n"
            commit = workspace.write_commit(tree, [head.sha] if head.sha else [], message, when)
            workspace.move_ref(f"refs/heads/{head.branch}", commit, head.sha)
        workspace.sync_index()


def _is_started(workspace: Workspace, sha: str) -> bool:
    subject = workspace.store.read_object(sha)[1].partition(b"\n\n")[2]
    return subject.startswith(_SUBJECT.encode()) and workspace.file_at(sha, gcc.MAIN) is not None


def _write_roadmap(path: Path, goal: str) -> None:
    main = make_folder(path, os.path.dirname(gcc.MAIN)) / os.path.basename(gcc.MAIN)
    if not keep_kind(main, stat.S_IFREG):
        main.write_text(gcc.render_main(goal, (), ()))
    purpose = goal.strip().split("\n")[0]
    metadata = {"branch": {"name": "main", "purpose": purpose, "commits": 0}}
    gcc.write_branch_files(path, "main", purpose, [], [], metadata)


def copy_repository(source: Path, target: Path) -> None:
    """Make a repository in `target` with all commits and refs of the one in `source`, which is only read."""
    run_git_init(target)
    kinds = ("heads", "tags", "remotes", "rlm-agent")
    specs = [f"+refs/{kind}/*:refs/{kind}/*" for kind in kinds]
    with tempfile.NamedTemporaryFile("w", suffix=".gitconfig") as config:
        config.write("[safe]\n\tdirectory = *\n")
        config.flush()
        pack = f"GIT_CONFIG_GLOBAL={config.name} git-upload-pack"
        quiet = ("-q", "--no-auto-gc", "--update-head-ok", f"--upload-pack={pack}")
        run_git(target, "fetch", *quiet, "--", str(source), *specs)
