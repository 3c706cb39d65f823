"""Merging two commits in the object store alone, as git merges: no working file is touched.

The result is a tree of working files; `.GCC/branches` is derived from the journal and takes no part, and the lines of both sides
of the roadmap are united. Conflicts stand in the files between git's own markers.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from workspaces.command import git_environment, git_failed, run_git
from workspaces.errors import WorkspaceError
from workspaces.shared import read_text
from workspaces.workspace import Workspace

_UNION = "/.GCC/main.md merge=union\n"
# Seven characters each, or more where the attribute `conflict-marker-size` says so.
_MARKERS = (re.compile("<{7,} "), re.compile("={7,}$"), re.compile(">{7,} "))
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge comes to: `state` is merged, conflicts, or already (nothing is new); `tree` is one of working files."""

    tree: str
    conflicts: tuple[str, ...]
    state: str


def merge_trees(workspace: Workspace, ours: str, theirs: str, our_name: str = "", their_name: str = "") -> Merged:
    """Merge commit `theirs` into `ours`; the names label the markers of conflicts.

    Raises WorkspaceError when the two have no common history.
    """
    if workspace.is_ancestor(theirs, ours):
        return Merged(workspace.work_tree(ours), (), "already")
    if workspace.merge_base(ours, theirs) is None:
        hint = "merge branches that come from the same first commit"
        raise WorkspaceError(f"{their_name or theirs} and {our_name or ours} have no common history", hint, "merge")
    _unite_roadmaps(workspace)
    sides = [_named(workspace, name, sha) for name, sha in ((our_name, ours), (their_name, theirs))]
    done = subprocess.run(
        ["git", "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", "--", *sides],
        cwd=workspace.path,
        env=git_environment(workspace.path, workspace.store.git_dir),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
    )
    if done.returncode not in (0, 1):
        raise git_failed(workspace.path, "merge-tree", done.stderr)
    tree, *names = done.stdout.rstrip(b"\0").split(b"\0")
    found = dict.fromkeys(name.decode("utf-8", "surrogateescape") for name in names if name)
    conflicts = tuple(name for name in found if not name.startswith(".GCC/branches/"))
    return Merged(workspace.work_tree(tree.decode()), conflicts, "conflicts" if conflicts else "merged")


def unresolved(workspace: Workspace, paths: Sequence[str]) -> list[str]:
    """Return those of the files that still hold a conflict between git's markers."""
    return [path for path in paths if _is_marked(read_text(workspace.path, path, _MAX_BYTES) or "")]


def diffstat(workspace: Workspace, a: str, b: str, most: int) -> str:
    """Return which working files differ between two commits or trees, `most` by name, with the lines added and removed."""
    said = run_git(
        workspace.path, "diff", "--numstat", "--no-renames", "-z", a, b, "--", ":/", ":(exclude,top).GCC",
        git_dir=workspace.store.git_dir,
    )  # fmt: skip
    rows = [row.split("\t", 2) for row in said.decode("utf-8", "backslashreplace").split("\0") if row]
    if not rows:
        return "no file differs"
    shown = [f"{name} (binary)" if plus == "-" else f"{name} +{plus} -{minus}" for plus, minus, name in rows[:most]]
    return "\n".join(shown + ([f"and {len(rows) - most} files more"] if len(rows) > most else []))


def _is_marked(text: str) -> bool:
    at = 0
    for line in text.splitlines():
        if _MARKERS[at].match(line):
            at += 1
            if at == len(_MARKERS):
                return True
    return False


def _named(workspace: Workspace, name: str, sha: str) -> str:
    """Return a branch's name where that is the commit, so that the markers show it."""
    return name if name and workspace.store.resolve(name) == sha else sha


def _unite_roadmaps(workspace: Workspace) -> None:
    attributes = workspace.store.common_dir / "info" / "attributes"
    text = attributes.read_text() if attributes.exists() else ""
    if _UNION not in text:
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text(text + _UNION)
