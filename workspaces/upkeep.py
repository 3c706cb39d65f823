"""Keeping a repository small while it is worked in: loose objects are packed now and then, and old checkpoints thinned.

The invariant: nothing that a ref reaches goes away, and what no ref reaches stays for two weeks, since it may be what a crash has
to be redone from. Packing runs in a process of its own beside the work; a kill leaves a temporary file, which the next start
clears.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from workspaces.command import git_environment, git_failed
from workspaces.locks import sync_path
from workspaces.store import GitStore

LOOSE = 2_000  # loose objects from which on it is worth to pack them
_EXPIRE = "2.weeks.ago"
#: Checkpoints that are kept: (how many steps back, of how many one stays).
THINNING = ((1_000, 1), (10_000, 10), (1 << 60, 100))


class Packing:
    """One packing at a time, in the background."""

    def __init__(self, work_tree: Path, store: GitStore) -> None:
        self._work_tree, self._store = work_tree, store
        self._process: subprocess.Popen[bytes] | None = None

    def due(self) -> bool:
        """Say whether there are enough loose objects, and no packing is on."""
        return not self.on and loose_objects(self._store.common_dir) >= LOOSE

    @property
    def on(self) -> bool:
        """Say whether a packing is on."""
        return self._process is not None and self._process.poll() is None

    def start(self, whole: bool = False) -> None:
        """Begin to pack what is loose; `whole` makes one pack of all, and lets what nothing reaches go after two weeks.

        Raises WorkspaceError with git's own words when the last packing failed.
        """
        if self.on:
            return
        self._reap()
        kind = ["--cruft", f"--cruft-expiration={_EXPIRE}"] if whole else ["--geometric=2"]
        if whole:
            self._store.forget_written()  # what expires has to be written again where it is needed again
        self._process = subprocess.Popen(
            ["nice", "-n", "10", "git", "-c", "pack.threads=1", "repack", "-q", "-d", "-l", *kind],
            cwd=self._work_tree,
            env=git_environment(self._work_tree, self._store.git_dir),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def finish(self, seconds: float = 60.0) -> None:
        """Wait for a packing that is on, and end one that takes longer; raises WorkspaceError when it failed."""
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.terminate()  # git removes what it has begun
                self._process.wait()
                self._process.returncode = 0
            self._reap()

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            said = process.communicate()[1]
            if process.returncode:
                raise git_failed(self._work_tree, "repack", said)


def loose_objects(common_dir: Path) -> int:
    """Estimate how many loose objects there are, from one of their 256 folders."""
    try:
        return 256 * len(os.listdir(common_dir / "objects" / "17"))
    except FileNotFoundError:
        return 0


def is_kept(step: int, newest: int) -> bool:
    """Say whether the checkpoint of a step is kept: all of the newest, fewer the older they are."""
    for back, of in THINNING:
        if newest - step <= back:
            return step % of == 0
    return False


def rewrite_chain(store: GitStore, commits: Sequence[str]) -> list[str]:
    """Return the same commits, oldest first, each with the one before it as its only parent; durable when this returns.

    What has that parent already is taken as it is, so only what comes behind a gap is written anew.
    """
    made: list[str] = []
    for commit in commits:
        kind, content = store.read_object(commit)
        head, _, rest = content.partition(b"\n\n")
        lines = head.split(b"\n")
        parents = [line for line in lines if line.startswith(b"parent ")]
        wanted = [b"parent " + made[-1].encode()] if made else []
        if kind == "commit" and parents == wanted:
            made.append(commit)
            continue
        body = [lines[0], *wanted, *(line for line in lines[1:] if not line.startswith(b"parent "))]
        made.append(store.write_commit_bytes(b"\n".join(body) + b"\n\n" + rest))
    store.barrier()
    sync_path(store.common_dir / "objects")
    return made
