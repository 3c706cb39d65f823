"""What Python needs to start inside a sandbox and to import the worker, and nothing of the host besides.

The environment is made from nothing, so no key can come in; folders are named one by one, so a checkout's
or a home's other contents stay outside.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path


def environment(home: str) -> dict[str, str]:
    """Give the whole environment of a process inside: nothing of the host's comes in."""
    folders = [os.path.join(sys.prefix, "bin"), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    return {
        "PATH": ":".join(folders),
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": ":".join(map(str, extra_imports())),
    }


def packages() -> Path:
    """Give the folder that holds agent, state and workspaces."""
    return Path(__file__).resolve().parents[2]


def extra_imports() -> list[Path]:
    """Give the folders that Python inside would not find by itself: a checkout, a user's site-packages."""
    sites = [Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    roots = [Path(sys.prefix), Path(sys.base_prefix), Path("/usr")]
    return [p for p in (packages(), *sites) if p.is_dir() and not any(p.is_relative_to(root) for root in roots)]


def link_packages(folder: Path) -> None:
    """Make a folder to import our packages from: Landlock would open a checkout's root with all in it."""
    folder.mkdir()
    for name in ("agent", "state", "workspaces"):
        if (packages() / name).is_dir():
            (folder / name).symlink_to(packages() / name)


@functools.cache
def python_paths() -> list[Path]:
    """Give what Python needs to start inside and import the worker."""
    ours = [packages() / name for name in ("agent", "state", "workspaces")]
    roots = [Path(sys.prefix), Path(sys.base_prefix), Path(os.path.realpath(sys.executable)).parent]
    sites = [path for path in extra_imports() if path != packages()]
    return [path for path in (*roots, *ours, *sites) if path.is_dir() and not str(path).startswith(("/usr/", "/bin"))]


def programs() -> list[Path]:
    """Give the paths by which Python is started; each symlink on their way must work inside."""
    return [Path(sys.executable), Path(sys.prefix), Path(sys.base_prefix)]
