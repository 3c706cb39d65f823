"""One question, asked of files of many kinds: a short plan, an answer that cites its lines, and never an invention."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agent.explorer.model import Explorer, lone_question, questions
from agent.models.base import Message, ModelRequest, ModelSpec, complete

from .cellrun import CellRun, failing, fresh, write_all
from .test_policy import CODE

FILES = {
    **{f"src/{name}": text for name, text in CODE.items()},
    "include/limits.h": "/* limits */\n#define TILL_MAX 250 /* at most */\n#define TILL_ALIAS TILL_MAX\n\nstruct till {\n  int coins;\n};\n",
    "man/man1/tally.1": ".TH TALLY 1\n.SH NAME\ntally \\- count the coins of a till\n.SH SYNOPSIS\n.B tally\n[\\fIFILE\\fR]\n",
    "log/2021.log": "".join(f"2021-03-{day:02} till {day % 3} opened\n" for day in range(1, 31))
    + "kernel: till on fire\n",
    "notes/history.txt": "The first till was built in the harbour.\nThe brass till was repaired by Ingrid Olsen in May 1987.\n",
    "noise/words.txt": "the till of the shop and the coins of the day\n" * 4000,
}
ASKED = {
    "What is the default of the `float_coins` parameter of `shop.tills.Till`?": ("40", "src/shop/tills.py"),
    "Which value does `shop.stock.LIMIT` have?": ("9", "src/shop/stock.py"),
    "What is the value of TILL_MAX?": ("250", "include/limits.h"),
    "Where is `struct till` defined?": ("include/limits.h", "include/limits.h"),
    "In which file is the class `TillError` defined?": ("src/shop/tills.py", "src/shop/tills.py"),
    "From which classes does `shop.tills.Till` inherit?": ("Base, Named", "src/shop/tills.py"),
    "Which exception does `Till.pay` raise when the amount is above the limit?": ("TillError", "src/shop/tills.py"),
    "How many lines of `log/2021.log` mention `opened`?": ("30 lines.", "log/2021.log"),
    "How often does the word coins occur?": ("4003 occurrences.", "src/shop/tills.py"),
    "How many files contain `LIMIT`?": ("3 documents.", "src/shop/stock.py"),
    'Which file contains the message "till on fire"?': ("log/2021.log.", "log/2021.log"),
    "On which line of `log/2021.log` does `opened` occur last?": ("log/2021.log, line 30.", "log/2021.log"),
    "What does the command tally do?": ("count the coins of a till", "man/man1/tally.1"),
    "What does `shop.tills.Till.pay` do?": ("Pay an amount out.", "src/shop/tills.py"),
    "Who repaired the brass till?": ("Ingrid Olsen", "notes/history.txt"),
    "When was the brass till repaired by Ingrid Olsen?": ("May 1987", "notes/history.txt"),
}
NOWHERE = [
    "What is the default `colour` of `shop.tills.Till`?",
    "Who repaired the clock of Kvitfjell?",
    "What is the value of TILL_COLOUR_DEPTH?",
    "How many lines mention `zeppelin`?",
    'Which file contains the message "till under water"?',
]


def goal(question: str) -> str:
    return (
        "Answer this question over `context`, and cite the lines it rests on as [document:line].\n\n"
        f"QUESTION: {question}"
    )


def asked(question: str, material: Path, folder: Path, **names: Any) -> CellRun:
    """A rollout as `ask` starts it: no COMMIT, a scratch folder, a sub-model that always fails."""
    run = CellRun(goal(question), material, folder, failing)
    del run.names["COMMIT"]
    run.names.update(names)
    return run


def holds(answer: str, run: CellRun) -> list[str]:
    """Check every citation of an answer against the documents; return the names of those cited."""
    cited = re.findall(r"^\[(.+):(\d+)\]\n> (.*)$", answer, re.MULTILINE)
    for name, line, quote in cited:
        assert run.names["context"][name].lines(int(line), int(line)) == [quote]
    return [name for name, _, _ in cited]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("material"), FILES)


@pytest.mark.parametrize("question", ASKED)
def test_a_question_is_answered_with_lines_that_hold(question: str, material: Path, tmp_path: Path) -> None:
    said, document = ASKED[question]
    run = asked(question, material, tmp_path)
    answer = run.finish(limit=25)
    assert answer.split("\n")[0] == said
    assert document in holds(answer, run)
    assert run.commits == []
    assert list(tmp_path.iterdir()) == []  # no report


@pytest.mark.parametrize("question", NOWHERE)
def test_what_is_not_there_is_said_not_invented(question: str, material: Path, tmp_path: Path) -> None:
    run = asked(question, material, tmp_path)
    answer = run.finish(limit=25)
    assert "not found" in answer
    assert holds(answer, run) == []
    assert f"{len(FILES)} documents" in answer or "documents for" in answer


def test_lost_names_are_made_again(material: Path, tmp_path: Path) -> None:
    run = asked("What is the value of TILL_MAX?", material, tmp_path)
    while "NEXT: conclude" not in run.step():
        pass
    for name in ("homes", "regions", "purpose"):
        del run.names[name]
    assert run.finish().startswith("250\n")


def test_a_child_answers_over_text_given_inline(tmp_path: Path) -> None:
    run = CellRun("Who repaired the brass till?", write_all(tmp_path / "m", {"a.txt": "x\n"}), fresh(tmp_path), failing)
    del run.names["COMMIT"]
    run.names["context"] = FILES["notes/history.txt"]
    shown = run.messages
    child = Message("system", "You answer one question over the given `context`, by writing Python cells.")
    run.messages = lambda: (child, *shown()[1:])  # type: ignore[method-assign]
    answer = run.finish(limit=25)
    assert answer.startswith("Ingrid Olsen\n\n[context.txt:2]\n> The brass till")


def test_which_goals_are_one_question() -> None:
    root, child = (
        Message("system", "You work on one task"),
        Message("system", "You answer one question over the given `context`"),
    )
    ask = Message("user", f"<task>\n{goal('Why is it so? 1. Or not?')}\n</task>")
    listed = Message("user", "<task>\n1. Why?\n2. When?\n</task>")
    assert lone_question([root, ask]) == "Why is it so? 1. Or not?"
    assert lone_question([root, listed]) is None
    assert lone_question([child, Message("user", "<task>\nWhy\nso?\n</task>")]) == "Why so?"
    assert questions("1. Why?\n2. When?") == ["Why?", "When?"]
    text = complete(Explorer(ModelSpec("offline/explorer")), ModelRequest((root, ask))).text
    assert "asking = True" in text
