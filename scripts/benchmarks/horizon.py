"""A run of ten thousand steps over a thousand files: does it stay as quick, as small and as readable as at the beginning?

The model is instant and scripted: each step edits a file, keeps facts in variables, prints some lines; now and then it fails,
commits, and works on a branch that it merges. The run is killed with SIGKILL at its end, resumed, and asked for steps that were
folded long ago.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from benchmarks.drive import cell
from benchmarks.figures import Figure, figure

ROOT = Path(__file__).resolve().parents[2]
FILES, EARLY, WINDOW, RECOVERED, SPARE = 1_000, 100, 50, 20, 200
BOUND, AT_100 = 8_000, 7_000

WORK = """
n = globals().get("n", 0) + 1
name = f"notes/{n * 7919 % 1000:04d}.md"
text = open(name).read()
open(name, "w").write(text[-1500:] + f"note {n}: {n * n}\\n")
facts = globals().get("facts", {})
facts[n % 200] = n * n
print("step", n, "wrote", name)
for i in range(6): print(f"line {i} of what step {n} saw: " + "the quick brown fox jumps over " * 2)
if n % 100 == 37: print(f"FACT: the square of {n} is {n * n}")
if n % 25 == 0: print(COMMIT(f"Reached {n}", f"Notes are written up to {n}."))
if n % 400 == 100: print(BRANCH(f"try/{n}", f"see what the notes of {n} bring"))
if n % 400 == 120: print(SWITCH("main"), MERGE(f"try/{n - 20}"))
if n % 97 == 0: raise ValueError(f"as planned at {n}")
"""
RECOVER = """
import json
asked = json.load(open("/proc/self/cwd/asked.json"))
good = []
for k in asked:
    seen = CONTEXT(step=k)
    wanted = (f"step {k} wrote notes/{k * 7919 % 1000:04d}.md", f"line 5 of what step {k} saw", "n * 7919")
    good.append(all(part in seen for part in wanted))
found = [f"CONTEXT(step={k})" in CONTEXT(find=f'"step {k} wrote"') for k in asked]
open("recovered.json", "w").write(json.dumps([sum(good), sum(found)]))
print(sum(good), sum(found))
"""
#: Runs in a process of its own: `python -c … WORKSPACE TIMES [until the first request]`.
WALK = """
import json, os, sys, time
import agent.daemon, agent.loop, agent.models.scripted, agent.models.digest, sqlalchemy.dialects.sqlite, git, yaml, cloudpickle
from pathlib import Path
path, times, first = Path(sys.argv[1]), open(sys.argv[2], "a", buffering=1 << 16), len(sys.argv) > 3
began = time.perf_counter()
def watch(kind, /, **facts):
    if kind == "step" and facts["depth"] == 0:
        if first:
            print(json.dumps(time.perf_counter() - began), flush=True)
            os._exit(0)
        times.write(json.dumps([facts["step"], time.perf_counter(), facts["prompt_tokens"]]) + "\\n")
        if facts["step"] % 20 == 0: times.flush()
print(agent.daemon.work(path, watch).kind, flush=True)
times.close()
"""


class Options(msgspec.Struct, frozen=True):
    """How far to walk; `long` and peers say nothing here."""

    runs: int = 7
    peers: bool = False
    long: bool = False
    steps: int = 10_000


class Walk(msgspec.Struct, frozen=True):
    """What was seen on the way: of each step its number, when it was planned (seconds), and its prompt's tokens."""

    workspace: Path
    steps: list[tuple[int, float, int]]

    def took(self, around: int, each: int = WINDOW) -> list[float]:
        """Return how many milliseconds each step took that is at most `each` away from step `around`."""
        pairs = zip(self.steps, self.steps[1:], strict=False)
        return [(b[1] - a[1]) * 1000 for a, b in pairs if abs(a[0] - around) <= each and b[0] == a[0] + 1]


