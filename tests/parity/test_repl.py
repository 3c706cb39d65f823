"""What the reference library promises of its REPL, through the real worker process; `DEV:` marks where we do better on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.repl.host import CellResult, Repl
from agent.repl.pool import ReplPool
from agent.repl.sandbox import Launcher, SandboxSpec, choose
from tests.agent.repl.serving import Serving


class House:
    """Starts REPLs over a given context; calls are answered in upper case."""

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self.work.mkdir()
        self.spec = SandboxSpec(writable=self.work)
        self.pool = ReplPool(self.spec, choose(), (self.work,), root / "repl.log")

    def repl(self, context: Any = "material") -> Repl:
        repl = Repl(Launcher(self.spec, choose()), self.work, self.work / "repl.log", self.pool.start)
        repl.init({"context": {"value": context}})
        return repl


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("parity"))
    yield made
    made.pool.close()


@pytest.fixture
def repl(house: House) -> Iterator[Repl]:
    made = house.repl()
    yield made
    made.kill()


def run(repl: Repl, *blocks: str, cap: int = 4000) -> CellResult:
    def answer(kind: str, args: dict[str, Any]) -> Any:
        return [{"ok": True, "value": prompt.upper()} for prompt in args["prompts"]]

    return repl.run(list(blocks), 1, Serving(answer), 20.0, cap)


def shown(repl: Repl, code: str) -> str:
    return run(repl, code).output


def test_ready_ends(repl: Repl) -> None:
    done = run(repl, "answer['content'] = 'it'\nanswer['ready'] = True")
    assert (done.answer, done.ready) == ("it", True)


def test_an_untouched_answer_does_not_end(repl: Repl) -> None:
    assert not run(repl, "x = 1").ready


@pytest.mark.parametrize(
    "code",
    [
        "answer = {'content': 'it', 'ready': True}",
        "answer.update(content='it', ready=True)",  # DEV
        "answer |= {'content': 'it', 'ready': True}",  # DEV
    ],
)
def test_rebinding_and_updating_the_answer_work(repl: Repl, code: str) -> None:
    done = run(repl, code)
    assert (done.answer, done.ready) == ("it", True)


@pytest.mark.parametrize(("content", "text"), [("42", "42"), ("[1, 'a']", "[1, 'a']"), ("{'k': None}", "{'k': None}")])
def test_content_that_is_no_string_becomes_one(repl: Repl, content: str, text: str) -> None:
    assert run(repl, f"answer['content'] = {content}\nanswer['ready'] = True").answer == text


def test_print_is_captured(repl: Repl) -> None:
    assert shown(repl, "print('a', 1)") == "a 1\n"


def test_stderr_is_captured(repl: Repl) -> None:
    assert shown(repl, "import sys\nprint('e', file=sys.stderr)") == "e\n"


def test_names_of_variables_are_shown_and_private_ones_are_not(repl: Repl) -> None:
    assert run(repl, "a, b, _private = 1, 'xy', 3").variables == [("a", "int", -1), ("b", "str", 2)]


def test_longer_output_is_cut_with_the_count(repl: Repl) -> None:
    output = run(repl, "print('x' * 5000)", cap=100).output
    assert "of 5001 characters cut" in output and len(output) < 200


def test_an_exception_is_shown_with_its_line_and_crashes_nothing(repl: Repl) -> None:
    # DEV: the reference shows the message alone.
    output = shown(repl, "x = 1\ny = x / 0")
    assert "ZeroDivisionError" in output and "line 2" in output and "y = x / 0" in output
    assert shown(repl, "x") == "1\n"  # DEV: what was set before the exception stays


def test_a_syntax_error_is_shown(repl: Repl) -> None:
    assert "SyntaxError" in shown(repl, "def f(:")


def test_variables_and_functions_persist(repl: Repl) -> None:
    run(repl, "n = 20\ndef f(x): return x + n")
    assert shown(repl, "f(1)") == "21\n"


def test_functions_see_the_current_globals(repl: Repl) -> None:
    # DEV: the reference's functions keep those of the cell that made them.
    run(repl, "def f(): return later")
    assert shown(repl, "later = 7\nf()") == "7\n"


def test_comprehensions_see_outer_names(repl: Repl) -> None:
    assert shown(repl, "k = 3\nprint([k * i for i in range(3)], {i: [k for _ in range(i)] for i in range(2)})") == (
        "[0, 3, 6] {0: [], 1: [3]}\n"
    )


def test_all_built_in_names_are_there(repl: Repl) -> None:
    # DEV: the reference takes eval, exec, input and globals away.
    code = "class P: pass\nprint(eval('1 + 1'), len(globals()) > 5, P.__name__, sorted(map(abs, (-2, 1))), callable(input))"
    assert shown(repl, code) == "2 True P [1, 2] True\n"


def test_imports(repl: Repl) -> None:
    run(repl, "import json, re\nfrom collections import Counter")
    assert shown(repl, "json.dumps([1]), re.sub('a', 'b', 'a'), Counter('aa')['a']") == "('[1]', 'b', 2)\n"


@pytest.mark.parametrize("context", ["some text", {"k": [1, 2]}, ["a", {"b": None}]])
def test_the_context_is_a_str_a_dict_or_a_list(house: House, context: Any) -> None:
    repl = house.repl(context)
    assert shown(repl, "print(type(context).__name__, context)") == f"{type(context).__name__} {context}\n"
    repl.kill()


@pytest.mark.parametrize("name", ["context", "llm_query", "rlm_query"])
def test_scaffold_names_come_back_after_being_overwritten(repl: Repl, name: str) -> None:
    before = shown(repl, f"print(type({name}).__name__)")
    run(repl, f"{name} = 5")
    assert shown(repl, f"print(type({name}).__name__)") == before
    run(repl, f"del {name}")
    assert shown(repl, f"print(type({name}).__name__)") == before


def test_nothing_survives_to_a_fresh_repl(house: House) -> None:
    for _ in range(2):
        repl = house.repl()
        assert shown(repl, "print('mark' in globals(), answer['content'] == '')") == "False True\n"
        run(repl, "mark = 1\nanswer['content'] = 'old'")
        repl.kill()


def test_a_sub_call_answers_in_the_cell(repl: Repl) -> None:
    assert shown(repl, "print(llm_query('a'), llm_query_batched(['b', 'c']))") == "A ['B', 'C']\n"
    assert shown(repl, "async def f(): return llm_query('d')\nt = f()\nprint(await t)") == "D\n"
