"""Replies as models write them, and the cells that must come out."""

from __future__ import annotations

import pytest

from agent.repl.cells import parse_cells, parse_final, parse_thought

FENCE = "```"


@pytest.mark.parametrize("label", ["repl", "python", "py", "REPL", "Python", "repl  "])
def test_a_labelled_block_is_a_cell(label: str) -> None:
    assert parse_cells(f"First.\n{FENCE}{label}\nx = 1\nprint(x)\n{FENCE}\nDone.") == ["x = 1\nprint(x)"]


def test_several_blocks_come_in_order() -> None:
    reply = f"{FENCE}repl\na = 1\n{FENCE}\nthen\n{FENCE}py\nb = 2\n{FENCE}\n"
    assert parse_cells(reply) == ["a = 1", "b = 2"]


@pytest.mark.parametrize(
    "reply",
    ["no code", f"{FENCE}json\n{{}}\n{FENCE}", f"{FENCE}\nx = 1\n{FENCE}", "", f"{FENCE}repl\n\n{FENCE}"],
)
def test_other_fences_and_prose_are_no_cells(reply: str) -> None:
    assert parse_cells(reply) == []


def test_crlf_is_a_line_end() -> None:
    assert parse_cells(f"{FENCE}repl\r\nx = 1\r\ny = 2\r\n{FENCE}\r\n") == ["x = 1\ny = 2"]


def test_a_fence_inside_a_string_does_not_end_the_cell() -> None:
    code = f'text = """\n{FENCE}python\nprint(1)\n{FENCE}\n"""\nprint(text)'
    assert parse_cells(f"{FENCE}repl\n{code}\n{FENCE}") == [code]


def test_an_unterminated_last_fence_ends_with_the_reply() -> None:
    assert parse_cells(f"{FENCE}repl\nx = 1\nprint(x)") == ["x = 1\nprint(x)"]


def test_a_broken_block_does_not_swallow_the_next() -> None:
    assert parse_cells(f"{FENCE}repl\nx = (\n{FENCE}\n{FENCE}repl\ny = 1\n{FENCE}") == ["x = (", "y = 1"]


def test_uniform_indentation_is_taken_off() -> None:
    assert parse_cells(f"1. do\n   {FENCE}repl\n   if True:\n       x = 1\n   {FENCE}") == ["if True:\n    x = 1"]


def test_top_level_await_counts_as_python() -> None:
    assert parse_cells(f"{FENCE}repl\nawait f()\n{FENCE}") == ["await f()"]


@pytest.mark.parametrize(
    ("reply", "final"),
    [
        ("FINAL(42)", ("42", False)),
        ('FINAL("the answer (in part)")', ("the answer (in part)", False)),
        ("so\nFINAL(f(g(x)))\n", ("f(g(x))", False)),
        ('FINAL_VAR("result")', ("result", True)),
        ("FINAL_VAR(result)", ("result", True)),
        (f"{FENCE}repl\nFINAL(x)\n{FENCE}", None),
        ("nothing final", None),
    ],
)
def test_final_outside_of_cells(reply: str, final: tuple[str, bool] | None) -> None:
    assert parse_final(reply) == final


def test_the_thought_is_what_stands_before_the_cell() -> None:
    assert parse_thought(f"I will look.\n\n{FENCE}repl\nx\n{FENCE}\nafter") == "I will look."
