"""A run's workspace: a real git repository whose snapshots, commits and restores survive `kill -9` and power
cuts.

A durable milestone goes: `snapshot` → `full_tree` → `write_commit` → (the caller records it) → `move_ref` →
`sync_index`. The invariant: only `move_ref` changes what a branch says, and only `restore` changes working
files, after saving them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from workspaces import locks
from workspaces.branches import HEADS, branches_tree, check_new_branch, note_merge, place, with_branches, work_tree
from workspaces.changes import Change, changes
from workspaces.checkpoint import MAX_FILE_BYTES, Scope, Skipped, TreeScanner
from workspaces.command import run_git
from workspaces.errors import NotAWorkspace, WorkspaceError, disk_errors
from workspaces.history import CommitEntry, History
from workspaces.objects import EMPTY_TREE, TREE, Entry
from workspaces.restore import Restored, Restorer
from workspaces.rules import IgnoreRules, Tracked
from workspaces.store import Boundary, GitStore, _no_boundary
from workspaces.upkeep import Packing

FORMAT = 1
_FORMAT_FILE = "format"
_CONTENT_CHECKS = (
    "gitmodulesParse",
    "gitmodulesName",
    "gitmodulesUrl",
    "gitmodulesPath",
    "gitmodulesUpdate",
    "gitmodulesLarge",
    "gitattributesLarge",
    "gitattributesLineLength",
)


@dataclass(frozen=True, slots=True)
class Head:
    """The branch that is checked out, and its commit (None before the first one)."""

    branch: str
    sha: str | None


class Workspace:
    """One opened workspace; used by one thread at a time."""

    def __init__(
        self,
        path: Path,
        boundary: Boundary = _no_boundary,
        max_bytes: int = MAX_FILE_BYTES,
        private: Path | None = None,
    ) -> None:
        self.path = path
        #: where what has to be put aside goes; never committed
        self.private = private or path / ".rlm-agent"
        self._boundary = boundary
        self._store = GitStore(path, boundary)
        git_dir = self._store.git_dir
        self._rules = IgnoreRules(path, git_dir)
        scope = Scope(self._rules, Tracked(path, git_dir), max_bytes=max_bytes)
        self._scanner = TreeScanner(path, self._store, scope, marked=True)
        self._gcc = TreeScanner(path / ".GCC", self._store, Scope(left_out=frozenset(), max_bytes=max_bytes))
        self._restorer = Restorer(path, self.private, self._store, self._scanner, max_bytes)
        self._history = History(path, git_dir)
        self.packing = Packing(path, self._store)

    @staticmethod
    def create(
        path: Path,
        goal: str,
        name: str,
        clone: Path | None = None,
        boundary: Boundary = _no_boundary,
        when: int | None = None,
    ) -> Workspace:
        """Make a workspace, or complete one whose making was cut off, and open it.

        `clone` is a local repository to start from; it is only read. Raises NotAWorkspace when the folder holds other things.
        """
        from workspaces.creation import create

        path = Path(path).absolute()
        mark = path / ".rlm-agent" / _FORMAT_FILE
        with disk_errors(path):
            if not mark.exists():
                create(path, goal, name, clone, boundary, when)
                mark.with_suffix(".new").write_text(f"{FORMAT}\n")
                locks.sync_path(mark.with_suffix(".new"))
                mark.with_suffix(".new").rename(mark)
                locks.sync_path(mark.parent)
        return Workspace.open(path, boundary)

    @staticmethod
    def open(path: Path, boundary: Boundary = _no_boundary, max_bytes: int = MAX_FILE_BYTES) -> Workspace:
        """Open a workspace.

        Raises NotAWorkspace when there is none, WorkspaceError when a newer version made it.
        """
        path = Path(path).absolute()
        try:
            version = int((path / ".rlm-agent" / _FORMAT_FILE).read_text())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            hint = "make one with `rlm-agent start --task F`, which also completes a half-made one"
            raise NotAWorkspace(f"{path} is not a workspace", hint) from None
        if version > FORMAT:
            hint = "update rlm-agent"
            raise WorkspaceError(
                f"{path}: made by a newer version (format {version}, known: {FORMAT})", hint, "version"
            )
        with disk_errors(path):
            return Workspace(path, boundary, max_bytes)

    @staticmethod
    def adopt(path: Path) -> Workspace:
        """Open a copied workspace, from now on a whole one."""
        with disk_errors(path):
            (path / ".rlm-agent" / _FORMAT_FILE).write_text(f"{FORMAT}\n")
            locks.sync_all(path / ".git")
        return Workspace.open(path)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """What the last snapshot left out, and why."""
        return self._scanner.skipped

    @property
    def store(self) -> GitStore:
        """The repository's durable store."""
        return self._store

    def snapshot(self, durable: bool = True, full: bool | None = None) -> str:
        """Return the sha of the tree of the working files; `.GCC/branches` is not in it.

        With `durable=False` its objects wait for the next `write_commit`, which saves a round of syncs. `full` is whether
        to look at every file, or with False only at what is marked as changed; left out, every file is looked at now and then.
        """
        with self._writing():
            tree = self._scanner.scan(full)
            if durable:
                self._store.barrier()
            return tree

    def full_tree(self, snapshot_tree: str, branch: str = "", parents: Sequence[str] = (), merged: str = "") -> str:
        """Return the sha of a snapshot's tree with `.GCC` as it is on disk, durably written.

        With a `branch`, the files of the other branches are those of the commits `parents`; see `branches.with_branches`.
        """
        with self._writing():
            entries = self._store.read_tree(snapshot_tree)
            entries.pop(b".GCC", None)
            if (self.path / ".GCC").is_dir() and not (self.path / ".GCC").is_symlink():
                known = self._gcc.scan()
                if branch:
                    inside = with_branches(self._store, self._store.read_tree(known), branch, parents, merged)
                    known = self._store.write_tree(inside)
                entries[b".GCC"] = Entry(TREE, known)
            tree = self._store.write_tree(entries)
            self._store.barrier()
            return tree

    def write_commit(self, tree: str, parents: Sequence[str], message: str, when: int) -> str:
        """Write a commit durably, with no ref pointing at it, and return its sha; `when` is in Unix seconds."""
        with self._writing():
            commit = self._store.write_commit(tree, parents, message, when)
            self._store.barrier()
            return commit

    def move_ref(self, ref: str, new: str, old: str | None) -> None:
        """Move a ref from `old` (None: it must not exist) to `new`, durably; nothing happens when it is there already.

        Raises RefConflict when it is elsewhere.
        """
        with disk_errors(self.path):
            self._store.move_ref(ref, new, old)

    def drop_ref(self, ref: str, old: str) -> None:
        """Delete a ref that points at `old`; its commit must be kept by another ref."""
        with disk_errors(self.path):
            run_git(self.path, "update-ref", "-d", ref, old, git_dir=self._store.git_dir)
            locks.sync_path(self._store.common_dir)

    def refs(self, prefix: str) -> dict[str, str]:
        """Return the refs whose names begin with a prefix that ends in a slash, each with its sha."""
        return self._store.list_refs(prefix)

    def branches(self) -> dict[str, str]:
        """Return the branches, each with its commit."""
        return {ref.removeprefix(HEADS): sha for ref, sha in self.refs(HEADS).items()}

    def check_new_branch(self, name: str) -> None:
        """Raise WorkspaceError, saying why, when no branch of this name can be made."""
        check_new_branch(name, self.branches())

    def work_tree(self, commit: str) -> str:
        """Return the tree of a commit's working files, as a snapshot of them would be."""
        with self._writing():
            tree = work_tree(self._store, commit)
            self._store.barrier()
            return tree

    def listing(self, tree: str) -> list[tuple[str, int | None]]:
        """Return the names in a tree's top folder, folders with how many names they hold."""
        entries = sorted(self._store.read_tree(tree).items())
        return [(os.fsdecode(n), len(self._store.read_tree(e.sha)) if e.mode == TREE else None) for n, e in entries]

    def place_branch_files(self, commit: str) -> None:
        """Make `.GCC/branches` on disk what it is in a commit."""
        with self._writing():
            known = self._store.read_tree(self._gcc.scan()) if (self.path / ".GCC").is_dir() else {}
            self._store.barrier()
            found = known.get(b"branches")
            wanted = branches_tree(self._store, commit)
            place(self._store, self.path, self.private, found.sha if found is not None else EMPTY_TREE, wanted)

    def note_merge(self, theirs: str | None) -> None:
        """Let plain git know that a merge of this commit waits, or that none does."""
        with disk_errors(self.path):
            note_merge(self._store.git_dir, theirs)

    def merge_waits(self) -> bool:
        """Say whether a merge waits here to be concluded."""
        return (self._store.git_dir / "MERGE_HEAD").exists()

    def merge_base(self, a: str, b: str) -> str | None:
        """Return the best common ancestor of two commits, or None."""
        said = run_git(self.path, "merge-base", a, b, git_dir=self._store.git_dir, check=False).decode().strip()
        return said if len(said) == 40 else None

    def read_ref(self, ref: str) -> str | None:
        """Return the sha a ref points at, or None."""
        return self._store.read_ref(ref)

    def is_ancestor(self, old: str, new: str) -> bool:
        """Say whether commit `old` is `new` or in its history."""
        if old == new:
            return True
        found = run_git(
            self.path, "rev-list", "--max-count=1", old, f"^{new}", git_dir=self._store.git_dir, check=False
        )
        return self._store.exists(old) and self._store.exists(new) and not found.strip()

    def head(self) -> Head:
        """Return the branch that is checked out and its commit.

        Raises WorkspaceError when a person has checked out a commit and no branch.
        """
        branch = self.read_head()
        if branch is None:
            at = (self._store.git_dir / "HEAD").read_text().strip()
            hint = "check out a branch again: `git switch main`"
            raise WorkspaceError(f"{self.path}: no branch is checked out (HEAD is {at[:12]})", hint, "detached")
        return Head(branch, self._store.read_ref(f"{HEADS}{branch}"))

    def read_head(self) -> str | None:
        """Return the branch that is checked out, or None when there is none."""
        text = (self._store.git_dir / "HEAD").read_text().strip()
        return text.removeprefix(f"ref: {HEADS}") if text.startswith(f"ref: {HEADS}") else None

    def switch_head(self, branch: str) -> None:
        """Make a branch the checked-out one, durably; the working files are the caller's (`restore`)."""
        with disk_errors(self.path):
            run_git(self.path, "symbolic-ref", "HEAD", f"refs/heads/{branch}", git_dir=self._store.git_dir)
            locks.sync_path(self._store.git_dir / "HEAD")
            locks.sync_path(self._store.git_dir)
        self._boundary("head.switched")

    def restore(self, tree: str, rescue_id: str, saved: Collection[str] = ()) -> Restored:
        """Make the working files equal to a tree; when they differ, they are first saved to `refs/rlm-agent/rescue/<id>`.

        Not so what is one of the trees `saved`, which are in a commit.
        """
        with self._writing():
            return self._restorer.restore(tree, rescue_id, saved)

    def changes(self, tree_a: str, tree_b: str) -> tuple[Change, ...]:
        """Return what differs between two trees or commits, in path order."""
        return changes(self._store, tree_a, tree_b)

    def sync_index(self) -> None:
        """Make git's index say what HEAD says, so that `git status` shows what really changed."""
        with disk_errors(self.path):
            git_dir = self._store.git_dir
            if self.head().sha is not None:
                run_git(self.path, "read-tree", "--reset", "HEAD", git_dir=git_dir)
                run_git(self.path, "update-index", "-q", "--refresh", git_dir=git_dir, check=False)
        self._boundary("index.synced")

    def clear_stale_locks(self) -> tuple[str, ...]:
        """Remove what a killed git process left; only for a caller that holds the run's lock. Return what was removed."""
        with disk_errors(self.path):
            return locks.clear(self._store.git_dir, self._store.common_dir)

    def fsck(self) -> list[str]:
        """Check every object and ref; return git's complaints, none when all is well."""
        # What stands in a .gitmodules or .gitattributes file of the work is not the repository's health.
        quiet = [part for name in _CONTENT_CHECKS for part in ("-c", f"fsck.{name}=ignore")]
        args = (*quiet, "fsck", "--strict", "--full", "--no-dangling", "--no-progress")
        said = run_git(self.path, *args, git_dir=self._store.git_dir, check=False).decode(errors="replace")
        return [line for line in said.splitlines() if line and not line.startswith(("notice:", "Checking"))]

    def log(self, branch: str, limit: int | None = 50) -> tuple[CommitEntry, ...]:
        """Return the newest commits of a branch, ref or commit (all of them for `limit` None), newest first.

        Raises WorkspaceError when there is no such branch.
        """
        commit = self._store.resolve(branch)
        if commit is None:
            raise WorkspaceError(f"{self.path}: there is no branch {branch!r}", "see `git branch`", "usage")
        return self._history.log(commit, limit)

    def file_at(self, rev: str, path: str) -> bytes | None:
        """Return a file's content in a commit, branch or tree; None when it is not there."""
        *folders, name = os.fsencode(path).split(b"/")
        if not self._store.exists(rev):
            return None
        entries = self._store.read_tree(rev)
        for folder in folders:
            found = entries.get(folder)
            if found is None or found.mode != TREE:
                return None
            entries = self._store.read_tree(found.sha)
        file = entries.get(name)
        if file is None or file.mode == TREE:
            return None
        return self._store.read_object(file.sha)[1]

    def close(self) -> None:
        """End all git processes of this workspace."""
        with suppress(WorkspaceError):  # it failed: the next one says so, and nothing is lost
            self.packing.finish()
        self._scanner.close()
        self._rules.close()
        self._history.close()
        self._store.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """After a failure look at all files again: what was seen may point at objects that never became durable."""
        try:
            with disk_errors(self.path):
                yield
        except BaseException:
            self._scanner.forget()
            self._gcc.forget()
            raise

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
