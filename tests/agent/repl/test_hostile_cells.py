"""Cells that harm their own REPL: whatever they do, the host learns of it at once and the next cell runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ReplDied
from agent.repl.host import CellResult, Repl
from agent.repl.sandbox import Launcher, SandboxSpec, choose
from agent.repl.snapshot import NamespaceWriter
from tests.agent.repl.serving import Serving

CHANNEL = """
import gc
from agent.repl.wire import Channel
channel = next(o for o in gc.get_objects() if isinstance(o, Channel))
"""


class Bench:
    """A REPL whose calls are answered in upper case."""

    def __init__(self, folder: Path) -> None:
        self.calls: list[str] = []
        self.repl = Repl(Launcher(SandboxSpec(writable=folder), choose()), folder, folder / "repl.log")
        self.repl.init({"context": {"value": ""}})

    def handle(self, kind: str, args: dict[str, Any]) -> Any:
        self.calls += args["prompts"]
        return [{"ok": True, "value": p.upper()} for p in args["prompts"]]

    def run(self, code: str, timeout: float = 20.0) -> CellResult:
        return self.repl.run([code], 1, Serving(self.handle), timeout, 4000)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.repl.kill()


def test_text_that_is_not_utf8_is_shown_and_asked_about(bench: Bench) -> None:
    shown = bench.run("import os\nopen(b'\\xff', 'w').close()\nprint(max(os.listdir('.')), llm_query('x\\ud800'))")
    assert shown.ok and shown.output == "\\udcff X\\UD800\n"


@pytest.mark.parametrize(
    "harm",
    [
        "channel._socket.sendall(b'\\0\\0\\0\\5junk!')",
        "channel._socket.sendall(b'\\xff\\xff\\xff\\xff')",
        "channel.send(op='ran')",
        "channel.send(op='call')",
        "channel.send(op='nonsense')",
        "channel.send(no=1)",
    ],
)
def test_junk_on_the_channel_ends_the_repl_at_once(bench: Bench, harm: str) -> None:
    began = time.monotonic()
    with pytest.raises(ReplDied, match="own channel") as caught:
        bench.run(f"{CHANNEL}{harm}\nwhile True: pass", timeout=60)
    assert not caught.value.signalled, "its own cell did it, so it is not run again"
    assert time.monotonic() - began < 30, "not only when the cell's time is over"


def test_an_unknown_reply_id_does_not_make_the_repl_deaf(bench: Bench) -> None:
    bench.repl._channel.send(op="reply", id=999, value=1)
    assert bench.run("print(llm_query('a'))").output == "A\n"


def test_a_forked_copy_of_the_cell_ends_with_it(bench: Bench) -> None:
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(0.2)\nelse:\n    print('parent')"
    assert bench.run(code).output == "parent\n"
    assert bench.run("time.sleep(3)\nprint('second')").output == "second\n"


def test_a_forked_process_cannot_make_calls(bench: Bench) -> None:
    code = (
        "import os\npid = os.fork()\nif pid == 0:\n    try: llm_query('a')\n    except RuntimeError: os._exit(7)\n"
        "    os._exit(0)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), llm_query('b'))"
    )
    assert bench.run(code).output == "7 B\n"
    assert bench.calls == ["b"]


def test_closed_streams_are_open_again_for_the_next_cell(bench: Bench) -> None:
    bench.run("import os\nos.close(1); os.close(2)")
    assert bench.run("os.system('echo here; echo there >&2')").output == "here\nthere\n0\n"


def test_what_commands_and_python_print_stays_in_order(bench: Bench) -> None:
    shown = bench.run("import os\nfor i in range(60):\n    os.write(1, b'c%d\\n' % i)\n    print(f'p{i}')").output
    assert shown.split() == [f"{who}{i}" for i in range(60) for who in "cp"]


def test_timers_and_signal_handlers_end_with_the_cell(bench: Bench) -> None:
    bench.run(
        "import signal, time\nsignal.signal(signal.SIGALRM, lambda *_: 1 / 0)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.2, 0.05)\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nx = 1"
    )
    time.sleep(0.5)
    assert bench.run("print(x)").output == "1\n"
    slept = bench.run("time.sleep(60)", timeout=0.5)
    assert slept.interrupted and not slept.ok


def test_calls_of_a_thread_that_outlives_its_cell_wait_for_the_next(bench: Bench) -> None:
    bench.run(
        "import threading, time\nsaid = []\ndef later():\n    for i in range(3):\n        time.sleep(0.2)\n"
        "        said.append(llm_query(f'late {i}'))\nthread = threading.Thread(target=later)\nthread.start()"
    )
    time.sleep(0.5)
    assert "said" in bench.repl.snapshot(set()).shas
    assert bench.run("thread.join()\nprint(said)").output == "['LATE 0', 'LATE 1', 'LATE 2']\n"


def test_a_cell_is_over_only_when_its_threads_calls_are_settled(bench: Bench) -> None:
    done: list[float] = []

    def slow(_kind: str, args: dict[str, Any]) -> Any:
        time.sleep(0.5)
        done.append(time.monotonic())
        return [{"ok": True, "value": p} for p in args["prompts"]]

    code = "import threading, time\nthreading.Thread(target=llm_query, args=('a',)).start()\ntime.sleep(0.2)"
    bench.repl.run([code], 1, Serving(slow), 20.0, 4000)
    assert len(done) == 1


def test_objects_that_cannot_be_looked_at_fail_the_cell_only(bench: Bench) -> None:
    bench.run("x = 1\nclass Odd:\n    def __bool__(self): raise ValueError\n    __str__ = __bool__")
    assert not bench.run("answer['ready'] = Odd()").ok
    assert not bench.run("answer = {'content': Odd(), 'ready': True}").ready
    endless = "class Endless:\n    def __len__(self):\n        while True: pass\nanswer = {}\ne = Endless()"
    assert bench.run(endless, timeout=0.5).interrupted
    assert bench.run("del e\nprint(x)").output == "1\n"


def test_an_answer_of_none_is_empty(bench: Bench) -> None:
    assert bench.run("answer = {'content': None, 'ready': True}").answer == ""


def test_a_variable_that_refuses_to_be_stored_is_named(bench: Bench) -> None:
    bench.run("class No:\n    def __reduce__(self): raise SystemExit(3)\nno, x = No(), 1")
    taken = bench.repl.snapshot(set())
    assert "x" in taken.shas and "SystemExit" in taken.lost["no"]


def test_what_is_too_much_to_keep_is_named() -> None:
    names = {"small": b"x" * 10, "big": b"x" * 2000, "a": b"a" * 500, "b": b"b" * 500}
    writer = NamespaceWriter(names, max_value=1000, max_total=800)
    for _ in range(2):  # the second time with what it remembers of the first
        shas, _values, lost = writer.write((), ())
        assert set(shas) == {"small", "a"}
        assert set(lost) == {"big", "b"} and "write it to a file" in lost["big"]
