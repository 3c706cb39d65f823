"""How the explorer reads its messages: the task's questions, and where to go on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from agent.explorer.model import THOUGHTS, Explorer, cell, goal, next_cell, questions
from agent.models.base import Message, ModelRequest, ModelSpec, complete

CELLS = sorted((Path(__file__).resolve().parents[3] / "agent/explorer/cells").glob("*.py"))


def seen(*observations: str, step: int = 0) -> list[Message]:
    messages = [Message("system", "rules"), Message("user", "<task>\nWhy?\n</task>")]
    for number, text in enumerate(observations, 1):
        messages += [
            Message("assistant", "…"),
            Message("user", f'<observation step="{number}">\n{text}\n</observation>'),
        ]
    messages[-1] = Message(
        "user", f"{messages[-1].content}\n\n<state>\nstep: {step or len(observations) + 1}\n</state>"
    )
    return messages


def test_questions_in_any_form() -> None:
    assert questions("Do it.\n\n1. What is `a.b`?\n2) Who wrote\n   the second line?\n\nBe brief.") == [
        "What is `a.b`?",
        "Who wrote the second line?",
    ]
    assert questions("- Is it so?\n- not a question\n* And this?") == ["Is it so?", "And this?"]
    assert questions("Read it. What is 3.5 in a.py? Then say: who did it?") == [
        "What is 3.5 in a.py?",
        "Then say: who did it?",
    ]
    assert questions("Summarise\nthe logs.") == ["Summarise the logs."]


def test_the_goal_stands_between_its_tags() -> None:
    assert (
        goal([Message("system", "s"), Message("user", "<task>\nA?\nB?\n</task>\n\n<roadmap>\n1. no\n</roadmap>")])
        == "A?\nB?"
    )
    assert goal([Message("user", "Just this?")]) == "Just this?"


@pytest.mark.parametrize(
    ("observations", "expected"),
    [
        ((), ("survey", None)),
        (("12\nNEXT: words",), ("words", None)),
        (("NEXT: look 1", "NEXT: settle 12"), ("settle", 12)),
        (("NEXT: look 1\nTraceback (most recent call last):\n  …\nKeyError: 1",), ("recover", None)),
        (("NEXT: nowhere",), ("recover", None)),
        (("NEXT: look 1", "boom", "boom"), ("recover", None)),
        (("boom", "boom", "boom"), ("give_up", None)),
        (("boom", "boom", "NEXT: look 2", "boom"), ("recover", None)),
    ],
)
def test_the_marker_says_where_to_go_on(observations: tuple[str, ...], expected: tuple[str, int | None]) -> None:
    assert next_cell(seen(*observations)) == expected


def test_a_late_prompt_without_steps_never_starts_anew() -> None:
    assert next_cell(seen(step=40)) == ("recover", None)


def test_a_reply_is_a_thought_and_one_cell() -> None:
    model = Explorer(ModelSpec("offline/explorer"))
    model.check()
    first = complete(model, ModelRequest(tuple(seen())))
    assert first == complete(model, ModelRequest(tuple(seen())))
    assert "questions = [\n    'Why?',\n]" in first.text
    assert first.cost_usd == 0.0
    assert first.tokens_in > 0 < first.tokens_out
    settle = complete(model, ModelRequest(tuple(seen("NEXT: settle 3")))).text
    assert "```repl\nsettle(3)\n" in settle
    assert "NEXT: look 4" in settle
    model.close()


def test_a_question_with_quotes_and_backslashes_stays_itself() -> None:
    asked = "What is `\"a\\b\"` in 'c'?"
    messages = (Message("user", f"<task>\n1. {asked}\n</task>"),)
    text = complete(Explorer(ModelSpec("offline/explorer")), ModelRequest(messages)).text
    tree = ast.parse(text.partition("```repl\n")[2].rpartition("```")[0])
    assert isinstance(tree.body[0], ast.Assign)
    assert ast.literal_eval(tree.body[0].value) == [asked]


@pytest.mark.parametrize("path", CELLS, ids=lambda path: path.stem)
def test_cells_are_short_readable_python_and_lead_somewhere(path: Path) -> None:
    text = cell(path.stem)
    ast.parse(text)
    assert path.stem in THOUGHTS
    assert len(text.splitlines()) <= 75
    assert "```" not in text
    assert not {"random", "time", "datetime"} & {
        alias.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for alias in node.names
    }


def test_every_thought_has_its_cell() -> None:
    assert sorted(THOUGHTS) == [path.stem for path in CELLS]
