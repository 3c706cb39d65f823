"""What a scan of the working files remembers: each file as it was when it was hashed, each folder as it was listed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from workspaces.rules import IgnoreRules, Tracked

MAX_FILE_BYTES = 50 * 1024 * 1024
MAX_DEPTH = 200
_TICK_NS = 30_000_000
_COARSE_TICK_NS = 2_500_000_000  # file systems that keep whole seconds
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Signature = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A path that a snapshot leaves out, and why: oversized, secret, git, special, unreadable, deep."""

    path: str
    reason: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class File:
    """A file that was hashed; a `racy` one may have changed since without a trace."""

    signature: Signature
    racy: bool
    mode: int
    sha: bytes


@dataclass(slots=True)
class Folder:
    """What the last scan saw in one folder."""

    files: dict[str, File] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    verdicts: dict[str, bool] = field(default_factory=dict)
    rules: bytes | None = None
    skipped: tuple[Skipped, ...] = ()
    #: sha of the folder's tree; None when there is nothing in it that a snapshot holds
    sha: bytes | None = None
    scanned: bool = False
    #: the descriptor of its watch; None when nothing tells of changes in it
    watch: int | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """What a scan covers: everything, or what a user's work tree holds."""

    rules: IgnoreRules | None = None
    tracked: Tracked | None = None
    #: paths, relative to the root, that are not looked at
    left_out: frozenset[str] = frozenset({".rlm-agent", ".GCC/branches"})
    max_bytes: int = MAX_FILE_BYTES


def signature_of(found: os.stat_result) -> Signature:
    """Return what must stay the same for a file to count as unchanged."""
    return found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


def matches(entry: os.DirEntry[str], signature: Signature) -> bool:
    try:
        return signature_of(entry.stat(follow_symlinks=False)) == signature
    except OSError:
        return False


def is_racy(changed_ns: int) -> bool:
    tick = _COARSE_TICK_NS if changed_ns % 1_000_000_000 == 0 else _TICK_NS
    return changed_ns > time.time_ns() - tick


def same(files: dict[str, File], known: dict[str, File]) -> bool:
    if len(files) != len(known):
        return False
    for name, file in files.items():
        before = known.get(name)
        if before is None or (before is not file and (before.sha != file.sha or before.mode != file.mode)):
            return False
    return True


def read_at(fd: int, name: str) -> bytes:
    descriptor = os.open(name, _READ, dir_fd=fd)
    with open(descriptor, "rb") as file:
        return file.read()
