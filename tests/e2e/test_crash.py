"""`kill -9` at every named boundary: the resumed run must end exactly as one that was never killed.

The task covers what a run does: sub-calls in a batch, files, a REPL variable, COMMITs, folds with their own commits, a failing
cell, a child rollout, a not yet accepted answer, and an end.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from agent.testing import CRASH_POINTS
from tests.e2e.harness import assert_sound, command, end_state, git, killed, question, repls_below, rlm

SCRIPT = """
- match: "count it"
  reply: "four"
- match: "What is in the scratch"
  reply: |
    Look, write, finish.
    ```repl
    open("scratch.txt", "w").write("mine")
    FINAL("child saw " + str(len(context)) + " characters and " + llm_query("count it in the child"))
    ```
- reply: |
    Start.
    ```repl
    n, log = 0, []
    def note(x):
        log.append(x)
        return len(log)
    print(len(context), context[0].peek(5))
    ```
- times: 11
  reply: |
    Count.
    ```repl
    n += 1
    with open("all.txt", "a") as f: f.write(f"{n}\\n")
    open(f"f{n % 3}.txt", "w").write(str(n))
    answers = llm_query_batched([f"count it {n} {i}" for i in range(3)])
    print(n, note(n), answers)
    if n % 4 == 0: print(COMMIT(f"reached {n}", f"files up to {n}"))
    ```
- reply: |
    This fails.
    ```repl
    m = 1
    raise ValueError("as planned")
    ```
- reply: |
    A child.
    ```repl
    print(rlm_query("What is in the scratch?", context="some text"))
    print(weigh(n, unit="kg"))
    ```
- reply: |
    Too early.
    ```repl
    FINAL("early")
    ```
- reply: |
    End.
    ```repl
    open("done.txt", "w").write("yes")
    FINAL(f"{n} {log} {m}")
    ```
"""

TASK = """
version: 1
name: sweep
goal: Count to eleven.
context: [material.txt]
models: {root: {model: offline/scripted, params: {script: script.yaml, ledger: ledger.jsonl}}}
limits: {steps: 40, prompt_tokens: 4k}
fold: {commit_steps: 2}
accept: [{file: done.txt}, {run: "grep -q 11 all.txt"}]
tools: [{name: weigh, python: "tools.py:weigh", repeatable: REPEATABLE}]
"""

TOOLS = """
import os
def weigh(n, unit):
    with open(os.path.join(os.path.dirname(__file__), "weighed.txt"), "a") as file:
        file.write("once\\n")
    return {"weight": n * 2, "unit": unit}
"""


def make_task(folder: Path, repeatable: str = "true") -> Path:
    """Write the task into a folder of its own and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "material.txt").write_text("hello, material\n")
    (folder / "script.yaml").write_text(SCRIPT)
    (folder / "tools.py").write_text(TOOLS)
    (folder / "task.yaml").write_text(TASK.replace("REPEATABLE", repeatable))
    return folder / "task.yaml"


def requests(folder: Path) -> Counter[str]:
    """Count what the model saw, by the request's hash: the oracle outside of the journal."""
    lines = (folder / "ledger.jsonl").read_text().splitlines()
    return Counter(json.loads(line)["hash"] for line in lines)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("undisturbed")
    code, out, err = rlm("start", "--task", str(make_task(folder)), "--workspace", str(folder / "w"))
    assert code == 0, out + err
    assert_sound(folder / "w")
    assert max(requests(folder).values()) == 1
    return end_state(folder / "w")


@pytest.mark.parametrize("visit", [1, 4])
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_killed_at_a_boundary_it_ends_as_if_it_had_not_been(
    point: str, visit: int, tmp_path: Path, undisturbed: dict[str, object]
) -> None:
    workspace = tmp_path / "w"
    code, out, err = rlm(
        "start", "--task", str(make_task(tmp_path)), "--workspace", str(workspace), crash=f"{point}:{visit}"
    )
    if visit > 1 and code == 0:
        pytest.skip(f"{point} is visited fewer than {visit} times")
    assert killed(code), f"{point} was not visited\n{out}{err}"
    code, out, err = rlm("resume", str(workspace))
    assert code == 0, out + err
    assert_sound(workspace)
    assert end_state(workspace) == undisturbed
    lost = question(workspace, "SELECT count(*) FROM attempt WHERE result = 'lost'")[0][0]
    again = sum(requests(tmp_path).values()) - len(requests(tmp_path))
    assert again <= lost <= 3, "only requests in flight at the kill may be sent again, and each is flagged"


