"""Facts, to-dos, decisions and failed attempts that a long run finds on its way: is each still there at its end, over kills?"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from tests.e2e.harness import ROOT

THINGS = ["valve", "pump", "hinge", "lamp", "clock", "rope", "anchor", "ladder", "mirror", "kettle"]
COLOURS = ["crimson", "amber", "teal", "ivory", "olive"]
KINDS = ("FACT", "TODO", "DECISION", "FAILED")

WORK = """
import json
n = globals().get("n", 0) + 1
plan = json.load(open("plan.json"))
open(f"work{n % 20}.txt", "a").write(f"{n}\\n")
print("step", n, "went on")
if str(n) in plan: print(plan[str(n)])
"""
ASK = """
import json
plan = json.load(open("plan.json"))
found = {}
for line in plan.values():
    words = line.split()
    found[line] = line in CONTEXT(find=f"{words[2]} {words[3]}")
open("found.json", "w").write(json.dumps(found))
FINAL("asked")
"""


def plan(steps: int, count: int = 50) -> dict[str, str]:
    """Return what is found at which step: lines that no other step says."""
    chance = random.Random(steps)
    pairs = [(colour, thing) for colour in COLOURS for thing in THINGS][:count]
    at = sorted(chance.sample(range(2, steps - 1), count))
    return {
        str(step): f"{KINDS[i % 4]}: the {colour} {thing} needs {step * 3} turns"
        for i, (step, (colour, thing)) in enumerate(zip(at, pairs, strict=True))
    }


def walk(folder: Path, steps: int, kills: int) -> tuple[dict[str, bool], str, int]:
    """Run so many steps with so many kills; returns what one CONTEXT call each finds, the last prompt, and the kills done."""
    folder.mkdir(parents=True, exist_ok=True)
    replies = [
        {"reply": f"Go on.\n```repl\n{WORK.strip()}\n```", "times": steps},
        {"reply": f"Ask.\n```repl\n{ASK.strip()}\n```"},
    ]
    (folder / "script.yaml").write_text(yaml.safe_dump(replies))
    params = {"script": "script.yaml", "ledger": "ledger.jsonl", "prompts": "prompts.jsonl"}
    task = {
        "name": "planted",
        "goal": "Go on and keep what you find.",
        "models": {"root": {"model": "offline/scripted", "params": params}, "fold": "offline/digest"},
        "limits": {"steps": steps + 5, "calls": 10 * steps},
        "workspace": "./w",
    }
    (folder / "task.yaml").write_text(yaml.safe_dump(task))
    chance, done = random.Random(kills), 0
    points = sorted(chance.sample(range(10, steps), kills))
    command = [sys.executable, "-P", "-m", "agent.cli.main", "start", "--task", str(folder / "task.yaml")]
    while True:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        place_plan(folder / "w", steps)
        while process.poll() is None and not (points and _asked(folder) >= points[0]):
            time.sleep(0.02)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        points, done = [p for p in points[1:] if p > _asked(folder)], done + 1
    if process.returncode != 0:
        raise RuntimeError(f"the run ended with {process.returncode}")
    last = json.loads((folder / "prompts.jsonl").read_text().splitlines()[-1])
    found: dict[str, bool] = json.loads((folder / "w/found.json").read_text())
    return found, "\n".join(content for _, content in last), done


def place_plan(workspace: Path, steps: int) -> None:
    """Put the plan into the workspace as soon as that is there."""
    while not (workspace / ".rlm-agent/format").exists():
        time.sleep(0.01)
    if not (workspace / "plan.json").exists():
        (workspace / "plan.new").write_text(json.dumps(plan(steps)))
        (workspace / "plan.new").rename(workspace / "plan.json")


def _asked(folder: Path) -> int:
    ledger = folder / "ledger.jsonl"
    if not ledger.exists():
        return 0
    with ledger.open("rb") as file:
        file.seek(max(0, ledger.stat().st_size - 4096))
        lines = [line for line in file.read().splitlines() if line.endswith(b"}")]
    steps = [json.loads(line).get("step") for line in lines[1:] if line.startswith(b"{")]
    return max([step for step in steps if step], default=0)
