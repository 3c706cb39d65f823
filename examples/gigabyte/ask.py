#!/usr/bin/env python3
"""Ask each question of questions.yaml over a corpus, with `rlm-agent ask`, and say which answers hold.

.venv/bin/python scripts/corpus /tmp/corpus --bytes 1GB
.venv/bin/python examples/gigabyte/ask.py /tmp/corpus [questions.yaml] [-- options of ask]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Print one line per question and a last one with the score; exit 0 when all are right."""
    corpus, *rest = sys.argv[1:]
    options = rest[rest.index("--") + 1 :] if "--" in rest else []
    named = rest[: rest.index("--")] if "--" in rest else rest
    questions = yaml.safe_load(Path(named[0] if named else HERE / "questions.yaml").read_text("utf-8"))
    score = {"right": 0, "wrong": 0, "not found": 0}
    for number, item in enumerate(questions, 1):
        began = time.monotonic()
        code, document, peak = ask(item["question"], corpus, options)
        verdict = judge(document.get("answer", ""), str(item["answer"])) if code == 0 else "wrong"
        score[verdict] += 1
        held = sum(1 for cited in document.get("evidence", []) if cited["text"] is not None)
        first = (document.get("answer") or str(document.get("error", ""))).strip().splitlines()[:1]
        print(
            f"{number:>2}  {verdict:<9}  {time.monotonic() - began:6.1f} s  {peak >> 10:5} MB  {held} lines cited  "
            f"{item['question'][:60]:<60}  {(first or [''])[0][:70]}",
            flush=True,
        )
    print(", ".join(f"{count} {verdict}" for verdict, count in score.items()))
    return 0 if score["right"] == len(questions) else 1


def ask(question: str, corpus: str, options: list[str]) -> tuple[int, dict, int]:
    """Return (exit code, the JSON document, the process's peak memory in kB)."""
    command = [sys.executable, "-P", "-m", "agent.cli.main", "ask", question, "-c", corpus, "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    try:
        document = json.loads(out)
    except ValueError:
        document = {"error": process.stderr.read() if process.stderr else ""}
    return process.returncode, document, usage.ru_maxrss


def judge(answer: str, wanted: str) -> str:
    """Hold the reply's head, before the evidence, against what must stand in it."""
    head = answer.split("\n\n")[0]
    if wanted.lower() in head.lower():
        return "right"
    return "not found" if head.lower().startswith("not found") else "wrong"


if __name__ == "__main__":
    sys.exit(main())