def horizon(options: Options, folder: Path) -> Iterable[Figure]:
    """Walk, look, kill, resume, and ask for what was folded."""
    last = options.steps
    walk = walked(folder, last)
    note = f"{last:,} steps, {FILES:,} files"
    early, late = walk.took(EARLY), walk.took(last - WINDOW)
    yield figure("horizon", "step_p50_at_100", "ms", early, 10.0, note="p50 of steps 50 to 150")
    yield figure(
        "horizon",
        "step_p50_at_end",
        "ms",
        late,
        statistics.median(early) * 1.2,
        note=f"of the last {2 * WINDOW}; {note}",
    )
    # Folds, commits and packing come in turns: a mean over many steps has its share of each.
    mean = [statistics.fmean(walk.took(EARLY + 250, 250)), statistics.fmean(walk.took(last - 250, 250))]
    yield figure(
        "horizon",
        "step_mean_at_end",
        "ms",
        mean[1:],
        mean[0] * 1.2,
        note=f"mean of 500 steps, {mean[0]:.1f} at the beginning",
    )
    tokens = {step: size for step, _, size in walk.steps}
    yield figure("horizon", "prompt_at_100", "tokens", [tokens[min(EARLY, last)]], AT_100)
    yield figure("horizon", "prompt_largest", "tokens", [max(tokens.values())], BOUND, note=note)
    yield figure("horizon", "prompt_at_end", "tokens", [statistics.median(list(tokens.values())[-100:])], BOUND)
    yield figure(
        "horizon",
        "resume",
        "s",
        [resumed(walk.workspace) for _ in range(3)],
        1.0,
        note="kill -9 to the next request, besides imports",
    )
    recovered, found = recover(walk.workspace, last)
    yield figure(
        "horizon",
        "folded_steps_not_recovered",
        "steps",
        [RECOVERED - recovered],
        0.0,
        note=f"of {RECOVERED} by CONTEXT(step=n)",
    )
    yield figure(
        "horizon",
        "folded_steps_not_found",
        "steps",
        [RECOVERED - found],
        0.0,
        note=f"of {RECOVERED} by CONTEXT(find=…)",
    )
    size = {name: _megabytes(walk.workspace / name) for name in (".git", ".rlm-agent")}
    told = ", ".join(f"{name} {value:.0f}" for name, value in size.items())
    yield figure("horizon", "disk", "MB", [sum(size.values())], 150.0, note=f"{told}; the work itself not counted")
    log = subprocess.run(
        ["git", "-C", str(walk.workspace), "log", "--oneline", "main"], capture_output=True, text=True, check=True
    ).stdout
    yield figure("horizon", "commits_on_main", "commits", [log.count("\n")], note="subjects on stderr")
    print("\n".join([*log.splitlines()[:12], "…"]), file=sys.stderr)
    problems = subprocess.run(
        [sys.executable, "-P", "-m", "agent.cli.main", "verify", str(walk.workspace)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    yield figure(
        "horizon", "verify_problems", "problems", [0 if problems.returncode == 0 else problems.stdout.count("\n")], 0.0
    )


CASES: tuple[Callable[[Options, Path], Iterable[Figure]], ...] = (horizon,)


def measure(options: Options, only: Sequence[str], said: Callable[[Figure], None]) -> list[str]:
    """Measure, telling each figure; returns what failed, in words."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        try:
            for made in horizon(options, Path(folder)):
                said(made)
        except Exception as error:
            return [f"horizon: {type(error).__name__}: {error}"]
    return []


def walked(folder: Path, steps: int) -> Walk:
    """Walk so many steps in a process of its own, which is killed in the last one."""
    from agent.daemon import prepare, workspace_of
    from agent.task import Task

    script(folder, WORK)
    task = Task.load(write_task(folder, steps + SPARE))
    workspace = workspace_of(task)
    prepare(task, workspace)
    (workspace / "notes").mkdir()
    for number in range(FILES):
        (workspace / f"notes/{number:04d}.md").write_text(
            f"# Note {number}\n" + "It says something about the matter.\n" * 40
        )
    times = folder / "times.jsonl"
    process = start(workspace, times)
    while process.poll() is None and not (times.exists() and _last(times) >= steps):
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    rows = [tuple(json.loads(line)) for line in times.read_text().splitlines() if line.endswith("]")]
    if not rows or rows[-1][0] < steps:
        raise RuntimeError(
            f"the run ended at step {rows[-1][0] if rows else 0}: {process.stdout and process.stdout.read()}"
        )
    return Walk(workspace, rows)


def resumed(workspace: Path) -> float:
    """Return the seconds from the start of a process, its imports done, to its next request."""
    process = start(workspace, workspace.parent / "again.jsonl", "first")
    out, _ = process.communicate()
    return float(out.strip().splitlines()[-1])


def recover(workspace: Path, steps: int) -> tuple[int, int]:
    """Ask the run for steps that were folded long ago; returns how many it got in full, and how many by search."""
    chance = random.Random(steps)
    asked = [n for n in chance.sample(range(1, steps - 20), 2 * RECOVERED) if n % 97][:RECOVERED]
    script(workspace.parent, RECOVER)
    (workspace / "asked.json").write_text(json.dumps(asked))
    change = [
        sys.executable,
        "-P",
        "-m",
        "agent.cli.main",
        "limits",
        f"steps={steps + SPARE + 3}",
        "--run",
        str(workspace),
    ]
    subprocess.run(change, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    process = start(workspace, workspace.parent / "recover.jsonl")
    result = workspace / "recovered.json"
    while process.poll() is None and not result.exists():
        time.sleep(0.2)
    time.sleep(0.5)
    process.terminate()
    process.communicate()
    good, found = json.loads(result.read_text())
    return good, found


def start(workspace: Path, times: Path, *more: str) -> subprocess.Popen[str]:
    """Start a process that works on the run."""
    command = [sys.executable, "-P", "-c", WALK, str(workspace), str(times), *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def script(folder: Path, code: str) -> None:
    """Let the model answer each step with this cell."""
    reply = f"Go on with the notes.\n{cell(code.strip())}"
    (folder / "script.yaml").write_text(yaml.safe_dump([{"reply": reply, "forever": True}]))


def write_task(folder: Path, steps: int) -> Path:
    """Write the task and return its file."""
    root: dict[str, Any] = {"model": "offline/scripted", "params": {"script": "script.yaml"}}
    document = {
        "name": "horizon",
        "goal": "Write a thousand notes, again and again, and keep the facts.",
        "models": {"root": root, "fold": "offline/digest"},
        "limits": {"steps": steps, "calls": 1_000_000, "prompt_tokens": BOUND},
        "workspace": "./work",
    }
    file = folder / "task.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def _last(times: Path) -> int:
    lines = times.read_text().splitlines()
    return json.loads(lines[-1])[0] if lines and lines[-1].endswith("]") else 0


def _megabytes(folder: Path) -> float:
    blocks = [os.lstat(os.path.join(at, name)).st_blocks for at, _, names in os.walk(folder) for name in names]
    return sum(blocks) * 512 / 1e6
