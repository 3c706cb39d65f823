"""The gigabyte that contexts are measured with, what it takes to look at it in a run, and searches beside ripgrep's."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import msgspec

from benchmarks import drive
from benchmarks.figures import Figure, Peer, figure
from benchmarks.peers import FOLDER

_BYTES = 1_000_000_000
_BOTH_ENDS = "ends = context[0].peek(80), context[0][-80:].text"
_LOOK = """import time, json
began = time.perf_counter()
hits = len(context.search('zebra', limit=10**9))
search_s = time.perf_counter() - began
status = open('/proc/self/status').read()
memory = int(status.split('VmHWM:')[1].split()[0]) / 1024
""" + drive.SEND.format("json.dumps({'search_s': search_s, 'memory': memory, 'hits': hits})")


class Look(msgspec.Struct, frozen=True):
    """What a run took to search all of its context: seconds in the cell, memory of host and REPL at the peak, matches."""

    search_s: float
    memory_mb: float
    hits: int


def one_gigabyte() -> Path:
    """Return a text file of 1 GB, the same on every computer, made when it is first asked for."""
    file = FOLDER / "corpus" / "one-gigabyte.txt"
    if file.exists() and file.stat().st_size == _BYTES:
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    with fresh.open("wb") as out:
        for number in range(_BYTES // 10_000_000):
            out.write(_ten_megabytes(number))
    return fresh.replace(file)


def ready(folder: Path, file: Path, runs: int) -> list[float]:
    """Return the milliseconds until a running REPL has the file as `context` and a cell has seen both of its ends."""
    from agent.context.manifest import ContextSource, build_manifest

    times = []
    for _ in range(runs + 1):
        with drive.repl(folder, (file,)) as repl:
            began = time.perf_counter()
            manifest = build_manifest([ContextSource(str(file))])
            repl.init({"manifest": msgspec.to_builtins(manifest)})
            result = repl.run([_BOTH_ENDS], 1, lambda _kind, _args: None, 60.0, 8192)
            times.append((time.perf_counter() - began) * 1e3)
            assert result.ok, result.output
    return times[1:]


def look(folder: Path, file: Path) -> Look:
    """Run a task over the file and return what its cell and the host saw."""
    Path("/proc/self/clear_refs").write_text("5")  # the host's peak begins anew
    done = drive.through_task(folder, [{"reply": drive.cell(_LOOK)}], context=file)
    host = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    told = json.loads(done.answer)
    return Look(told["search_s"], told["memory"] + host, told["hits"])


def searches(bench: str, file: Path) -> list[Figure]:
    """Return the figures of searches beside ripgrep's, as `benchmarks.context` measures them."""
    from benchmarks import context

    made = []
    for found in context.search(file):
        peer = Peer(found["peer"], found["peer_value"]) if found.get("peer_value") is not None else None
        made.append(
            figure(
                bench, found["name"], found["unit"], [found["value"]], found.get("target"), peer, found.get("note", "")
            )
        )
    return made


def _ten_megabytes(number: int) -> bytes:
    """Return ten megabytes of words, a rare one among them."""
    chance = random.Random(number)
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    weights = range(len(letters), 0, -1)
    words = ["".join(chance.choices(letters, weights, k=chance.choice((2, 3, 4, 5, 6, 7, 9, 12)))) for _ in range(4000)]
    lines = []
    for _ in range(2000):
        day = f"{chance.randrange(1990, 2030)}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}"
        lines.append(f"{day} {' '.join(chance.choices(words, k=chance.randrange(4, 16))).capitalize()}.")
    chance.shuffle(lines)
    block = ("\n".join(lines) + "\n").encode()
    end = b" A rare zebra.\n"
    return (block * (10_000_000 // len(block) + 1))[: 10_000_000 - len(end)] + end
