"""Documents that are not UTF-8 text get a text copy, once: its name is the hash of the source and the extractor's version.

The host makes the copies when it lists the material, so the REPL needs neither the libraries nor the time. A copy appears
whole or not at all. A source that can't be taken apart is refused with the reason; one whose library is not installed stays
what it is and says so when it is read.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from agent.context import extract

VERSION = 1
LARGEST = 1 << 30
_GRACE = 30


class Unreadable(ValueError):
    """A document whose text can't be taken out; the message says why."""


@cache
def convertible(kind: str) -> bool:
    """Say whether documents of this kind can be turned into text here."""
    return all(find_spec(name) is not None for name in extract.NEEDS.get(kind, ()))


def text_copy(source: str, kind: str, folder: Path) -> Path:
    """Return the text copy of a document in `folder`, made if it is not there; raise `Unreadable`."""
    if os.path.getsize(source) > LARGEST:
        raise Unreadable(f"{kind} above {LARGEST >> 30} GB: split it, or turn it into text beforehand")
    with open(source, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target = folder / f"{digest}-{kind}-{VERSION}.txt"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _extract(kind, source, target)
    return target


def _extract(kind: str, source: str, target: Path) -> None:
    descriptor, part = tempfile.mkstemp(dir=target.parent, prefix=".part-")
    os.close(descriptor)
    command = [sys.executable, "-I", extract.__file__, kind, source, part]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env={}, cwd="/", timeout=extract.SECONDS + _GRACE
        )
        if done.returncode:
            raise Unreadable(f"{kind} without readable text: {_reason(done)}")
        os.replace(part, target)
    except subprocess.TimeoutExpired as error:
        raise Unreadable(f"{kind}: took longer than {error.timeout:.0f} s") from error
    finally:
        Path(part).unlink(missing_ok=True)


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode < 0:
        return f"its extractor was ended by signal {-done.returncode} (too much time or output)"
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else f"exit code {done.returncode}"
