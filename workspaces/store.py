"""Durable writes to a git repository: objects first, then a ref by compare-and-swap, then the ref's folder.

The invariant: when `move_ref` has returned, the ref and everything it reaches survive a power cut; before
that, the ref has its old value and nothing else has changed. Git alone syncs neither objects nor a ref's
folder, and GitPython's own writes ignore `core.fsync`. One store is used by one thread at a time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from workspaces.command import IDENTITY, GitPipe
from workspaces.errors import NotAWorkspace, RefConflict, WorkspaceError
from workspaces.objects import (
    EMPTY_TREE,
    Entry,
    LooseObjects,
    ObjectReader,
    parse_tree,
    serialise_tree,
    sync_folder,
)
from workspaces.refs import swap_ref

# Nobody reads a log of these, so they need no git process: a checkpoint moves one at each step.
_OURS = "refs/rlm-agent/"
_NONE = "0" * 40
_SHA = re.compile(r"[0-9a-f]{40}")
_BAD_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)|[/.]$")

Boundary = Callable[[str], None]


def _no_boundary(_name: str) -> None:
    return None


class GitStore:
    """The objects and refs of one repository, or of one of its worktrees."""

    def __init__(self, repo_path: Path, boundary: Boundary = _no_boundary) -> None:
        self.path = repo_path
        self.git_dir, self.common_dir = git_folders(repo_path)
        self._boundary = boundary
        self._reader = ObjectReader(repo_path, self.git_dir)
        self._objects = LooseObjects(self.common_dir / "objects", self._reader)
        self._refs = GitPipe(repo_path, self.git_dir, "update-ref", "--no-deref", "--stdin")
        self._packed: tuple[tuple[int, int, int], dict[str, str]] | None = None
        self._synced: set[Path] = set()

    def write_blob(self, content: bytes) -> str:
        """Write a blob and return its sha; durable after `barrier()`."""
        return self._objects.write("blob", content)

    def write_tree(self, entries: Mapping[bytes, Entry]) -> str:
        """Write a tree of one folder and return its sha; durable after `barrier()`."""
        return self._objects.write("tree", serialise_tree(entries))

    def write_tree_bytes(self, content: bytes) -> str:
        """Write a tree that is serialised already."""
        return self._objects.write("tree", content)

    def write_commit(
        self,
        tree: str,
        parents: Sequence[str],
        message: str,
        when: int,
        author: tuple[str, str] = IDENTITY,
        committer: tuple[str, str] = IDENTITY,
    ) -> str:
        """Write a commit and return its sha; `when` is in Unix seconds, UTC. Durable after `barrier()`."""
        text = message.replace("\0", "").rstrip() or "(no message)"
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
        lines += [
            f"author {_signature(author, when)}",
            f"committer {_signature(committer, when)}",
            "",
            text,
            "",
        ]
        return self._objects.write("commit", "\n".join(lines).encode("utf-8", "replace"))

    def write_commit_bytes(self, content: bytes) -> str:
        """Write a commit that is serialised already."""
        return self._objects.write("commit", content)

    def forget_written(self) -> None:
        """Take nothing for written any more without a look at the disk."""
        self._objects.forget()

    def barrier(self) -> None:
        """Make all objects written so far durable and readable for other processes."""
        self._boundary("objects.written")
        self._objects.barrier()
        self._boundary("objects.durable")

    def exists(self, name: str) -> bool:
        """Tell whether the repository has an object of this name."""
        return self._objects.pending(name) is not None or self._reader.exists(name)

    def read_object(self, name: str) -> tuple[str, bytes]:
        """Return (kind, content) of an object named by sha or revision.

        Raises WorkspaceError when there is none.
        """
        pending = self._objects.pending(name)
        if pending is not None:
            return pending
        found = self._reader.read(name)
        if found is None:
            raise WorkspaceError(f"{self.path}: git has no object {name}", "check it with `rlm-agent verify`", "object")
        return found[1], found[2]

    def read_tree(self, sha: str) -> dict[bytes, Entry]:
        """Return the entries of one folder's tree, named by sha or revision."""
        if sha == EMPTY_TREE:
            return {}
        kind, content = self.read_object(sha if _SHA.fullmatch(sha) else f"{sha}^{{tree}}")
        if kind == "commit":
            return self.read_tree(content[5:45].decode())
        if kind != "tree":
            raise WorkspaceError(f"{self.path}: {sha} is a {kind}, not a tree", "give a commit or a tree", "object")
        return parse_tree(content)

    def resolve(self, rev: str) -> str | None:
        """Return the sha of the commit that a revision names, or None."""
        found = self._reader.read(f"{rev}^{{commit}}")
        return found[0] if found is not None else None

    def read_ref(self, ref: str) -> str | None:
        """Return the sha a ref points at, or None when it does not exist; symbolic refs are followed."""
        for _ in range(5):
            _check_ref(ref)
            text = self._ref_text(ref)
            if text is None or not text.startswith("ref: "):
                return text
            ref = text[5:].strip()
        raise WorkspaceError(f"{self.path}: the ref {ref} points at itself", "look at the files in .git/refs", "ref")

    def list_refs(self, prefix: str) -> dict[str, str]:
        """Return all refs below a prefix such as `refs/heads/`, in order, each with its sha."""
        found = {name: sha for name, sha in self._packed_refs().items() if name.startswith(prefix)}
        top = self.common_dir / prefix
        for folder, _, names in os.walk(top):
            for name in names:
                ref = f"{prefix}{os.path.relpath(os.path.join(folder, name), top)}"
                if not name.endswith(".lock") and (sha := self.read_ref(ref)) is not None:
                    found[ref] = sha
        return dict(sorted(found.items()))

    def move_ref(self, ref: str, new: str, old: str | None) -> None:
        """Move a ref from `old` (None: it must not exist) to `new`, durably; nothing happens when it is there already.

        Raises RefConflict when the ref is elsewhere, WorkspaceError when git refuses.
        """
        _check_ref(ref)
        if not _SHA.fullmatch(new) or (old is not None and not _SHA.fullmatch(old)):
            raise WorkspaceError(f"{ref}: {new} and {old} must be full shas", "this is a fault in rlm-agent", "ref")
        found = self.read_ref(ref)
        if found != new:
            self._expect(ref, old)
            if ref.startswith(_OURS):
                swap_ref(self.common_dir, ref, f"{new}\n", lambda: self._expect(ref, old))
            else:
                self._swap(ref, new, old)
            self._boundary("ref.moved")
        self._sync_ref(ref)
        self._boundary("ref.durable")

    def close(self) -> None:
        """End the git processes; objects that no barrier made durable are dropped."""
        self._objects.close()
        self._reader.close()
        self._refs.close()

    def _expect(self, ref: str, old: str | None) -> None:
        found = self.read_ref(ref)
        if found != old:
            raise RefConflict(*_conflict(self.path, ref, old, found))
        if old is None and any(
            name.startswith(f"{ref}/") or ref.startswith(f"{name}/") for name in self._packed_refs()
        ):
            raise WorkspaceError(f"{ref}: another ref's name begins with it, or it with another's", "rename one", "ref")

    def _swap(self, ref: str, new: str, old: str | None) -> None:
        folder = self.common_dir / os.path.dirname(ref)
        self._synced = {known for known in self._synced if known.is_dir()}
        folder.mkdir(parents=True, exist_ok=True)
        stream = self._refs.request(f"start\nupdate {ref} {new} {old or _NONE}\nprepare\ncommit\n".encode())
        if [stream.readline() for _ in range(3)] == [b"start: ok\n", b"prepare: ok\n", b"commit: ok\n"]:
            return
        error = self._refs.failed()
        found = self.read_ref(ref)
        if found not in (new, old):
            raise RefConflict(*_conflict(self.path, ref, old, found)) from error
        if found != new:
            raise error

    def _sync_ref(self, ref: str) -> None:
        """Sync the ref's folder, and its parents up to the git folder the first time they are seen."""
        folder = (self.common_dir / ref).parent
        if not folder.is_dir():  # packed, and git removed the empty folder
            sync_folder(self.common_dir)
            return
        sync_folder(folder)
        while folder not in self._synced and folder != self.common_dir:
            self._synced.add(folder)
            folder = folder.parent
            sync_folder(folder)

    def _ref_text(self, ref: str) -> str | None:
        home = self.common_dir if ref.startswith("refs/") else self.git_dir
        try:
            text = (home / ref).read_text("ascii", "replace").strip()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return self._packed_refs().get(ref)
        if not text.startswith("ref: ") and not _SHA.fullmatch(text):
            hint = "restore it from the journal with `rlm-agent verify`, or with `git update-ref`"
            raise WorkspaceError(f"{home / ref}: no ref in it: {text[:60]!r}", hint, "ref")
        return text

    def _packed_refs(self) -> dict[str, str]:
        path = self.common_dir / "packed-refs"
        try:
            found = path.stat()
        except FileNotFoundError:
            return {}
        mark = (found.st_mtime_ns, found.st_size, found.st_ino)
        if self._packed is None or self._packed[0] != mark:
            lines = (line.split() for line in path.read_text("utf-8", "replace").splitlines() if line[:1] not in "#^")
            self._packed = mark, {parts[1]: parts[0] for parts in lines if len(parts) == 2}
        return self._packed[1]


