"""The command as a user meets it: start, stop, resume, status, log, show, verify, init, errors and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from state.lease import process_started
from tests.e2e.harness import ROOT, assert_sound, command, git, question, repls_below, rlm

SLOW = """
- times: 30
  reply: |
    Count.
    ```repl
    import time
    n = globals().get("n", 0) + 1
    time.sleep(0.1)
    print("n is", n)
    ```
- reply: |
    ```repl
    FINAL(str(n))
    ```
"""


def a_task(folder: Path, script: str = SLOW, **fields: object) -> Path:
    (folder / "script.yaml").write_text(script)
    task = {
        "version": 1,
        "goal": "Count.",
        "models": {"root": {"model": "offline/scripted", "params": {"script": "script.yaml"}}},
    }
    (folder / "task.yaml").write_text(json.dumps({**task, **fields}))  # JSON is YAML
    return folder / "task.yaml"


def wait_for_step(workspace: Path, step: int) -> None:
    for _ in range(200):
        code, out, _ = rlm("status", str(workspace), "--json")
        if code == 0 and json.loads(out)["step"] >= step:
            return
        time.sleep(0.1)
    raise AssertionError(f"step {step} was never reached")


def test_a_run_from_start_to_git_log(tmp_path: Path) -> None:
    script = '- reply: |\n    Write.\n    ```repl\n    open("made.txt", "w").write("x")\n    COMMIT("wrote it", "made.txt")\n    FINAL("ready")\n    ```\n'
    task = a_task(tmp_path, script)
    code, out, err = rlm("start", "--task", str(task), "--workspace", str(tmp_path / "w"), "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["outcome"] == {"kind": "done", "reason": "the answer is ready", "answer": "ready"}
    assert (document["state"], document["step"], document["pid"]) == ("ended", 1, None)
    assert git(tmp_path / "w", "log", "--format=%s").splitlines() == ["Done: ready", "wrote it", "Start of task"]
    body = git(tmp_path / "w", "log", "-1", "--skip=1", "--format=%B")
    assert "Rlm-Step: 1" in body
    assert "Rlm-Txn: " in body
    assert "made.txt" in git(tmp_path / "w", "show", "--stat", "HEAD~1")
    assert_sound(tmp_path / "w")
    code, out, _ = rlm("start", "--task", str(task), "--workspace", str(tmp_path / "w"))
    assert code == 0
    assert "ready" in out
    assert question(tmp_path / "w", "SELECT count(*) FROM attempt") == [(1,)], "a finished run asks nothing again"


def test_detach_status_stop_resume(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    code, out, err = rlm("start", "--task", str(a_task(tmp_path)), "--workspace", str(workspace), "--detach", "--json")
    assert code == 0, err
    pid = json.loads(out)["pid"]
    wait_for_step(workspace, 2)
    code, _, err = rlm("resume", str(workspace))
    assert (code, "another process" in err) == (2, True)
    code, out, _ = rlm("stop", str(workspace), "--json")
    document = json.loads(out)
    assert (code, document["outcome"]["kind"], document["pid"]) == (0, "stopped", None)
    assert process_started(pid) == "", "stop returns when the process is gone"
    code, out, err = rlm("resume", str(workspace), "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["outcome"]["answer"] == "30"
    assert_sound(workspace)


def test_ctrl_c_once_stops_after_the_step_and_exits_10(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    process = command("start", "--task", str(a_task(tmp_path)), "--workspace", str(workspace))
    wait_for_step(workspace, 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 10, out + err
    assert "stopped" in out
    assert "rlm-agent resume" in out
    assert git(workspace, "log", "-1", "--format=%s").startswith("Stopped")


def test_a_killed_repl_is_brought_back(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    process = command("start", "--task", str(a_task(tmp_path)), "--workspace", str(workspace))
    for step in (2, 5):
        wait_for_step(workspace, step)
        for pid in repls_below(process.pid):
            os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert question(workspace, "SELECT answer FROM run") == [("30",)]
    assert question(workspace, "SELECT count(*) FROM event WHERE kind='repl_died'")[0][0] >= 1
    assert_sound(workspace)


def test_steps_and_one_step_can_be_shown(tmp_path: Path) -> None:
    script = '- reply: |\n    I ask.\n    ```repl\n    print(llm_query("a question"))\n    ```\n- reply: FINAL(ok)\n- match: a question\n  reply: an answer\n'
    workspace = tmp_path / "w"
    assert rlm("start", "--task", str(a_task(tmp_path, script)), "--workspace", str(workspace))[0] == 0
    code, out, _ = rlm("log", str(workspace), "--steps")
    assert code == 0
    assert "I ask." in out
    assert "→ an answer" in out
    code, out, _ = rlm("show", "1", str(workspace))
    assert code == 0
    assert "a question" in out
    assert "llm" in out
    code, out, _ = rlm("log", str(workspace), "--json")
    assert [c["subject"] for c in json.loads(out)["commits"]] == ["Done: ok", "Start of task"]
    code, out, err = rlm("show", "9", str(workspace))
    assert (code, "there is no step 9" in err) == (2, True)


@pytest.mark.parametrize(
    ("limits", "script", "code", "kind"),
    [
        ({"steps": 3}, SLOW, 124, "budget"),
        ({"errors": 2}, "- forever: true\n  reply: no code here\n", 4, "stuck"),
        ({"calls": 2}, SLOW, 124, "budget"),
    ],
)
def test_limits_end_a_run_with_their_exit_code(
    tmp_path: Path, limits: dict[str, int], script: str, code: int, kind: str
) -> None:
    task = a_task(tmp_path, script, limits=limits)
    found, out, err = rlm("start", "--task", str(task), "--workspace", str(tmp_path / "w"), "--json")
    assert found == code, out + err
    assert json.loads(out)["outcome"]["kind"] == kind
    assert_sound(tmp_path / "w")


def test_a_raised_limit_lets_a_run_go_on(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    assert rlm("start", "--task", str(a_task(tmp_path, limits={"steps": 3})), "--workspace", str(workspace))[0] == 124
    code, out, err = rlm("start", "--task", str(a_task(tmp_path, limits={"steps": 40})), "--workspace", str(workspace))
    assert code == 0, out + err
    assert "the task has changed since the run began: limits" in err
    assert "30" in out


def test_a_run_that_was_stuck_gets_a_new_start_when_it_is_resumed(tmp_path: Path) -> None:
    script = "- times: 2\n  reply: no code here\n- reply: FINAL(better now)\n"
    task = a_task(tmp_path, script, limits={"errors": 2})
    assert rlm("start", "--task", str(task), "--workspace", str(tmp_path / "w"))[0] == 4
    code, out, err = rlm("resume", str(tmp_path / "w"))
    assert code == 0, out + err
    assert "better now" in out


def test_an_edited_limit_applies_while_the_run_works(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    process = command("start", "--task", str(a_task(tmp_path)), "--workspace", str(workspace))
    wait_for_step(workspace, 2)
    file = workspace / ".rlm-agent" / "task.yaml"
    file.write_text(file.read_text().replace("steps: 200", "steps: 8"))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 124, out + err
    assert "limits.steps: 8 steps are done" in out
    assert "limits changed" in err


def test_an_unaccepted_answer_is_not_done(tmp_path: Path) -> None:
    script = "- forever: true\n  reply: FINAL(i say so)\n"
    task = a_task(tmp_path, script, accept=[{"file": "missing.md"}], limits={"errors": 2})
    code, out, err = rlm("start", "--task", str(task), "--workspace", str(tmp_path / "w"), "--json")
    assert code == 3, out + err
    assert json.loads(out)["outcome"]["kind"] == "gave_up"
    assert question(tmp_path / "w", "SELECT observation FROM step WHERE seq=1")[0][0].count("missing.md is missing")


def test_a_mistake_in_the_task_is_named_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "task.yaml"
    file.write_text("version: 1\ngoal: x\nmodels: {root: offline/explorer}\nlimits:\n  max_dept: 3\n")
    code, _, err = rlm("start", "--task", str(file))
    assert code == 2
    assert f"{file}:5:3: limits.max_dept: unknown key" in err
    code, out, _ = rlm("start", "--task", str(file), "--json")
    assert code == 2
    assert json.loads(out)["error"]["kind"] == "task"


def test_usage_errors_exit_2(tmp_path: Path) -> None:
    assert rlm("start", "--task", str(tmp_path / "none.yaml"))[0] == 2
    assert rlm("frobnicate")[0] == 2
    code, _, err = rlm("status", "nothing-like-this")
    assert (code, "no run 'nothing-like-this'" in err) == (2, True)


def test_init_writes_a_task_that_loads_and_never_overwrites(tmp_path: Path) -> None:
    assert rlm("init", str(tmp_path / "new"))[0] == 0
    text = (tmp_path / "new" / "task.yaml").read_text()
    assert rlm("init", str(tmp_path / "new"))[0] == 2
    assert (tmp_path / "new" / "task.yaml").read_text() == text
    from agent.task import Task

    assert Task.load(tmp_path / "new" / "task.yaml", check_paths=False).version == 1


def test_schema_and_doctor_print_json(tmp_path: Path) -> None:
    code, out, _ = rlm("schema")
    assert code == 0
    assert json.loads(out)["properties"]["limits"]
    code, out, _ = rlm("doctor", "--json")
    assert code == 0
    assert "sandbox" in json.loads(out)


@pytest.mark.parametrize("args", [["--help"], ["status"], ["log", "--help"]])
def test_light_commands_load_neither_litellm_nor_a_web_stack(args: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom agent.cli import main\nsys.argv = ['rlm-agent', *sys.argv[1:]]\n"
        "try:\n    main.main()\nexcept SystemExit: pass\n"
        "print(sorted({'litellm', 'git', 'xllamacpp', 'openai', 'httpx', 'aiohttp'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stderr.strip().splitlines()[-1] == "[]"


def test_a_person_s_edit_between_two_runs_is_kept_and_told(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    assert rlm("start", "--task", str(a_task(tmp_path, limits={"steps": 3})), "--workspace", str(workspace))[0] == 124
    (workspace / "note.md").write_text("please stop at 30")
    assert rlm("start", "--task", str(a_task(tmp_path)), "--workspace", str(workspace))[0] == 0
    assert (workspace / "note.md").read_text() == "please stop at 30"
    assert_sound(workspace)


def test_a_copied_workspace_goes_on_elsewhere(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    assert rlm("start", "--task", str(a_task(tmp_path, limits={"steps": 3})), "--workspace", str(workspace))[0] == 124
    subprocess.run(["cp", "-a", str(workspace), str(tmp_path / "copy")], check=True)
    text = (tmp_path / "copy" / ".rlm-agent" / "task.yaml").read_text()
    (tmp_path / "copy" / ".rlm-agent" / "task.yaml").write_text(text.replace("steps: 3", "steps: 40"))
    code, out, err = rlm("resume", str(tmp_path / "copy"))
    assert code == 0, out + err
    assert_sound(tmp_path / "copy")


def test_a_final_after_a_cell_of_the_same_reply_ends_the_run(tmp_path: Path) -> None:
    script = (
        "- reply: |\n    Count, then answer.\n    ```repl\n    n = 6 * 7\n    print(n)\n    ```\n    FINAL_VAR(n)\n"
    )
    code, out, err = rlm("start", "--task", str(a_task(tmp_path, script)), "--workspace", str(tmp_path / "w"), "--json")
    assert code == 0, out + err
    assert json.loads(out)["outcome"]["answer"] == "42"
    assert question(tmp_path / "w", "SELECT observation FROM step WHERE seq=1") == [("42",)]


def test_a_missing_journal_is_named_and_nothing_is_paid_again(tmp_path: Path) -> None:
    task = a_task(tmp_path, limits={"steps": 2})
    assert rlm("start", "--task", str(task), "--workspace", str(tmp_path / "w"))[0] == 124
    for file in (tmp_path / "w" / ".rlm-agent").glob("journal.db*"):
        file.unlink()
    code, _, err = rlm("start", "--task", str(task), "--workspace", str(tmp_path / "w"))
    assert code == 1
    assert "the journal is missing or empty" in err


def test_a_model_without_quota_is_replaced_by_a_fallback(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("- reply: FINAL(from the other one)\n")
    script = "- error: {kind: quota, message: nothing left}\n- reply: FINAL(from the first one)\n"
    models = {
        "root": {"model": "offline/scripted", "params": {"script": "script.yaml"}},
        "fallbacks": [{"model": "offline/scripted", "params": {"script": "other.yaml"}}],
    }
    task = a_task(tmp_path, script, models=models)
    code, out, err = rlm("start", "--task", str(task), "--workspace", str(tmp_path / "w"))
    assert code == 0, out + err
    assert "from the other one" in out
    assert "cannot be had (nothing left)" in err
    assert question(tmp_path / "w", "SELECT result FROM attempt ORDER BY n") == [("refused",), ("ok",)]
