"""`rewind` and `fork`: files, variables and journal are those of the step, and what came later is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.branching import cell, task
from tests.e2e.harness import assert_sound, git, killed, question, rlm

WALK = (
    cell("n = 1\nopen('one.txt', 'w').write('1')\nprint(COMMIT('One', 'first'))"),
    cell("n = 2\nopen('two.txt', 'w').write(llm_query('ask two'))\nprint(BRANCH('side', 'see'))"),
    cell("n = 3\nopen('three.txt', 'w').write('3')\nprint(COMMIT('Three', 'third'))"),
    cell("n = 4\nopen('one.txt', 'w').write('changed')\nprint(SWITCH('main'))\nprint(MERGE('side'))"),
    cell("answer.update(content=str(n), ready=True)"),
)
ASKED = {"match": "^ask two", "reply": "two"}


def walked(folder: Path) -> Path:
    code, _, err = rlm("start", "--task", str(task(folder, ASKED, *WALK)))
    assert code == 0, err
    return folder / "w"


def test_a_run_goes_back_and_on_another_way(tmp_path: Path) -> None:
    workspace = walked(tmp_path)
    tips = {name: git(workspace, "rev-parse", name).strip() for name in ("main", "side")}
    code, out, err = rlm("rewind", "2", str(workspace), "--json")
    assert code == 0, err
    kept = json.loads(out)["kept"]
    assert {name: git(workspace, "rev-parse", f"{kept}/heads/{name}").strip() for name in tips} == tips
    assert git(workspace, "log", "-1", "--format=%s", "side").startswith("Branch side: see")
    assert git(workspace, "branch", "--show-current").strip() == "side"
    assert (workspace / "two.txt").read_text() == "two" and not (workspace / "three.txt").exists()
    assert (workspace / "one.txt").read_text() == "1"
    assert_sound(workspace)
    task(tmp_path, ASKED, *WALK[:2], cell("print('n is', n)\nprint(COMMIT('Other', 'way'))"), cell("FINAL(str(n))"))
    code, _, err = rlm("resume", str(workspace))
    assert code == 0, err
    assert question(workspace, "SELECT answer FROM run") == [("2",)]
    assert_sound(workspace)
    archived = question(
        workspace,
        "SELECT count(*), min(seq), max(seq) FROM step JOIN rollout r ON r.id = rollout AND r.outcome = 'rewound'",
    )
    assert archived == [(3, 3, 5)]


@pytest.mark.parametrize("crash", ["rewind.kept", "rewind.written", "rewind.moved"])
def test_a_rewind_that_was_killed_is_finished_or_never_began(tmp_path: Path, crash: str) -> None:
    workspace = walked(tmp_path)
    code, _, err = rlm("rewind", "2", str(workspace), crash=crash)
    assert killed(code), err
    task(tmp_path, ASKED, *WALK[:2], cell("FINAL(f'went on from {n}')"))
    code, out, err = rlm("resume", str(workspace), "--json")
    assert code == 0, err
    assert json.loads(out)["outcome"]["answer"] == ("4" if crash == "rewind.kept" else "went on from 2")
    assert_sound(workspace)


def test_the_step_that_ended_the_run_can_be_gone_back_to_and_worked_on(tmp_path: Path) -> None:
    workspace = walked(tmp_path)
    assert rlm("rewind", "5", str(workspace))[0] == 0
    task(tmp_path, ASKED, *WALK, cell("FINAL(f'after all {n}')"))
    code, out, _ = rlm("resume", str(workspace), "--json")
    assert (code, json.loads(out)["outcome"]["answer"]) == (0, "after all 4")
    assert_sound(workspace)


@pytest.mark.parametrize("wanted", ["99", "-1"])
def test_there_is_no_such_step(tmp_path: Path, wanted: str) -> None:
    workspace = walked(tmp_path)
    code, _, err = rlm("rewind", "--", wanted, str(workspace))
    assert code == 2 and "no finished step" in err


def test_a_fork_goes_on_from_a_step_and_leaves_the_first_run_alone(tmp_path: Path) -> None:
    workspace = walked(tmp_path)
    before = question(workspace, "SELECT rollout, seq, reply FROM step"), git(workspace, "for-each-ref")
    other = tmp_path / "other"
    code, out, err = rlm(
        "fork", "3", str(workspace), "--workspace", str(other), "--json", RLM_AGENT_HOME=str(tmp_path / "home")
    )
    assert code == 0, err
    assert json.loads(out)["step"] == 3 and (other / "three.txt").exists()
    assert_sound(other)
    task(tmp_path, ASKED, *WALK[:3], cell("FINAL(f'fork at {n}')"))
    code, out, err = rlm("resume", str(other), "--json")
    assert (code, json.loads(out)["outcome"]["answer"]) == (0, "fork at 3"), err
    assert_sound(other)
    assert before == (question(workspace, "SELECT rollout, seq, reply FROM step"), git(workspace, "for-each-ref"))
    assert_sound(workspace)


def test_a_fork_that_was_killed_is_made_anew(tmp_path: Path) -> None:
    workspace, other = walked(tmp_path), tmp_path / "other"
    code, _, err = rlm("fork", "3", str(workspace), "--workspace", str(other), crash="fork.copied")
    assert killed(code), err
    code, _, err = rlm("fork", "3", str(workspace), "--workspace", str(other))
    assert code == 0, err
    assert_sound(other)
    code, _, err = rlm("fork", "3", str(workspace), "--workspace", str(other))
    assert code == 2 and "not empty" in err


def test_the_model_goes_back_itself_and_nothing_is_forgotten(tmp_path: Path) -> None:
    back = cell("print(REWIND(1))\nn = 99\nopen('late.txt', 'w').write('late')")
    entries = (
        *WALK[:3],
        back,
        cell("import os\nprint(n, sorted(f for f in os.listdir() if f.endswith('.txt')))"),
        cell("FINAL(CONTEXT(step=3))"),
    )
    code, out, err = rlm("start", "--task", str(task(tmp_path, ASKED, *entries)), "--json")
    assert code == 0, err
    told = question(tmp_path / "w", "SELECT observation FROM step WHERE seq IN (4, 5) ORDER BY seq")
    assert "as they were after step 1" in told[0][0] and told[1][0].startswith("1 ['one.txt']")
    assert "Three" in json.loads(out)["outcome"]["answer"]
    assert_sound(tmp_path / "w")
