"""Branches of one work tree: what a commit of a branch holds beside the work, and what of it stands on disk.

A branch's commit holds the files in `.GCC/branches/<own>` as they are on disk; those of other branches are carried over from its
parents and never read from disk. So switching, merging and killed runs cannot mix two branches' stories.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from workspaces.changes import differences
from workspaces.errors import WorkspaceError
from workspaces.gcc import check_branch_name
from workspaces.objects import EMPTY_TREE, SYMLINK, TREE, Entry
from workspaces.placing import Placing
from workspaces.shared import make_folder
from workspaces.store import GitStore

HEADS = "refs/heads/"
_GCC, _BRANCHES = b".GCC", b"branches"
_RESERVED = re.compile(r"(HEAD|rewound|refs)(/|$)|[0-9a-f]{40}$", re.IGNORECASE)
#: What the run itself derives; a file of another name was put there by a person.
_DERIVED = re.compile(rb"(.*/)?(commit\.md|log\.md|metadata\.yaml|(commit|log)/[0-9]{4}\.md)")


def check_new_branch(name: str, there: Mapping[str, str]) -> None:
    """Raise WorkspaceError when no branch of this name can be made beside those that are there."""
    check_branch_name(name)
    if _RESERVED.match(name):
        raise WorkspaceError(f"{name!r} is a name that git or the run needs itself", "choose another name", "usage")
    for other in there:
        a, b = name.lower(), other.lower()
        if name == other:
            raise WorkspaceError(f"there is a branch {name!r} already", "choose another name, or SWITCH to it", "usage")
        if a == b:
            raise WorkspaceError(
                f"{name!r} and branch {other!r} differ in upper and lower case alone", "rename it", "usage"
            )
        if any(x != y and x.lower() == y.lower() for x, y in zip(_folders(name), _folders(other), strict=False)):
            raise WorkspaceError(
                f"{name!r} and branch {other!r} differ in upper and lower case alone", "rename it", "usage"
            )
        if a.startswith(b + "/") or b.startswith(a + "/"):
            raise WorkspaceError(
                f"{name!r} cannot stand beside branch {other!r}", "one may not be a folder of the other", "usage"
            )


def work_tree(store: GitStore, tree: str) -> str:
    """Return the tree of a commit's working files: all but `.GCC/branches`; durable after the store's `barrier()`."""
    entries = store.read_tree(tree)
    known = entries.get(_GCC)
    if known is not None and known.mode == TREE:
        inside = store.read_tree(known.sha)
        if inside.pop(_BRANCHES, None) is not None:
            entries[_GCC] = Entry(TREE, store.write_tree(inside))
    return store.write_tree(entries)


def with_branches(
    store: GitStore, known: Mapping[bytes, Entry], branch: str, parents: Sequence[str], merged: str = ""
) -> dict[bytes, Entry]:
    """Return the entries of `.GCC` for a commit of `branch`: `known` are those on disk, other branches' are the parents'.

    Of a branch that is `merged`, those of the second parent are taken.
    """
    entries = dict(known)
    disk = entries.pop(_BRANCHES, None)
    tree = branches_tree(store, parents[0]) if parents else (disk.sha if disk is not None else EMPTY_TREE)
    for parent in parents[1:]:
        theirs = branches_tree(store, parent)
        tree = _united(store, tree, theirs)
        if merged and (found := _at(store, theirs, merged)) is not None:
            tree = _put(store, tree, _parts(merged), found)
    own = _at(store, disk.sha, branch) if disk is not None and disk.mode == TREE else None
    if own is not None:
        tree = _put(store, tree, _parts(branch), own)
    if tree != EMPTY_TREE:
        entries[_BRANCHES] = Entry(TREE, tree)
    return entries


def branches_tree(store: GitStore, commit: str) -> str:
    """Return the tree of `.GCC/branches` in a commit or tree."""
    known = store.read_tree(commit).get(_GCC)
    found = store.read_tree(known.sha).get(_BRANCHES) if known is not None and known.mode == TREE else None
    return found.sha if found is not None and found.mode == TREE else EMPTY_TREE


def place(store: GitStore, root: Path, private: Path, found: str, wanted: str) -> None:
    """Make `.GCC/branches` on disk, where the tree `found` is, equal to `wanted`; what a person put there is moved aside."""
    if found == wanted:
        return
    folder = make_folder(root, ".GCC/branches")
    placing = Placing(folder, private / "tmp", private / "rescue" / "branches")
    try:
        differing = list(differences(store, found, wanted))
        gone = [path for path, old, new in differing if old and old.mode != TREE and (not new or new.mode == TREE)]
        for path in gone:  # first: a folder may take the place of a file
            if not _DERIVED.fullmatch(path):
                _keep(folder, private / "rescue" / "branches", path)
            placing.remove(path)
        for path, _, new in differing:
            if new is None or new.mode == TREE:
                continue
            _, content = store.read_object(new.sha)
            placing.write(path, content, False, new.mode == SYMLINK, lambda: None)
        for parent in sorted({os.path.dirname(path) for path in gone}, reverse=True):
            placing.remove_if_empty(parent, set())
    finally:
        placing.close()


def note_merge(git_dir: Path, theirs: str | None) -> None:
    """Let plain `git status` tell that a merge of the commit `theirs` waits, or with None that none does."""
    mark, message = git_dir / "MERGE_HEAD", git_dir / "MERGE_MSG"
    if theirs is not None:
        message.write_text("Merge\n")
        fresh = mark.with_suffix(".new")
        fresh.write_text(theirs + "\n")
        fresh.rename(mark)  # git reads it whole or not at all
        return
    for file in (mark, message, git_dir / "MERGE_MODE"):
        with contextlib.suppress(FileNotFoundError):
            file.unlink()


def _folders(name: str) -> list[str]:
    return name.split("/")[:-1]


def _keep(folder: Path, aside: Path, path: bytes) -> None:
    source, target = os.path.join(os.fsencode(folder), path), os.path.join(os.fsencode(aside), path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    number = 0
    while os.path.lexists(target + (b".%d" % number if number else b"")):
        number += 1  # what was moved aside earlier stays
    target += b".%d" % number if number else b""
    if os.path.lexists(source):
        shutil.copy2(source, target, follow_symlinks=False)


def _parts(branch: str) -> list[bytes]:
    return [os.fsencode(part) for part in branch.split("/")]


def _at(store: GitStore, tree: str, branch: str) -> Entry | None:
    entry: Entry | None = Entry(TREE, tree)
    for part in _parts(branch):
        entry = store.read_tree(entry.sha).get(part) if entry is not None and entry.mode == TREE else None
    return entry


def _put(store: GitStore, tree: str, parts: list[bytes], entry: Entry) -> str:
    entries = store.read_tree(tree)
    if len(parts) > 1:
        below = entries.get(parts[0])
        inner = below.sha if below is not None and below.mode == TREE else EMPTY_TREE
        entry = Entry(TREE, _put(store, inner, parts[1:], entry))
    entries[parts[0]] = entry
    return store.write_tree(entries)


def _united(store: GitStore, mine: str, theirs: str) -> str:
    """Return `mine` with the folders that only `theirs` has."""
    if theirs in (mine, EMPTY_TREE):
        return mine
    entries = store.read_tree(mine)
    for name, entry in store.read_tree(theirs).items():
        have = entries.get(name)
        if have is None:
            entries[name] = entry
        elif have.mode == TREE and entry.mode == TREE and not _is_branch(store, have.sha):
            entries[name] = Entry(TREE, _united(store, have.sha, entry.sha))
    return store.write_tree(entries)


def _is_branch(store: GitStore, tree: str) -> bool:
    return b"commit.md" in store.read_tree(tree)
