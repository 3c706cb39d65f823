"""What is asked again, at once, or after it was cut off: each call is settled once, and the answer is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from state.journal import Journal
from tests.e2e.harness import ROOT, question, rlm
from tests.loopback.behaviours import Answer
from tests.loopback.server import loopback
from tests.parity.asking import cell, requests, scripted, write_script

PROGRAM = """
import json, sys
from agent import RLM
count = [0]
def ticket():
    count[0] += 1
    return count[0]
options = json.loads(sys.argv[2])
if options.pop("tool", False):
    options |= {"custom_sub_tools": {"ticket": ticket}, "custom_tools": {}}
with RLM(workspace=sys.argv[1], **options) as rlm:
    print(rlm.completion("the context", question="What is it?").response)
"""
ASK = {"match": "^ask", "reply": "r"}


def complete(folder: Path, options: dict[str, Any], crash: str = "") -> str:
    """Ask in a process of its own, killed at a crash point if one is named; returns the answer."""
    command = [sys.executable, "-P", "-c", PROGRAM, str(folder / "w"), json.dumps(options)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RLM_AGENT_CRASH": crash}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    if done.returncode != (-signal.SIGKILL if crash else 0):
        pytest.fail(done.stderr)
    return done.stdout.strip()


def killed_and_asked_again(folder: Path, crash: str, *entries: Any, **options: Any) -> tuple[str, int, int]:
    """Return the answer after a kill, how many requests were sent, and how many attempts are known as lost."""
    named = {"model": "offline/scripted", "model_params": write_script(folder, *entries), **options}
    complete(folder, named, crash)
    answer = complete(folder, named)
    lost = question(folder / "w", "SELECT count(*) FROM attempt WHERE result = 'lost'")[0][0]
    return answer, len(requests(folder)), int(lost)


def test_equal_completions_at_once_are_completions_of_their_own(tmp_path: Path) -> None:
    with scripted(tmp_path, {**ASK, "delay": 0.05}, cell("FINAL(llm_query('ask ' + context))")) as asking:
        with ThreadPoolExecutor(6) as threads:
            done = list(threads.map(lambda _: asking.completion("same", question="q"), range(6)))
        assert len({one.rollout for one in done}) == 6


def test_a_completion_that_was_interrupted_can_be_asked_again(tmp_path: Path) -> None:
    with scripted(tmp_path, {"match": "^slow", "reply": "s", "delay": 1}, cell("FINAL(llm_query('slow'))")) as asking:

        def interrupt() -> None:
            while len(requests(tmp_path)) < 2:
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            asking.completion("x", question="q")
        except KeyboardInterrupt:
            assert asking.completion("x", question="q").response == "s"
        else:
            pytest.fail("it was not interrupted")


def test_completions_over_different_files_do_not_pile_up_processes(tmp_path: Path) -> None:
    with scripted(tmp_path, cell("FINAL(len(context))")) as asking:
        for n in range(9):
            (tmp_path / f"{n}.txt").write_text("x")
            asking.completion(tmp_path / f"{n}.txt", question="q")
        shown = subprocess.run(["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
        rows = [row.split(None, 2) for row in shown.splitlines()[1:]]
        below = {str(os.getpid())}
        while new := {row[0] for row in rows if row[1] in below} - below:
            below |= new
        servers = [row for row in rows if row[0] in below and "agent.repl.forkserver" in row[2]]
        assert len(servers) <= 3 * 4, "two of bubblewrap and the server itself, for the latest few sets of files"


def test_a_scratch_folder_is_rolled_back_with_its_cell(tmp_path: Path) -> None:
    writes = cell("open('s.txt', 'a').write('x')\nllm_query('ask')\nFINAL(open('s.txt').read())")
    assert killed_and_asked_again(tmp_path, "call.done:2", ASK, writes)[0] == "x"


def test_settled_calls_are_found_again_when_their_prompt_names_the_budget(tmp_path: Path) -> None:
    code = "left = budget()['calls']\nfor i in range(6): llm_query(f'ask {i} of {left}')\nFINAL(1)"
    limits = {"calls": 50}
    _, sent, lost = killed_and_asked_again(tmp_path, "call.done:6", ASK, cell(code), limits=limits)
    assert sent <= 7 + lost


def test_tools_of_sub_calls_meet_their_own_outcomes_again(tmp_path: Path) -> None:
    use = {"reply": "", "tool_calls": [{"name": "ticket", "arguments": {}}]}
    entries = [
        {"match": "^1$", "reply": "one"},
        {"match": "^2$", "reply": "two"},
        {"match": "^slow", "delay": 0.5, **use},
    ]
    entries += [{"match": "^fast", **use}, ASK]
    code = "r = llm_query_batched(['slow', 'fast'])\nllm_query('ask')\nFINAL(r)"
    answer, sent, lost = killed_and_asked_again(tmp_path, "call.done:6", *entries, cell(code), tool=True)
    assert (answer, sent) == ("['two', 'one']", 6 + lost)


def test_last_words_are_paid_once(tmp_path: Path) -> None:
    def answer(request: dict[str, Any], _n: int) -> Answer:
        last = str(request["messages"][-1]["content"])
        return Answer("my last words" if "no steps left" in last else "x\n```repl\nprint(1)\n```")

    with loopback(answer) as server:
        backend = {"model_name": "m", "base_url": server.api_base, "api_key": "sk-x"}
        options = {"backend": "openai", "backend_kwargs": backend, "limits": {"steps": 1, "wall_time": 600}}
        complete(tmp_path, options, "call.done:2")
        assert complete(tmp_path, options) == "my last words"
        hashes = Counter("no steps left" in line["last"] for line in server.ledger.requests)
    assert hashes[True] == 1


def test_a_step_that_the_budget_refused_was_not_sent(tmp_path: Path) -> None:
    write_script(tmp_path, ASK, "llm_query('ask')", "FINAL(1)")
    task = "version: 1\nname: b\ngoal: g\nlimits: {calls: CALLS}\nmodels: {root: {model: offline/scripted, params: {script: script.yaml}}}"
    for calls in (2, 50):
        (tmp_path / "task.yaml").write_text(task.replace("CALLS", str(calls)))
        code, out, err = rlm("start", "--task", str(tmp_path / "task.yaml"), "--workspace", str(tmp_path / "w"))
    if code != 0:
        pytest.fail(out + err)
    assert question(tmp_path / "w", "SELECT DISTINCT result FROM attempt") == [("ok",), ("free",)]


def test_a_writer_that_gives_up_does_not_close_the_journal(tmp_path: Path) -> None:
    journal, begun = Journal(tmp_path / "journal.db"), threading.Event()
    try:

        def work(_connection: Any) -> None:
            begun.set()
            time.sleep(0.2)

        written = journal.submit(work)
        begun.wait()
        written.cancel()
        assert journal.write(lambda _c: 1) == 1
    finally:
        journal.close()
