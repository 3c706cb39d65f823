"""The gigabyte that contexts are measured with, what it takes to look at it in a run, and searches beside ripgrep's."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks import drive
from benchmarks.context import corpus
from benchmarks.peers import FOLDER

_BOTH_ENDS = """import time
began = time.perf_counter()
ends = context[0].peek(80), context[0][-80:].text
""" + drive.SEND.format("time.perf_counter() - began")
_LOOK = """import time, json
began = time.perf_counter()
hits = len(context.search('zebrafinch', limit=10**9))
search_s = time.perf_counter() - began
status = open('/proc/self/status').read()
memory = int(status.split('VmHWM:')[1].split()[0]) / 1024
""" + drive.SEND.format("json.dumps({'search_s': search_s, 'memory': memory, 'hits': hits})")


#: a rare word, the same in any case, one of five, a shape found 268,419 times, no literal, no match
PATTERNS = {
    "word": r"zebrafinch",
    "any_case": r"(?i)ZEBRAFINCH",
    "five_words": r"zebrafinch|quagga|okapis|tapirs|wombat",
    "shape": r"\b[A-Z]\w+ed\b",
    "no_literal": r"[aeiou]{8}",
    "no_match": r"20[12]\d-02-29",
}
_SEARCH = """import time, json
began = time.perf_counter()
found = context.search({pattern!r}, limit=10**9)
bare = time.perf_counter() - began
lines = [match.line for match in found]
""" + drive.SEND.format("json.dumps([time.perf_counter() - began, bare, len(lines)])")


class Found(msgspec.Struct, frozen=True):
    """What one search took, in seconds with the matches' line numbers and without, and how many matches it found."""

    seconds: float
    bare: float
    matches: int


class Look(msgspec.Struct, frozen=True):
    """What searching the whole context took: seconds in the cell, and MB of host and REPL at the peak, above idle."""

    search_s: float
    memory_mb: float


def one_gigabyte() -> Path:
    """Return a text of 1 GB, the same on every computer, made when it is first asked for."""
    return corpus(FOLDER / "corpus")


def ready(folder: Path, file: Path, runs: int) -> tuple[list[float], list[float]]:
    """Return milliseconds: listing the file and a cell's first look at both ends; and a completion's excess over one line's."""
    from agent.context.manifest import ContextSource, build_manifest

    line, looked, excess = _one_line(folder), [], []
    with drive.completions(folder, [{"reply": drive.cell(_BOTH_ENDS), "forever": True}]) as once:
        for _ in range(runs + 1):
            without, whole = once(line), once(file)
            began = time.perf_counter()
            build_manifest([ContextSource(str(file))])
            looked.append((time.perf_counter() - began + float(whole.answer)) * 1e3)
            excess.append((whole.seconds - without.seconds) * 1e3)
    return looked[1:], excess[1:]


def looks(folder: Path, file: Path, runs: int) -> list[Look]:
    """Return what searching all of the file took, in pairs with one line, whose memory is taken off."""
    line, made = _one_line(folder), []
    with drive.completions(folder, [{"reply": drive.cell(_LOOK), "forever": True}]) as once:
        for _ in range(runs + 1):
            _, idle, _ = _look(once, line)
            search_s, memory, hits = _look(once, file)
            if not hits:
                raise RuntimeError(f"{file}: the rare word was not found")
            made.append(Look(search_s, memory - idle))
    return made[1:]


def _look(once: Callable[..., drive.Done], file: Path) -> tuple[float, float, int]:
    """Return seconds, MB of host and REPL at the peak, and matches."""
    Path("/proc/self/clear_refs").write_text("5")  # the host's peak begins anew
    told = json.loads(once(file).answer)
    host = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    return told["search_s"], told["memory"] + host, told["hits"]


def _one_line(folder: Path) -> Path:
    file = folder / "one-line.txt"
    file.write_text("nothing but a line\n")
    return file


def search(folder: Path, file: Path, pattern: str, runs: int, ripgrep: str) -> tuple[list[Found], list[Found]]:
    """Search in a cell and by ripgrep (a path, or empty for without), in turns; both give all matches with their lines."""
    ours, theirs = [], []
    with drive.completions(folder, [{"reply": drive.cell(_SEARCH.format(pattern=pattern)), "forever": True}]) as once:
        for _ in range(runs + 1):
            ours.append(Found(*json.loads(once(file).answer)))
            if ripgrep:
                theirs.append(_ripgrep(ripgrep, pattern, file))
    return ours[1:], theirs[1:]


def _ripgrep(program: str, pattern: str, file: Path) -> Found:
    seconds, found = {}, 0
    for lines in ("-n", "-N"):
        began = time.perf_counter()
        done = subprocess.run([program, lines, "-o", "--no-config", "-e", pattern, str(file)], capture_output=True)
        seconds[lines], found = time.perf_counter() - began, done.stdout.count(b"\n")
    return Found(seconds["-n"], seconds["-N"], found)
