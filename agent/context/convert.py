"""Documents that are not UTF-8 text get a text copy, once: its name is the hash of the source and the extractor's version.

The host makes the copies when it lists the material, so the REPL needs neither the libraries nor the time. A copy appears
whole or not at all. A source that can't be taken apart is refused with the reason; one whose library is not installed stays
what it is and says so when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from agent.context import extract

VERSION = 2
LARGEST = 1 << 30
_GRACE = 30
_AT_ONCE = min(4, os.cpu_count() or 1)


class Unreadable(ValueError):
    """A document whose text can't be taken out; the message says why."""


@cache
def convertible(kind: str) -> bool:
    """Say whether documents of this kind can be turned into text here."""
    return all(find_spec(name) is not None for name in extract.NEEDS.get(kind, ()))


def text_copies(wanted: Sequence[tuple[str, str]], folder: Path) -> list[Path | Unreadable]:
    """Return for each (source, kind) its text copy in `folder`, made if it is not there, or why there is none."""
    if not wanted:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    extractors = _Extractors(folder)
    try:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="extract") as pool:
            return list(pool.map(extractors.copy, wanted))
    finally:
        extractors.close()


class _Extractors:
    """One extractor process for each thread that asks, started when it is needed and again when a document ended it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mine = threading.local()
        self._all: list[subprocess.Popen[str]] = []

    def copy(self, wanted: tuple[str, str]) -> Path | Unreadable:
        source, kind = wanted
        try:
            if os.path.getsize(source) > LARGEST:
                return Unreadable(f"{kind} above {LARGEST >> 30} GB: split it, or turn it into text beforehand")
            with open(source, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return Unreadable(error.strerror or "unreadable")
        target = self._folder / f"{digest}-{kind}-{VERSION}.txt"
        return target if target.exists() else self._make(kind, source, target)

    def close(self) -> None:
        for process in self._all:
            process.kill()
            process.communicate()

    def _make(self, kind: str, source: str, target: Path) -> Path | Unreadable:
        descriptor, part = tempfile.mkstemp(dir=self._folder, prefix=".part-")
        os.close(descriptor)
        try:
            problem = self._ask([kind, source, part])
            if problem:
                return Unreadable(f"{kind} without readable text: {problem}")
            os.replace(part, target)
            return target
        finally:
            Path(part).unlink(missing_ok=True)

    def _ask(self, job: list[str]) -> str:
        """Return what an extractor says is wrong with a document; empty when its text is there."""
        process = self._process()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], extract.SECONDS + _GRACE)
            answer = process.stdout.readline() if ready else ""
        except OSError:
            answer = ""
        if answer:
            return str(json.loads(answer))
        process.kill()
        code = process.wait()
        return f"it took longer than {extract.SECONDS + _GRACE} s" if not ready else _ending(code)

    def _process(self) -> subprocess.Popen[str]:
        found: subprocess.Popen[str] | None = getattr(self._mine, "process", None)
        if found is None or found.poll() is not None:
            pipe, command = subprocess.PIPE, [sys.executable, "-I", extract.__file__]
            found = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env={}, cwd="/"
            )
            self._mine.process = found
            self._all.append(found)
        return found


def _ending(code: int) -> str:
    return (
        f"its extractor was ended by signal {-code} (too much time, memory or output)"
        if code < 0
        else f"exit code {code}"
    )
