"""A real REPL process in the sandbox that works here: cells, calls, limits, death, and its namespace in another process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ReplDied
from agent.repl.host import CellResult, Repl
from agent.repl.sandbox import Launcher, SandboxSpec, choose
from tests.agent.repl.serving import Serving


class Bench:
    """A REPL with a call handler that upper-cases prompts and counts them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.repl = self.fresh()

    def fresh(self) -> Repl:
        launcher = Launcher(SandboxSpec(writable=self.folder), choose())
        repl = Repl(launcher, self.folder, self.folder / "repl.log")
        repl.init({"context": {"value": "the material"}})
        return repl

    def handle(self, kind: str, args: dict[str, Any]) -> Any:
        self.calls.append((kind, args))
        if kind == "llm":
            return [{"ok": p != "bad", "value": p.upper()} for p in args["prompts"]]
        return {"ok": True, "value": {"steps": 3} if kind == "budget" else f"{kind} done"}

    def run(self, *blocks: str, timeout: float = 20.0, cap: int = 4000) -> CellResult:
        return self.repl.run(list(blocks), 1, Serving(self.handle), timeout, cap)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.repl.kill()


def test_output_and_the_last_expression_are_shown(bench: Bench) -> None:
    assert bench.run("print('a')\n40 + 2").output == "a\n42\n"
    assert bench.run("x = 1").output == ""
    assert (
        bench.run("import os, sys\nos.system('echo from a command')\nprint('err', file=sys.stderr)").output
        == "from a command\nerr\n"
    )


def test_variables_functions_and_classes_persist(bench: Bench) -> None:
    bench.run("n = 5\ndef double():\n    return n * 2\nclass Point:\n    def __init__(self, x): self.x = x\n")
    assert bench.run("n = 7\nprint(double(), Point(3).x, [n + i for i in range(2)])").output == "14 3 [7, 8]\n"


def test_an_exception_shows_the_cells_own_lines_and_keeps_what_was_set(bench: Bench) -> None:
    result = bench.run("kept = 1\ndef f():\n    raise ValueError('boo')\nf()")
    assert not result.ok
    assert (
        "line 4" in result.output and "raise ValueError('boo')" in result.output and "agent/repl" not in result.output
    )
    assert bench.run("kept").output == "1\n"


def test_blocks_stop_at_the_first_exception(bench: Bench) -> None:
    assert not bench.run("a = 1", "1 / 0", "a = 2").ok
    assert bench.run("a").output == "1\n"


def test_syntax_errors_and_sys_exit_are_observations(bench: Bench) -> None:
    assert "SyntaxError" in bench.run("x = (").output
    assert "SystemExit" in bench.run("import sys; sys.exit(1)").output
    assert bench.run("1").output == "1\n"


def test_long_output_keeps_head_and_tail_and_says_what_is_cut(bench: Bench) -> None:
    output = bench.run("print('head' + 'x' * 100_000 + 'tail')", cap=1000).output
    assert output.startswith("head") and output.endswith("tail\n") and "of 100009 characters cut" in output
    assert len(output) < 1100


def test_calls_from_the_cell_threads_and_coroutines(bench: Bench) -> None:
    code = (
        "import asyncio\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "print(llm_query('a'), list(ThreadPoolExecutor(4).map(llm_query, 'bcd')))\n"
        "print(await asyncio.gather(*(asyncio.to_thread(llm_query, p) for p in 'ef')))\n"
    )
    assert bench.run(code).output == "A ['B', 'C', 'D']\n['E', 'F']\n"
    assert len(bench.calls) == 6


def test_a_failed_slot_is_falsy_and_prints_as_an_error(bench: Bench) -> None:
    result = bench.run("r = llm_query_batched(['x', 'bad', 7])\nprint([bool(v) for v in r])\nprint(r[1])\nprint(r[2])")
    assert result.output == "[True, False, False]\nError: BAD\nError: prompt 2 is a int, not a str\n"


def test_scaffold_names_come_back(bench: Bench) -> None:
    bench.run("llm_query = None\ncontext = 3\nimport builtins; answer = 5")
    assert (
        bench.run("print(llm_query('a'), context, budget()['steps'], answer['ready'])").output
        == "A the material 3 False\n"
    )