def git_folders(repo_path: Path) -> tuple[Path, Path]:
    """Return the git folder of a work tree and the one it shares with its sisters.

    Raises NotAWorkspace when there is none.
    """
    git_dir = repo_path / ".git"
    if git_dir.is_file():
        text = git_dir.read_text().strip()
        git_dir = (repo_path / text.removeprefix("gitdir: ")).resolve()
    if not git_dir.is_dir():
        raise NotAWorkspace(f"{repo_path}: there is no git repository", "name the folder of a run, or start one there")
    shared = git_dir / "commondir"
    return git_dir, (git_dir / shared.read_text().strip()).resolve() if shared.exists() else git_dir


def _check_ref(ref: str) -> None:
    if ref == "HEAD":
        return
    if not ref.startswith("refs/") or _BAD_REF.search(ref):
        raise WorkspaceError(f"{ref!r} is no name for a ref", "use letters, digits, dots, dashes and slashes", "usage")


def _conflict(path: Path, ref: str, old: str | None, found: str | None) -> tuple[str, str]:
    where = found[:12] if found else "gone"
    message = f"{path}: {ref} should be {old[:12] if old else 'new'} and is {where}"
    return message, f"somebody else moved it: look at `git log {ref}`, then put it back with `git update-ref`"


def _signature(who: tuple[str, str], when: int) -> str:
    name, mail = (re.sub(r"[<>\n\0]", "", part).strip() for part in who)
    return f"{name} <{mail}> {when} +0000"
