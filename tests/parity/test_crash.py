"""A completion in a workspace that is killed in the middle, and asked again: it goes on, and nothing settled is paid twice.

DEV: the reference keeps nothing; a crash costs all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from agent import RLM
from agent.testing import CRASH_POINTS
from tests.e2e.harness import ROOT, question
from tests.parity.asking import cell, requests, write_script

CHILD = "out = []\nfor n in range(2): out.append(llm_query(f'say {context} {n}'))\nFINAL(out)"
ENTRIES = [
    {"match": "^say slow", "reply": "slow", "delay": 30},
    {"match": "^say", "reply": "said"},
    {"match": "^<task>\nchild", **cell(CHILD)},
    cell("kept = llm_query_batched([f'say {n}' for n in range(5)])\nprint(len(kept))"),
    cell("children = rlm_query_batched(['child a', 'child b'], ['a', 'b'])\nlast = llm_query('say last')"),
    cell("FINAL([kept, children, last])"),
]
PROGRAM = """
import sys
from agent import RLM
with RLM(model="offline/scripted", model_params={"script": sys.argv[1], "ledger": sys.argv[2]}, workspace=sys.argv[3],
         persistent=sys.argv[4] == "persistent") as rlm:
    print(rlm.completion("the context", question="What is it?").response)
"""
ANSWER = str([["said"] * 5, ["['said', 'said']"] * 2, "said"])


def start(folder: Path, crash: str = "", how: str = "plain") -> subprocess.Popen[str]:
    """Ask in a process of its own; `crash` names a crash point."""
    params = write_script(folder, *ENTRIES)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RLM_AGENT_CRASH": crash}
    arguments = [params["script"], params["ledger"], str(folder / "w"), how]
    command = [sys.executable, "-P", "-c", PROGRAM, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def again(folder: Path, persistent: bool = False) -> tuple[str, str, int]:
    """Ask the same again, here; returns the response, the rollout's id and how many calls it has."""
    params = write_script(folder, *ENTRIES)
    with RLM(model="offline/scripted", model_params=params, workspace=folder / "w", persistent=persistent) as rlm:
        done = rlm.completion("the context", question="What is it?")
    return done.response, done.rollout, done.spend.calls


def roots(folder: Path) -> list[str]:
    return [row[0] for row in question(folder / "w", "SELECT id FROM rollout WHERE parent IS NULL")]


@pytest.mark.parametrize("crash", ["call.done:4", "call.returned:9", "call.done:10", "step.done:3", "cell.finished:2"])
def test_a_killed_completion_goes_on_under_its_rollout_and_settled_calls_are_sent_once(
    tmp_path: Path, crash: str
) -> None:
    assert crash.partition(":")[0] in CRASH_POINTS
    process = start(tmp_path, crash)
    out, err = process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL, out + err
    before = roots(tmp_path)
    settled = question(
        tmp_path / "w", "SELECT count(*) FROM call WHERE state = 'done' AND model IS NOT NULL AND kind != 'rlm'"
    )[0][0]
    response, rollout, calls = again(tmp_path)
    assert (response, [rollout]) == (ANSWER, before) and roots(tmp_path) == before
    assert calls == 15 and settled < 15
    sent, lost = (
        Counter(line["hash"] for line in requests(tmp_path)),
        question(tmp_path / "w", "SELECT count(*) FROM attempt WHERE result = 'lost'"),
    )
    twice = sum(sent.values()) - len(sent)
    assert twice <= lost[0][0] <= 5, "only what was in flight at the kill may be sent again, and each is flagged"
    assert sum(sent.values()) <= 15 + lost[0][0]
    assert question(tmp_path / "w", "SELECT count(*) FROM rollout WHERE parent IS NOT NULL") == [(2,)]


def test_a_kill_from_outside_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    script = [*ENTRIES[:1], *ENTRIES[1:3], cell("FINAL(llm_query_batched(['say a', 'say b', 'say slow']))")]
    params = write_script(tmp_path, *script)
    program = [sys.executable, "-P", "-c", PROGRAM, params["script"], params["ledger"], str(tmp_path / "w"), "plain"]
    process = subprocess.Popen(program, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)
    while not (tmp_path / "w/.rlm-agent/journal.db").exists() or settled_calls(tmp_path) < 3:
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    params = write_script(tmp_path, {"match": "^say slow", "reply": "quick now"}, *script[1:])
    with RLM(model="offline/scripted", model_params=params, workspace=tmp_path / "w") as rlm:
        assert rlm.completion("the context", question="What is it?").response == "['said', 'said', 'quick now']"
    sent = Counter(line["hash"] for line in requests(tmp_path))
    assert sorted(sent.values()) == [1, 1, 1, 2], "only the slow one, which was in flight, is sent again"


def settled_calls(folder: Path) -> int:
    try:
        return int(question(folder / "w", "SELECT count(*) FROM call WHERE state = 'done'")[0][0])
    except Exception:  # it is just being made
        return 0


def test_a_persistent_completion_goes_on_too(tmp_path: Path) -> None:
    process = start(tmp_path, "call.done:9", "persistent")
    out, err = process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL, out + err
    before = roots(tmp_path)
    response, rollout, _ = again(tmp_path, persistent=True)
    assert (response, [rollout]) == (ANSWER, before)


def test_a_finished_completion_is_not_answered_from_the_journal(tmp_path: Path) -> None:
    first, second = again(tmp_path), again(tmp_path)
    assert first[0] == second[0] == ANSWER and first[1] != second[1]
