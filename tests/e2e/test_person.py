"""A person in the middle of a run: what is said, asked, edited, committed, checked out or rewritten, also over kills."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.branching import cell, task
from tests.e2e.harness import assert_sound, git, killed, question, rlm

#: The root sees its own prompt through this: what stands in the last message goes into a file.
COUNT = cell("n = globals().get('n', 0) + 1\nopen('n.txt', 'w').write(str(n))\nprint('step', n)")
END = cell("FINAL(str(n))")


def stopped(folder: Path, *entries: dict[str, object], steps: int = 2) -> Path:
    """Run a task until it has used its steps, and return its workspace."""
    code, _, err = rlm("start", "--task", str(task(folder, *entries, limits={"steps": steps})))
    assert code == 124, err
    return folder / "w"


def raised(workspace: Path, steps: int) -> None:
    code, _, err = rlm("limits", f"steps={steps}", "--run", str(workspace))
    assert code == 0, err


def prompts(folder: Path) -> list[str]:
    return [json.loads(line)[-1][1] for line in (folder / "prompts.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("crash", ["", "step.planned", "step.asked", "said.delivered", "step.replied", "step.done"])
def test_what_is_said_is_in_one_prompt_and_in_the_journal_once(tmp_path: Path, crash: str) -> None:
    workspace = stopped(tmp_path, COUNT, COUNT, COUNT, COUNT, END)
    assert rlm("say", "use metres, not feet", str(workspace))[0] == 0
    raised(workspace, 9)
    code, _, err = rlm("resume", str(workspace), crash=crash)
    if crash:
        assert killed(code), err
        code, _, err = rlm("resume", str(workspace))
    assert code == 0, err
    assert len(question(workspace, "SELECT 1 FROM event WHERE kind = 'said'")) == 1
    told = {prompt for prompt in prompts(tmp_path) if "use metres, not feet" in prompt}
    assert len(told) == 1, "the same step may be asked twice; no other one is told"
    assert "step: 3" in told.pop()
    assert not list((workspace / ".rlm-agent/inbox").glob("*"))
    assert "use metres" in rlm("show", "3", str(workspace))[1]


ASKING = cell("open('asked.txt', 'a').write('x')\nreply = ask_user('which unit?')\nprint('they want', reply)")


@pytest.mark.parametrize("crash", ["", "question.answered", "cell.finished"])
def test_a_question_parks_the_run_and_its_answer_goes_on(tmp_path: Path, crash: str) -> None:
    code, out, err = rlm("start", "--task", str(task(tmp_path, ASKING, cell("FINAL(reply)"))), "--json")
    workspace = tmp_path / "w"
    document = json.loads(out)
    assert code == 10 and document["outcome"]["kind"] == "parked" and "which unit?" in document["outcome"]["reason"], (
        err
    )
    assert document["pid"] is None
    code, _, _ = rlm("resume", str(workspace))
    assert code == 10, "without an answer it waits on"
    assert rlm("say", "metres", str(workspace))[0] == 0
    code, _, err = rlm("resume", str(workspace), crash=crash)
    if crash:
        assert killed(code), err
        code, _, err = rlm("resume", str(workspace))
    assert code == 0, err
    assert question(workspace, "SELECT answer FROM run") == [("metres",)]
    assert (workspace / "asked.txt").read_text() == "x"
    assert len(question(workspace, "SELECT 1 FROM call WHERE kind = 'ask'")) == 1
    assert not question(workspace, "SELECT 1 FROM event WHERE kind = 'said'"), "an answer is not said again"
    assert_sound(workspace)


def test_say_can_let_a_parked_run_go_on_in_the_background(tmp_path: Path) -> None:
    assert rlm("start", "--task", str(task(tmp_path, ASKING, cell("FINAL(reply)"))))[0] == 10
    code, _, err = rlm("say", "metres", str(tmp_path / "w"), "--resume")
    assert code == 0, err
    for _ in range(200):
        if question(tmp_path / "w", "SELECT outcome FROM run") == [("done",)]:
            return
        subprocess.run(["sleep", "0.1"], check=True)
    pytest.fail("it did not go on")


def commit(workspace: Path) -> None:
    (workspace / "mine.txt").write_text("by hand")
    git(workspace, "add", "mine.txt")
    git(workspace, "commit", "-q", "-m", "By a person")


def edit(workspace: Path) -> None:
    (workspace / "n.txt").write_text("edited")


def checkout(workspace: Path) -> None:
    git(workspace, "checkout", "-q", "-b", "theirs")
    (workspace / "mine.txt").write_text("on theirs")


def detach(workspace: Path) -> None:
    git(workspace, "checkout", "-q", "--detach", "HEAD~1")


def amend(workspace: Path) -> None:
    git(workspace, "commit", "-q", "--amend", "-m", "Reworded")


def drop(workspace: Path) -> None:
    git(workspace, "update-ref", "-d", "refs/heads/main")


@pytest.mark.parametrize(
    ("act", "told", "branch"),
    [
        (edit, "Changed in the workspace by someone else: n.txt (M)", "main"),
        (commit, "Someone committed on main: By a person", "main"),
        (checkout, "Someone checked out branch theirs (you were on main)", "theirs"),
        (detach, "you are on main again", "main"),
        (amend, "Someone rewrote the history of main", "main"),
        (drop, "Someone had deleted branch main; it is back", "main"),
    ],
)
def test_a_person_who_acts_behind_our_back_is_followed_and_told(
    tmp_path: Path, act: object, told: str, branch: str
) -> None:
    workspace = stopped(tmp_path, COUNT, COUNT, cell("print(COMMIT('Third', 'x'))"), END)
    act(workspace)  # type: ignore[operator]
    raised(workspace, 9)
    code, _, err = rlm("resume", str(workspace))
    assert code == 0, err
    seen = [prompt for prompt in prompts(tmp_path) if told in prompt]
    assert len(seen) == 1 and "step: 3" in seen[0]
    assert git(workspace, "branch", "--show-current").strip() == branch
    assert "Third" in git(workspace, "log", "--format=%s", branch)
    assert_sound(workspace)
