"""Figures of the context: how soon a gigabyte is ready, what it costs in memory, how fast it is searched beside ripgrep.

`corpus` writes text with the shape of prose (words of many lengths by a power law, dates, a few wide characters, a needle in
every tenth block), the same for the same seed. Each figure is {"name", "value", "unit", "target", "peer", "peer_value"}.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SIZE = 1 << 30
SEED = 7
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
WEIGHTS = (
    12,
    9,
    8,
    7.5,
    7,
    6.7,
    6.3,
    6,
    6,
    4.2,
    4,
    2.8,
    2.7,
    2.4,
    2.2,
    2.3,
    2,
    1.9,
    1,
    1.5,
    2,
    0.8,
    0.2,
    0.1,
    0.2,
    0.1,
)
#: name, pattern, ignore case
PATTERNS = (
    ("rare literal", "zebrafinch", False),
    ("frequent literal", "tiocl", False),
    ("word in any case", "ploer", True),
    ("one of five words", "zebrafinch|rrioes|dstiante|melseyra|qqqqqq", False),
    ("capitalised word in -ed", r"\b[A-Z]\w+ed\b", False),
    ("date", r"\b(19|20)\d\d-\d\d-\d\d\b", False),
    ("no literal", r"\b\w{3,5} \w{9} [a-m]{4}\b", False),
    ("across lines", r"zebrafinch\s+number", False),
    ("no match", "zzzqqqxxxj", False),
)
PATIENCE = 10  # seconds given to the peer; a value of that means it was not done yet
MOST = 10_000_000  # matches that are counted; each is two numbers
TRIES = 3  # the best counts, for both sides


def corpus(folder: Path, size: int = SIZE, seed: int = SEED) -> Path:
    """Return a text file of `size` bytes in `folder`, written when it is not there yet."""
    path = folder / f"corpus-{seed}-{size}.txt"
    if path.exists() and path.stat().st_size == size:
        return path
    rng = random.Random(seed)
    lines = _lines(rng)
    folder.mkdir(parents=True, exist_ok=True)
    part, written = path.with_suffix(".part"), 0
    with open(part, "wb") as file:
        while written < size:
            block = rng.choices(lines, k=20_000)
            if rng.random() < 0.1:
                block[rng.randrange(len(block))] = f"the zebrafinch number {written} sings\n".encode()
            written += file.write(b"".join(block)[: size - written])
    os.replace(part, path)
    return path


def _lines(rng: random.Random) -> list[bytes]:
    words = ["".join(rng.choices(LETTERS, WEIGHTS, k=max(1, min(14, int(rng.gauss(5.5, 2.6)))))) for _ in range(20_000)]
    words += [word + "ed" for word in rng.sample(words, 1500)]
    ranks, total = [], 0.0
    for rank in range(len(words)):
        total += 1 / (rank + 3)
        ranks.append(total)
    rng.shuffle(words)
    return [_line(rng, words, ranks) for _ in range(40_000)]


def _line(rng: random.Random, words: list[str], ranks: list[float]) -> bytes:
    row = rng.choices(words, cum_weights=ranks, k=rng.choice((3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24)))
    if rng.random() < 0.3:
        row[0] = row[0].capitalize()
    if rng.random() < 0.05:
        row.insert(rng.randrange(len(row)), rng.choice(words).capitalize())
    if rng.random() < 0.02:
        row.append(f"{rng.randrange(1970, 2026)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}")
    if rng.random() < 0.01:
        row.append("größer")
    return (" ".join(row) + rng.choice(("", "", ".", ".", ",", " !")) + "\n").encode()


READY = """
import json, sys, time
from agent.context import open_context
from agent.context.manifest import ContextSource, build_manifest
def high():
    return next(int(row.split()[1]) for row in open("/proc/self/status") if row.startswith("VmHWM")) / 1024
idle = high()
start = time.perf_counter()
context = open_context(build_manifest([ContextSource(path) for path in sys.argv[2:]]))
context[0].peek()
ready = time.perf_counter() - start
opened = high()
doc = context[0]
if sys.argv[1] == "open":
    print(json.dumps({"ready": ready}))
    sys.exit()
for pattern in ("zebrafinch", r"\\b[A-Z]\\w+ed\\b", r"number\\s+\\d"):
    doc.search(pattern)
