"""What can go wrong with a workspace, and the way out of it: every error says its kind, its hint and its exit
code.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DISK = {
    errno.ENOSPC: ("disk_full", "free some space, then run `rlm-agent resume`; nothing is lost"),
    errno.EDQUOT: (
        "disk_full",
        "raise the quota or free some space, then run `rlm-agent resume`; nothing is lost",
    ),
    errno.EROFS: ("read_only", "mount the disk writable again, then run `rlm-agent resume`; nothing is lost"),
    errno.EACCES: (
        "permission",
        "give the user that runs rlm-agent write access to the workspace, then resume",
    ),
    errno.EPERM: (
        "permission",
        "give the user that runs rlm-agent write access to the workspace, then resume",
    ),
    errno.EIO: ("disk", "the disk reports errors: copy the workspace to another one and resume there"),
}


class WorkspaceError(Exception):
    """The workspace's git repository or its files cannot be read or written."""

    kind = "workspace"
    exit_code = 1

    def __init__(self, message: str, hint: str = "", kind: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if kind is not None:
            self.kind = kind


class RefConflict(WorkspaceError):
    """A ref is not where it was expected: somebody else moved it."""

    kind = "ref_conflict"


class NotAWorkspace(WorkspaceError):
    """The folder is no workspace, and cannot be made one without touching what is in it."""

    kind = "not_a_workspace"
    exit_code = 2


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's errors into a WorkspaceError that names the place and the way out."""
    try:
        yield
    except OSError as error:
        kind, hint = _DISK.get(error.errno or 0, ("disk", "look at the folder, then run `rlm-agent resume`"))
        place = error.filename if error.filename is not None else path
        raise WorkspaceError(f"{place}: {error.strerror or error}", hint, kind) from error
