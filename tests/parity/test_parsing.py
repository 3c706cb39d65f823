"""What the reference library promises of replies, behaviour by behaviour; `DEV:` marks where we do better on purpose."""

from __future__ import annotations

import pytest

from agent.repl.cells import parse_cells

F = "```"


def block(code: str, label: str = "repl") -> str:
    return f"{F}{label}\n{code}\n{F}"


def test_one_block() -> None:
    assert parse_cells(f"I look.\n{block('x = 1')}\nDone.") == ["x = 1"]


def test_several_blocks_in_order() -> None:
    assert parse_cells(f"{block('a = 1')}\nand then\n{block('b = 2')}\n{block('c = 3')}") == ["a = 1", "b = 2", "c = 3"]


def test_no_block_is_no_cell() -> None:
    assert parse_cells("Only words, and `inline` code.") == []


@pytest.mark.parametrize("label", ["json", "bash", "javascript", "text", "pycon", ""])
def test_other_languages_are_ignored(label: str) -> None:
    assert parse_cells(block("x = 1", label)) == []


@pytest.mark.parametrize("label", ["repl", "python", "py", "REPL", "Python", "PY"])
def test_repl_python_and_py_in_any_case(label: str) -> None:
    # DEV: the reference takes `repl` in lower case alone.
    assert parse_cells(block("x = 1", label)) == ["x = 1"]


def test_crlf() -> None:
    # DEV
    assert parse_cells(block("x = 1\ny = 2").replace("\n", "\r\n")) == ["x = 1\ny = 2"]


def test_a_fence_inside_a_string() -> None:
    # DEV: the reference ends the block at the first fence.
    code = f's = """\n{F}python\nprint(1)\n{F}\n"""\nprint(s)'
    assert parse_cells(block(code)) == [code]


def test_an_unterminated_last_fence() -> None:
    # DEV: the reference drops the block.
    assert parse_cells(f"{F}repl\nx = 1\nprint(x)") == ["x = 1\nprint(x)"]


def test_several_lines_are_kept_intact() -> None:
    code = "def f(x):\n\n    # a comment\n    return [\n        x,\n    ]\n\nprint(f(1))"
    assert parse_cells(block(code)) == [code]


def test_uniform_indentation_is_taken_off() -> None:
    # DEV
    assert parse_cells(f"- do\n  {F}repl\n  for i in x:\n      print(i)\n  {F}") == ["for i in x:\n    print(i)"]