doc.search("zzzqqqxxxj"), doc.line_of(doc.size), doc.lines(-1, 3), doc[doc.size // 2 :].peek(), context.parts(8)
print(json.dumps({"ready": ready, "opened": opened - idle, "used": high() - idle}))
"""


def ready(folder: Path) -> dict[str, Any]:
    """Measure how long a corpus of 1 GB takes from its path to its first characters, as the best of five fresh processes."""
    path = corpus(folder)
    best = min(_fresh("open", path)["ready"] for _ in range(5))
    return _figure("1 GB context ready", best * 1000, "ms", 50)


def memory(folder: Path) -> dict[str, Any]:
    """Measure the most memory above an idle process after opening, searching and counting the lines of 1 GB."""
    return _figure("memory above idle, 1 GB opened and searched", _fresh("use", corpus(folder))["used"], "MB", 64)


def _fresh(work: str, path: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", READY, work, str(path)], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def search(file: Path) -> list[dict[str, Any]]:
    """Measure searches of a file beside `rg -n`, which prints the same lines: the first 1,000 matches, then all."""
    rg = shutil.which("rg") or shutil.which("rg", path=str(Path(sys.executable).parent))
    file.read_bytes() if file.stat().st_size < 1 << 20 else subprocess.run(
        ["cat", str(file)], stdout=subprocess.DEVNULL
    )
    figures = []
    for name, pattern, ignore_case in PATTERNS:
        peer = _ripgrep(rg, pattern, ignore_case, file) if rg else {}
        first, _ = _timed(file, pattern, ignore_case, 1000)
        whole, count = _timed(file, pattern, ignore_case, MOST)
        note = f"{count} matches" if count < MOST else f"stopped at {MOST} matches"
        figures.append(
            _figure(
                f"search 1 GB, {name}: all ({note})",
                whole,
                "s",
                _target(peer.get("-n"), count < MOST),
                "rg -n",
                peer.get("-n"),
            )
        )
        figures.append(
            _figure(
                f"search 1 GB, {name}: limit=1000", first, "s", _target(peer.get("-m")), "rg -n -m 1000", peer.get("-m")
            )
        )
        figures.append(_figure(f"search 1 GB, {name}: count by rg", whole, "s", None, "rg --count -j1", peer.get("-c")))
    return figures


def _target(peer: float | None, same_work: bool = True) -> float | None:
    """Ask for 1.5 times the peer, unless the peer was not done in time or we stopped before the end."""
    return round(1.5 * peer, 3) if peer and peer < PATIENCE and same_work else None


def _timed(file: Path, pattern: str, ignore_case: bool, limit: int) -> tuple[float, int]:
    from agent.context import Document

    doc = Document(str(file), file.name, 0, file.stat().st_size)
    best, count = float("inf"), 0
    for _ in range(TRIES):
        start = time.perf_counter()
        count = len(doc.search(pattern, ignore_case, limit))
        best = min(best, time.perf_counter() - start)
    return best, count


def _ripgrep(rg: str, pattern: str, ignore_case: bool, file: Path) -> dict[str, float]:
    common = [*(["-i"] if ignore_case else []), *(["-U"] if r"\s" in pattern else []), "--", pattern, str(file)]
    took = {}
    for key, options in {"-n": ["-n"], "-m": ["-n", "-m", "1000"], "-c": ["--count", "-j1"]}.items():
        took[key] = float(PATIENCE)
        with contextlib.suppress(subprocess.TimeoutExpired):
            for _ in range(TRIES):
                start = time.perf_counter()
                subprocess.run([rg, "--no-config", *options, *common], stdout=subprocess.DEVNULL, timeout=PATIENCE)
                took[key] = min(took[key], time.perf_counter() - start)
    return took


def _figure(
    name: str, value: float, unit: str, target: float | None, peer: str = "", peer_value: Any = None
) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(value, 3),
        "unit": unit,
        "target": target,
        "peer": peer,
        "peer_value": peer_value and round(peer_value, 3),
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    for measure in (lambda: [ready(place)], lambda: [memory(place)], lambda: search(corpus(place))):
        for figure in measure():
            print(json.dumps(figure), flush=True)
