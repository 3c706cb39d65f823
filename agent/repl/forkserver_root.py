"""A root folder made from nothing for one REPL: the mounts of its plan, and no other file.

It runs in a mount namespace of the REPL's own, as the fork server's root. What the fork server itself sees (the sources of
all its REPLs) is detached at the end, so that nothing of it is left to reach. A source that is bound keeps the rights with which
bwrap laid it for the fork server; one that is bound read-only is made so with all that lies below it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import socket
import stat
import struct
from collections.abc import Iterable

Mount = tuple[str, ...]
#: Where a REPL's root is put together; an empty folder of the fork server's own view.
PLACE = "/run/rlm-agent/root"
_NOSUID, _NODEV, _NOEXEC, _RDONLY, _BIND, _REC = 2, 4, 8, 1, 4096, 16384
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR, _OPENAT2, _AT_FDCWD, _AT_RECURSIVE = 442, 437, -100, 0x8000
_READ_ONLY = struct.pack("=QQQQ", 1, 0, 0, 0)  # MOUNT_ATTR_RDONLY, to be set
_NO_LINKS = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, 0x04)  # RESOLVE_NO_SYMLINKS
_SIOCSIFFLAGS, _UP_AND_RUNNING = 0x8914, 0x41

_libc = ctypes.CDLL(None, use_errno=True)


def enter(mounts: Iterable[Mount], tmp_bytes: int) -> None:
    """Make a root of `mounts`, in their order, and enter it; a tmpfs has `tmp_bytes`. Raises OSError."""
    _mount("tmpfs", PLACE, "tmpfs", _NOSUID | _NODEV, f"mode=0755,size={tmp_bytes}")
    for kind, *source, target in mounts:
        place = PLACE + target
        if kind == "--symlink":
            _link(source[0], place)
        elif kind == "--proc":
            _folder(place)
            # The host's root is the same user to /proc/sys as the host's root inside: read-only, or it could be written.
            _mount("proc", place, "proc", _NOSUID | _NODEV | _NOEXEC | _RDONLY)
        elif kind == "--dev":
            _devices(place)
        elif kind == "--tmpfs":
            _folder(place)
            _mount("tmpfs", place, "tmpfs", _NOSUID | _NODEV, f"mode=0755,size={tmp_bytes}")
        else:
            _bind(source[0], place, read_only=kind == "--ro-bind")
    os.chdir(PLACE)
    _checked(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    _checked(_libc.umount2(b".", _DETACH), "the old root")
    os.chdir("/")


def raise_loopback() -> None:
    """Bring up the loopback interface of a new network namespace. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))


def _bind(source: str, place: str, *, read_only: bool) -> None:
    fd = _open(source)
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            _folder(place)
        elif not os.path.lexists(place):
            _folder(os.path.dirname(place))
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))
        _mount(f"/proc/self/fd/{fd}", place, None, _BIND | _REC)
    finally:
        os.close(fd)
    if read_only:
        size = ctypes.c_size_t(len(_READ_ONLY))
        result = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(place), _AT_RECURSIVE, _READ_ONLY, size)
        _checked(result, f"{place} read-only")


def _open(source: str) -> int:
    """Open a source, following no link: a cell that made a link of a part of its workspace must not choose the source."""
    fd = int(_libc.syscall(_OPENAT2, _AT_FDCWD, os.fsencode(source), _NO_LINKS, ctypes.c_size_t(len(_NO_LINKS))))
    _checked(fd, source)
    return fd


def _devices(place: str) -> None:
    """Lay the fork server's devices, but terminals of the REPL's own: those of a sibling are the same user's."""
    _bind("/dev", place, read_only=True)
    _mount("devpts", f"{place}/pts", "devpts", _NOSUID | _NOEXEC, "newinstance,ptmxmode=0666,mode=620")


def _folder(place: str) -> None:
    with contextlib.suppress(FileExistsError):
        try:
            os.mkdir(place)
        except FileNotFoundError:
            os.makedirs(place)


def _link(target: str, place: str) -> None:
    _folder(os.path.dirname(place))
    if not os.path.lexists(place):
        os.symlink(target, place)


def _mount(source: str, place: str, kind: str | None, flags: int, data: str = "") -> None:
    done = _libc.mount(
        os.fsencode(source), os.fsencode(place), kind and kind.encode(), ctypes.c_ulong(flags), data.encode() or None
    )
    _checked(done, f"mount of {source} on {place}")


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
