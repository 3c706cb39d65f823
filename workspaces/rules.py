"""What a snapshot leaves out: the run's own folders, secrets, what the user's ignore rules name, and what git
can't hold.

The invariant: the answer depends on the files and on git's index, never on what was asked before, so that a
killed and resumed run makes the same trees. What git already tracks stays in, or a commit would delete it
from the user's history.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from workspaces.command import GitPipe, git_environment, git_failed
from workspaces.objects import GITLINK

SECRETS = (
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    ".netrc",
    ".pypirc",
    ".git-credentials",
    ".htpasswd",
    ".ssh",
    ".gnupg",
    ".aws",
)
NO_SECRETS = (".env.example", ".env.sample", ".env.template", ".env.dist", "*.pub")

_SECRET_SET = frozenset(name for name in SECRETS if "*" not in name)
_SECRET_GLOBS = tuple(name for name in SECRETS if "*" in name)
# `git fsck --strict` refuses what a Mac or Windows would read as `.git`.
_DOT_GIT = re.compile(r"(\.git|git~1)[ .]*(:.*)?", re.IGNORECASE)
_BATCH_BYTES = 16_384
_INVISIBLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


def exclude_lines() -> str:
    """Return the lines for `.git/info/exclude`: what we leave out is also left out by a person's `git add .`."""
    return "".join(f"{name}\n" for name in SECRETS) + "".join(f"!{name}\n" for name in NO_SECRETS)


def is_secret(name: str) -> bool:
    """Tell whether a file or folder of this name usually holds a secret."""
    if name in _SECRET_SET:
        return True
    if not any(fnmatchcase(name, glob) for glob in _SECRET_GLOBS):
        return False
    return not any(fnmatchcase(name, glob) for glob in NO_SECRETS)


def is_dot_git(name: str) -> bool:
    """Tell whether git itself would take a file or folder of this name for a repository."""
    return _DOT_GIT.fullmatch(_INVISIBLE.sub("", name)) is not None


class IgnoreRules:
    """The user's `.gitignore` files as git understands them, asked in batches of one long-lived `git check-ignore`."""

    def __init__(self, work_tree: Path, git_dir: Path) -> None:
        # --no-index: what is tracked is looked up in `Tracked`; git would go through its whole index for each path.
        self._pipe = GitPipe(work_tree, git_dir, "check-ignore", "--no-index", "--stdin", "-z", "-v", "-n")

    def forget(self) -> None:
        """Read the rules again at the next question."""
        self._pipe.close()

    close = forget

    def ignored(self, paths: list[str]) -> list[bool]:
        """Tell for each path, relative to the work tree, whether a rule names it."""
        answers: list[bool] = []
        while len(answers) < len(paths):
            batch, size = [], 0
            for path in paths[len(answers) :]:
                # "./" keeps git from reading a leading ":" as pathspec magic.
                batch.append(b"./" + os.fsencode(path) + b"\0")
                size += len(batch[-1])
                if size > _BATCH_BYTES:
                    break
            answers += self._ask(batch)
        return answers

    def _ask(self, batch: list[bytes]) -> list[bool]:
        """Ask for a batch small enough for the pipe to hold, so that neither side waits for the other."""
        stream = self._pipe.request(b"".join(batch))
        said = bytearray()
        while said.count(b"\0") < 4 * len(batch):
            part = stream.read1(1 << 16)  # type: ignore[attr-defined]
            if not part:
                break
            said += part
        fields = bytes(said).split(b"\0")[:-1]
        patterns = fields[2::4]
        answers = [bool(pattern) and not pattern.startswith(b"!") for pattern in patterns]
        if len(answers) < len(batch):
            self._pipe.close()  # git gives up on a path that went away or turned into a link
            answers.append(False)
        return answers


class Tracked:
    """What git's index holds, read again when the index file has changed."""

    def __init__(self, work_tree: Path, git_dir: Path) -> None:
        self._work_tree, self._git_dir = work_tree, git_dir
        self._mark: tuple[int, ...] | None = None
        self.files: dict[str, tuple[int, str]] = {}
        self.folders: set[str] = set()

    def refresh(
        self, is_left_out: Callable[[str], bool] = lambda _: False, is_seen: Callable[[str], bool] = lambda _: False
    ) -> bool:
        """Read the index if it has changed; return whether that can change what else is left out.

        It cannot where only paths came that `is_seen`, as with every commit of our own.
        """
        try:
            found = (self._git_dir / "index").stat()
            mark: tuple[int, ...] = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
        except FileNotFoundError:
            mark = ()
        if mark == self._mark:
            return False
        before, first = self.files, self._mark is None
        self.files, self.folders = self._read() if mark else ({}, set())
        self._mark = mark
        gone, came = before.keys() - self.files.keys(), self.files.keys() - before.keys()
        links = [path for path, (mode, _) in self.files.items() if mode == GITLINK]
        return (
            first
            or not all(map(is_left_out, gone))
            or any(before.get(path) != self.files[path] for path in links)
            or not all(is_left_out(path) or is_seen(path) for path in came)
        )

    def _read(self) -> tuple[dict[str, tuple[int, str]], set[str]]:
        listed = subprocess.run(
            ["git", "ls-files", "--stage", "-z"],
            cwd=self._work_tree,
            env=git_environment(self._work_tree, self._git_dir),
            capture_output=True,
        )
        if listed.returncode:
            raise git_failed(self._work_tree, "ls-files", listed.stderr)
        files: dict[str, tuple[int, str]] = {}
        folders: set[str] = set()
        for record in listed.stdout.split(b"\0")[:-1]:
            facts, _, path = record.partition(b"\t")
            mode, sha, _stage = facts.split()
            name = os.fsdecode(path)
            files[name] = (int(mode, 8), sha.decode())
            folder = os.path.dirname(name)
            while folder and folder not in folders:
                folders.add(folder)
                folder = os.path.dirname(folder)
        return files, folders