@pytest.mark.parametrize(("point", "times"), [("tool.started", 0), ("tool.returned", 1)])
def test_a_tool_that_was_cut_off_is_unknown_and_never_called_again_by_itself(
    point: str, times: int, tmp_path: Path
) -> None:
    task, workspace = make_task(tmp_path, repeatable="false"), tmp_path / "w"
    code, _, _ = rlm("start", "--task", str(task), "--workspace", str(workspace), crash=point)
    assert killed(code)
    code, out, err = rlm("resume", str(workspace))
    assert code == 0, out + err
    weighed = tmp_path / "weighed.txt"
    assert (weighed.read_text().count("once") if weighed.exists() else 0) == times
    told = question(workspace, "SELECT observation FROM step WHERE observation LIKE '%outcome unknown%'")
    assert len(told) == 1 and "weigh was called before" in told[0][0]


def test_killed_again_and_again_during_recovery(tmp_path: Path, undisturbed: dict[str, object]) -> None:
    workspace = tmp_path / "w"
    task = str(make_task(tmp_path))
    code, _, _ = rlm("start", "--task", task, "--workspace", str(workspace), crash="step.running:3")
    assert killed(code)
    for point in (
        "call.started",
        "call.done",
        "commit.done",
        "step.done",
        "commit.objects",
        "checkpoint.objects",
        "fold.done",
    ):
        code, out, err = rlm("resume", str(workspace), crash=point)
        assert killed(code), f"{point}: {out}{err}"
    code, out, err = rlm("resume", str(workspace))
    assert code == 0, out + err
    assert_sound(workspace)
    assert end_state(workspace) == undisturbed


SLOW_CALL = """
- match: "take your time"
  delay: 2
  reply: "done thinking"
- reply: |
    Ask.
    ```repl
    answers = llm_query_batched(["take your time", "take your time, too"])
    print(COMMIT("asked", "two answers"), answers)
    FINAL(answers[0])
    ```
"""


def test_a_call_in_flight_outlives_the_repl_and_is_sent_once(tmp_path: Path) -> None:
    task = make_task(tmp_path)
    (tmp_path / "script.yaml").write_text(SLOW_CALL)
    task.write_text(TASK[: TASK.index("accept")])
    process = command("start", "--task", str(task), "--workspace", str(tmp_path / "w"))
    ledger = tmp_path / "ledger.jsonl"
    while not ledger.exists() or len(ledger.read_text().splitlines()) < 3:  # the root's request and two sub-calls
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    for pid in repls_below(process.pid):
        os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert max(requests(tmp_path).values()) == 1
    assert question(tmp_path / "w", "SELECT DISTINCT result FROM attempt") == [("ok",)]
    assert question(tmp_path / "w", "SELECT count(*) FROM event WHERE kind = 'repl_died'") == [(1,)]
    assert git(tmp_path / "w", "log", "--format=%s").splitlines().count("asked") == 1
    assert_sound(tmp_path / "w")


def test_work_that_was_rolled_back_is_kept_under_a_rescue_ref(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    code, _, _ = rlm("start", "--task", str(make_task(tmp_path)), "--workspace", str(workspace), crash="call.done:7")
    assert killed(code)
    (workspace / "by-hand.txt").write_text("a person wrote this after the crash")
    code, out, err = rlm("resume", str(workspace))
    assert code == 0, out + err
    refs = git(workspace, "for-each-ref", "--format=%(refname)", "refs/rlm-agent/rescue").split()
    assert any(git(workspace, "ls-tree", "--name-only", ref).count("by-hand.txt") for ref in refs)
