"""The policy from question to report, over notes and over a small code base, with a sub-model that knows nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .cellrun import CellRun, SubModel, failing, first_option, fresh, write_all

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

CODE = {
    "shop/__init__.py": "",
    "shop/tills.py": '''"""Tills of the shop.

Written by Ada Palmer, 3 May 2020.
"""

LIMIT = 250
OPENING = "08:30"


class TillError(RuntimeError):
    """A till refuses."""


class Till(Base, Named):
    """Takes money."""

    retries = 4

    def __init__(self, clerk, float_coins=40, *, strict=False):
        self.clerk = clerk

    def pay(self, amount):
        """Pay an amount out.

        Returns the coins, largest first. When the till is empty, a note is printed.
        """
        if amount < 0:
            raise ValueError("a negative amount")
        if amount > LIMIT:
            raise TillError("the amount is above the limit of this till")
''',
    "shop/stock.py": "LIMIT = 9\n\n\ndef count(item, cutoff=0.25):\n    pass\n",
    "tests/test_tills.py": "LIMIT = 1\n\n\nclass Till(object):\n    def __init__(self, float_coins=7):\n        pass\n",
}
ASKED = {
    "What is the default `float_coins` of `shop.tills.Till`?": "40",
    "Which value does `shop.tills.LIMIT` have?": "250",
    "Which value does `shop.stock.LIMIT` have?": "9",
    "What is the default of `cutoff` in `count`?": "0.25",
    "From which classes does `shop.tills.Till` inherit?": "Base, Named",
    "In which file is `TillError` defined?": "shop/tills.py",
    "Which exception does `Till.pay` raise when the amount is above the limit?": "TillError",
    "How many `retries` has `shop.tills.Till`?": "4",
    "Who wrote the module `shop.tills`?": "Ada Palmer",
    "What is the default `colour` of `shop.tills.Till`?": "not found",
}


def numbered(questions: list[str]) -> str:
    return "Answer these.\n\n" + "\n".join(f"{n}. {question}" for n, question in enumerate(questions, 1))


def notes(folder: Path, sub: SubModel) -> CellRun:
    goal = yaml.safe_load((EXAMPLES / "notes/task.yaml").read_text())["goal"]
    return CellRun(goal, EXAMPLES / "notes/docs", folder, sub)


def check(example: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / example / "check.py"), "report.md"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("sub", [first_option, failing])
def test_the_notes_example_passes_its_own_check(tmp_path: Path, sub: SubModel) -> None:
    run = notes(tmp_path, sub)
    answer = run.finish()
    done = check("notes", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 right, 0 wrong" in done.stdout
    assert answer.startswith("6 questions, 1 not found")
    assert [text.split(":")[0] for text in run.commits] == [f"Answer question {n}" for n in range(1, 7)]


def test_the_same_messages_give_the_same_run(tmp_path: Path) -> None:
    runs = [notes(fresh(tmp_path, name), first_option) for name in ("a", "b")]
    for run in runs:
        run.finish()
    assert runs[0].steps == runs[1].steps
    assert runs[0].report == runs[1].report


def test_code_is_read_as_code(tmp_path: Path) -> None:
    run = CellRun(numbered(list(ASKED)), write_all(tmp_path / "src", CODE), fresh(tmp_path))
    run.finish()
    assert dict(zip(ASKED, run.answers(), strict=True)) == ASKED


def test_a_lying_sub_model_changes_no_exact_answer(tmp_path: Path) -> None:
    def lying(prompt: str, schema: object = None) -> object:
        return {"answer": "999"} if schema else "The answer is 999."

    run = CellRun(numbered(list(ASKED)), write_all(tmp_path / "src", CODE), fresh(tmp_path), lying)
    run.finish()
    assert run.answers() == list(ASKED.values())


@pytest.mark.parametrize("broken", ["passages", "from_code", "settle", "idf", "questions"])
def test_lost_names_are_made_again(tmp_path: Path, broken: str) -> None:
    run = notes(tmp_path, first_option)
    while "NEXT: look 3" not in run.step():
        pass
    del run.names[broken]
    run.finish()
    assert check("notes", tmp_path).returncode == 0


def test_a_question_that_always_fails_is_left_open_and_the_others_answered(tmp_path: Path) -> None:
    def crash(prompt: str, schema: object = None) -> object:
        if "pantry roof" in prompt:
            raise ConnectionError("no model")
        return first_option(prompt, schema)  # type: ignore[arg-type]

    run = notes(tmp_path, crash)
    run.finish()
    assert run.answers()[0] == "not found"
    assert "187" in run.answers()


def test_it_gives_up_when_nothing_works(tmp_path: Path) -> None:
    run = notes(tmp_path, first_option)
    run.names["context"] = None
    for _ in range(20):
        run.step()
    assert not run.names["answer"]["ready"], "a failure is no answer"
    assert run.names["answer"]["content"].startswith("Gave up")
    assert all("Gave up" in shown for _, shown in run.steps[-5:]), "each step fails, so that the run ends as stuck"


def test_the_check_sees_a_false_citation(tmp_path: Path) -> None:
    run = notes(tmp_path, first_option)
    run.finish()
    honest = run.report
    for old, new in [
        ("birds.md:8`", "birds.md:9`"),
        ("> Counted", "> C"),
        ("> The kittiwake", "> A kittiwake"),
        ("Answer: 187", "Answer: 188"),
    ]:
        (tmp_path / "report.md").write_text(honest.replace(old, new))
        if honest.replace(old, new) != honest:
            assert "6 right" not in check("notes", tmp_path).stdout
    (tmp_path / "report.md").write_text(honest.replace("Answer: not found", "Answer: Ingrid"))
    assert check("notes", tmp_path).returncode == 1
    (tmp_path / "report.md").unlink()
    assert check("notes", tmp_path).returncode == 1