@pytest.mark.parametrize(
    ("code", "content"),
    [
        ("answer['content'] = 'x'; answer['ready'] = True", "x"),
        ("answer = {'content': 12, 'ready': True}", "12"),
        ("answer.update(content='u', ready=True)", "u"),
        ("answer |= {'content': 'v', 'ready': True}", "v"),
        ("FINAL(3.5)", "3.5"),
        ("r = [1, 2]\nFINAL_VAR('r')", "[1, 2]"),
    ],
)
def test_every_way_to_finish(bench: Bench, code: str, content: str) -> None:
    result = bench.run(code)
    assert (result.ready, result.answer) == (True, content)


def test_an_untouched_answer_is_not_ready(bench: Bench) -> None:
    result = bench.run("answer['content'] = 'so far'")
    assert (result.ready, result.answer) == (False, "so far")


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(100)"])
def test_a_cell_that_computes_too_long_is_interrupted_and_the_repl_lives(bench: Bench, code: str) -> None:
    result = bench.run("kept = 1\n" + code, timeout=0.5)
    assert result.interrupted and not result.ok and "KeyboardInterrupt" in result.output
    assert bench.run("kept").output == "1\n"


def test_waiting_for_a_call_is_no_compute_time(bench: Bench) -> None:
    release = threading.Event()
    timer = threading.Timer(1.2, release.set)
    timer.start()
    bench.handle = lambda kind, args: (release.wait(), [{"ok": True, "value": "late"}])[1]  # type: ignore[method-assign]
    result = bench.run("print(llm_query('a'))", timeout=0.5)
    assert (result.output, result.interrupted) == ("late\n", False)


def test_a_process_that_ends_itself_or_is_killed_is_told_apart(bench: Bench) -> None:
    with pytest.raises(ReplDied) as died:
        bench.run("import os; os._exit(3)")
    assert "exit code 3" in str(died.value) and not died.value.signalled
    bench.repl = bench.fresh()
    pid = bench.repl.process.pid
    threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(ReplDied) as died:
        bench.run("while True: pass")
    assert died.value.signalled


def test_an_error_of_the_host_reaches_the_caller(bench: Bench) -> None:
    def broken(_kind: str, _args: dict[str, Any]) -> Any:
        raise RuntimeError("no provider")

    bench.handle = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="no provider"):
        bench.run("llm_query('a')")


def move(bench: Bench) -> dict[str, str]:
    """Snapshot the namespace, start another process, and restore it there; returns what was lost on the way."""
    taken = bench.repl.snapshot(set())
    bench.repl.kill()
    bench.repl = bench.fresh()
    return taken.lost | bench.repl.restore(taken.shas, taken.values)


def test_the_namespace_survives_in_another_process(bench: Bench) -> None:
    bench.run(
        "import re, collections\n"
        "data = {'a': [1, 2]}\nsame = data['a']\n"
        "def grow():\n    same.append(len(same)); return data\n"
        "def make(n):\n    def inner(x): return x + n + len(same)\n    return inner\n"
        "plus = make(10)\n"
        "class Base:\n    def who(self): return type(self).__name__\n"
        "class Child(Base):\n    def who(self): return 'child of ' + super().who()\n"
        "child = Child()\n"
        "def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "counts = collections.Counter('hello')\n"
        "def outer():\n    def rec(n): return 1 if n == 0 else n * rec(n - 1)\n    return rec\nfact = outer()\n"
    )
    assert move(bench) == {}
    result = bench.run(
        "print(data['a'] is same, grow(), plus(1), child.who(), isinstance(child, Base), fib(10), counts['l'], re.escape('.'), fact(4))"
    )
    assert result.output == "True {'a': [1, 2, 2]} 14 child of Child True 55 2 \\. 24\n"


def test_restored_functions_see_the_current_globals(bench: Bench) -> None:
    bench.run("n = 1\ndef f(): return n")
    move(bench)
    assert bench.run("n = 2\nf()").output == "2\n"


def test_what_cannot_be_pickled_is_named(bench: Bench) -> None:
    bench.run("import socket\ns = socket.socket()\ng = (i for i in range(3))\nfine = 1\nholder = [s]")
    lost = move(bench)
    assert set(lost) == {"s", "g", "holder"} or set(lost) == {"s", "g"}
    assert bench.run("fine").output == "1\n"


def test_unchanged_values_are_not_sent_again(bench: Bench) -> None:
    bench.run("big = 'x' * 1_000_000\nsmall = [1]")
    first = bench.repl.snapshot(set())
    bench.run("small.append(2)")
    second = bench.repl.snapshot(set(first.shas.values()))
    assert second.shas["big"] == first.shas["big"]
    assert set(second.values) == {second.shas["small"]}
