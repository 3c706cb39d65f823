"""Hostile cells, one row each: the observation says what happened, and the next step finds its variables and its scaffold.

A row is (cell, a pattern of what the model is told). What can be interrupted is; what cannot be held ends the REPL, which is
started again from its last snapshot, as the loop does it.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ReplDied
from agent.repl.host import CellResult, Repl, Spawn
from agent.repl.pool import ReplPool
from agent.repl.sandbox import Launcher, SandboxSpec, choose, launch_worker
from tests.agent.repl.serving import Serving

CHANNEL = "import gc\nchannel = next(o for o in gc.get_objects() if type(o).__name__ == 'Channel')\n"
NEXT = """
import json, os
os.system('echo a command')
print(kept, len(kept), context, llm_query('asked'), isinstance(kept, list), SHOW_VARS.__name__)
answer.update(content='fin', ready=True)
"""
SHOWN = "a command\n[1, 2] 2 material ASKED True SHOW_VARS\n"
INTERRUPTED = "KeyboardInterrupt"
KILLED = r"computed for more than .* \(limits.cell_timeout\), ignored the interrupt and was killed: do the work in smaller pieces"

TIME = [
    ("while True: pass", INTERRUPTED),
    ("while True:\n    try:\n        while True: pass\n    except KeyboardInterrupt: pass", INTERRUPTED),
    ("while True:\n  try:\n    while True:\n      try: sum(range(99))\n      except: pass\n  except BaseException: pass", INTERRUPTED),
    ("def deaf(n):\n  while True:\n    try: deaf(n - 1) if n else sum(range(99))\n    except: pass\ndeaf(4)", INTERRUPTED),
    ("import time\ntime.sleep(1e9)", INTERRUPTED),
    ("import re\nre.match('(a+)+$', 'a' * 60 + 'b')", INTERRUPTED),
    ("x = 10 ** 10 ** 8", INTERRUPTED),
    # Woken up to be interrupted, it may be over before the signal is taken: the host says so all the same.
    ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", INTERRUPTED + r"|\[interrupted\]"),
    ("import subprocess, signal\np = subprocess.Popen(['cat'], stdin=-1, stdout=-1)\np.send_signal(signal.SIGSTOP)\np.communicate(b'x')", INTERRUPTED),
    ("import asyncio\nasync def f():\n  while True:\n    try: await asyncio.sleep(99)\n    except BaseException: pass\nawait f()", INTERRUPTED),
    ("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nwhile True: pass", INTERRUPTED),
    ("import threading\ndef f():\n  while True: budget()\nfor _ in range(8): threading.Thread(target=f, daemon=True).start()\nwhile True: pass", INTERRUPTED),
    ("class A:\n  def __repr__(self):\n    while True: pass\nA()", INTERRUPTED),
    ("class E(Exception):\n  def __str__(self):\n    while True: pass\nraise E", r"E: <exception str\(\) failed>"),
    ("import sys\nsys.setswitchinterval(1000)\nwhile True: pass", INTERRUPTED),
    ("import sys\ndef t(*_):\n  while True: pass\nsys.setprofile(t)\nint()", INTERRUPTED),
    ("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", KILLED),
]  # fmt: skip

ENDS = [
    ("import sys\nsys.exit('bye')", r"SystemExit: bye \(a cell cannot end the REPL"),
    ("exit()", "SystemExit"),
    ("raise SystemExit", "SystemExit"),
    ("class A:\n  def __repr__(self): raise SystemExit(4)\nA()", "SystemExit: 4"),
    ("import os\nos._exit(0)", r"ended \(exit code 0: something in the cell ended the process itself"),
    ("import os\nos._exit(1)", "exit code 1: something in the cell"),
    ("import os\nos.abort()", "SIGABRT"),
    ("import os\nos.kill(os.getpid(), 9)", "SIGKILL: killed"),
    ("import os\nos.kill(os.getpid(), 15)", "InterruptedError: the signal SIGTERM"),
    ("import os\nos.kill(os.getpid(), 2)", INTERRUPTED),
    ("import os\nos.kill(-1, 9)", "ProcessLookupError"),
    ("import signal, time\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(5)", "InterruptedError: the signal SIGALRM"),
    ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
    ("import faulthandler, time\nfaulthandler.dump_traceback_later(0.1, exit=True)\ntime.sleep(5)", "exit code 1"),
    ("import os\nos.closerange(3, 1000)", "exit code 0|own channel"),
    ("import os\nos.closerange(0, 1000)\nwhile True: pass", "exit code|own channel"),
    (CHANNEL + "channel.close()\nwhile True: pass", "own channel|exit code"),
    ("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))", "broke the REPL from inside .*RLIMIT_NOFILE"),
    (CHANNEL + "n = 10 ** 6\nwhile True: channel.send(op='call', id=n, kind='budget', args={})", f"{INTERRUPTED}|own channel|{KILLED}"),
]  # fmt: skip

SIZE = [
    ("while True: print('y' * 1_000_000)", "characters cut"),
    ("import sys\nfor _ in range(100): sys.stdout.buffer.write(b'x' * 1_000_000)", r"of 100000000 characters cut"),
    ("import os\nfor _ in range(100): os.write(1, b'z' * 1_000_000)", "of 100000000 characters cut"),
    ("import subprocess\nsubprocess.run('yes | head -c 100000000', shell=True)", "characters cut"),
    ("'q' * 50_000_000", "of 50000003 characters cut"),
    ("raise ValueError('m' * 10_000_000)", "ValueError: mmm"),
    ("raise type('E' * 5_000_000, (Exception,), {})", "EEEE"),
    ("answer['content'] = 'x' * 50_000_000\nanswer['ready'] = True", "the answer has 50000000 characters.*write it to a file"),
    ("x = [0] * 10**12", "MemoryError"),
    ("x = []\nwhile True: x.append(bytearray(1 << 20))", "MemoryError"),
    ("globals()['n' * 10_000_000] = type('Q' * 10_000_000, (), {})()", ""),
    ("exec('x = 1\\n' * 50_000)", ""),
    ("f = open('/tmp/fill', 'wb')\nf.truncate(1 << 40)", "File too large"),
    ("x = []\nfor _ in range(100_000): x = [x]\nx", "RecursionError"),
    ("import json\nx = []\nfor _ in range(100_000): x = [x]\njson.dumps(x)", "RecursionError"),
    ("x = []\nfor _ in range(100_000): x = [x]\nrlm_query('a', context=x)", "RecursionError"),
    ("x = []\nfor _ in range(100_000): x = [x]\nanswer['content'] = x", "RecursionError"),
    ("def f(): f()\nf()", "RecursionError"),
    ("import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(100_000): x = [x]", ""),
    ("eval('(' * 100_000 + ')' * 100_000)", "SyntaxError|MemoryError|too many nested"),
    ("e = None\nfor i in range(10_000):\n  n = ValueError(i)\n  n.__cause__ = e\n  e = n\nraise e", "ValueError: 9999"),
    ("e = ValueError()\nfor _ in range(5000): e = ExceptionGroup('g', [e])\nraise e", "ExceptionGroup"),
    ("e = ValueError('me')\ne.__cause__ = e\nraise e", "ValueError: me"),
    ("import os\nl = []\nwhile True: l.append(os.dup(0))", "Too many open files"),
    ("import threading, time\nfor _ in range(9999): threading.Thread(target=time.sleep, args=(999,), daemon=True).start()", "can't start new thread"),
]  # fmt: skip

REPLACED = [
    ("print = None", ""),
    ("import builtins\nbuiltins.print = None", ""),
    ("import builtins\nfor n in ('len', 'open', 'isinstance', 'type', 'Exception', 'getattr', 'str', 'bool'): setattr(builtins, n, None)", ""),
    ("import builtins\nbuiltins.__import__ = None", ""),
    ("import builtins\nbuiltins.__dict__.clear()", ""),
    ("import sys\nsys.modules.clear()", ""),
    ("import sys\nsys.modules = {}", ""),
    ("import sys\nsys.meta_path.clear(); sys.path_hooks.clear(); sys.path.clear()", ""),
    ("import sys\nsys.stdout = sys.stderr = None", ""),
    ("import sys\nsys.stdout.close()\nprint(1)", "1"),
    ("import sys\nclass W:\n  def write(self, x):\n    while True: pass\nsys.stdout = sys.stderr = W()\n1 / 0", "ZeroDivisionError"),
    ("import sys\ndef t(*_): raise KeyError\nsys.settrace(t)\ndef f(): pass\nf()", "KeyError"),
    ("import atexit\n@atexit.register\ndef f():\n  while True: pass", ""),
    ("import gc\ngc.disable()", ""),
    ("import os\nos.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')", ""),
    ("import os\nos.environ.clear()", ""),
    ("import sys\nsys.setrecursionlimit(60)", ""),
    ("import msgspec\nmsgspec.msgpack.encode = msgspec.msgpack.decode = msgspec.convert = None", ""),
    ("import cloudpickle, pickle, hashlib, io, marshal\ncloudpickle.Pickler = pickle.Unpickler = hashlib.sha256 = io.BytesIO = marshal.dumps = None", ""),
    ("import socket, struct\nsocket.socket.recv_into = socket.socket.sendall = socket.socket = struct.pack = struct.unpack = None", ""),
    ("import threading as t\nt.Event.wait = t.Lock = t.Condition.wait = t.main_thread = None", ""),
    ("import queue\nfrom concurrent.futures import Future\nqueue.SimpleQueue = Future.result = Future.set_result = None", ""),
    ("import signal\nsignal.signal = signal.setitimer = signal.pthread_kill = None", ""),
    ("import time\ntime.sleep = time.perf_counter = time.monotonic = lambda *_: 1 / 0", ""),
    ("import random, inspect, traceback\nrandom.seed = inspect.ismodule = traceback.TracebackException = None", ""),
    ("from agent.repl import worker\nworker.Worker.on_run = worker.os = None", ""),
    ("import agent.repl.worker as w, sys\nsys.argv = ['x', '1']\nw.main()", "Error"),
    ("class llm_query: pass\nclass context: pass\nclass answer: pass", ""),
    ("del llm_query, context, answer, shell, FINAL", ""),
    ("import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)", ""),
]  # fmt: skip

OBJECTS = [
    ("class A:\n  @property\n  def __class__(self): raise ValueError\n  def __len__(self): return 10**18\na = A()", ""),
    ("class A:\n  @property\n  def __class__(self): return dict\nanswer = A()", ""),
    ("class A(dict):\n  def get(self, *a): raise SystemExit\n  __setitem__ = get\nanswer = A()", ""),
    ("answer['content'] = answer", ""),
    ("class M(type):\n  def __len__(c): raise SystemExit\n  __instancecheck__ = __repr__ = __len__\n  __name__ = property(__len__)\nclass C(metaclass=M): pass\nc = C()", ""),
    ("class A:\n  def __eq__(self, o): raise SystemExit\n  __hash__ = __bool__ = __eq__\na = A()", ""),
    ("class A:\n  def __del__(self): raise SystemExit\na = A()\ndel a", "Exception ignored in"),
    ("class A:\n  def __del__(self):\n    while True: pass\na = A()\ndel a", INTERRUPTED),
    ("class E(BaseException):\n  def __getattribute__(self, n): raise SystemExit\nraise E", r"E \(its traceback could not be shown"),
    ("globals()['x y'] = globals()[''] = globals()['\\ud800'] = globals()[5] = globals()[None] = 1", ""),
    ("class K(str):\n  def startswith(self, *a): raise SystemExit\n  __eq__ = startswith\n  def __hash__(self): return 5\nglobals()[K('k')] = 1", ""),
    ("exec('x\\0')", "null bytes"),
    ("a\0b", "null bytes"),
    ("x = ('\\ud800')\nprint(x)\nraise ValueError(x)", r"ValueError: \\ud800"),
    ("(x for x in iter(int, 1))", "<generator object"),
    ("async def f(): pass\nf()", "<coroutine object"),
    ("raise GeneratorExit", "GeneratorExit"),
    ("input('?')", "EOFError"),
    ("breakpoint()", "BdbQuit"),
]  # fmt: skip

LEFT_BEHIND = [
    ("import os\nos.system('(while :; do echo spam; sleep 0.001; done) &')", ""),
    ("import os\nif os.fork() == 0:\n  while True: os.write(1, b'spam')", ""),
    ("import threading\nfor _ in range(5): threading.Thread(target=lambda: [0 for _ in iter(int, 1) if _], daemon=False).start()", ""),
    ("import asyncio\nasync def f():\n  while True: await asyncio.sleep(0.01)\nt = asyncio.create_task(f())\nawait asyncio.sleep(0)", ""),
    ("import asyncio\nl = asyncio.new_event_loop()\nl.run_in_executor(None, lambda: 1)", "Future"),
    ("import os\nfor _ in range(20):\n  if os.fork() == 0: break", ""),
]  # fmt: skip


class Bench:
    """A REPL that is brought back from its last snapshot when it dies, as a loop does it."""

    def __init__(self, folder: Path, spawn: Spawn = launch_worker) -> None:
        spec = SandboxSpec(writable=folder, memory_bytes=512 << 20)
        self.launcher, self.folder, self.spawn = Launcher(spec, choose()), folder, spawn
        self.repl = self.fresh()
        self.run("kept = [1, 2]")
        self.before = self.repl.snapshot(set())

    def fresh(self) -> Repl:
        repl = Repl(self.launcher, self.folder, self.folder / "repl.log", self.spawn)
        repl.init({"context": {"value": "material"}})
        return repl

    def handle(self, kind: str, args: dict[str, Any]) -> Any:
        return (
            [{"ok": True, "value": p.upper()} for p in args["prompts"]] if kind == "llm" else {"ok": True, "value": {}}
        )

    def run(self, code: str, timeout: float = 20.0) -> CellResult:
        return self.repl.run([code], 1, Serving(self.handle), timeout, 4000)

    def told(self, code: str, timeout: float) -> str:
        """Run a cell and take the snapshot after it; return what the model is told of both."""
        try:
            done = self.run(code, timeout)
            taken = self.repl.snapshot(set(self.before.shas.values()))
            assert "kept" in taken.shas
            return done.output + ("\n[interrupted]" if done.interrupted else "")
        except ReplDied as died:
            self.repl.kill()
            self.repl = self.fresh()
            assert self.repl.restore(self.before.shas, self.before.values) == {}
            return died.message


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ReplPool, Path]]:
    root = tmp_path_factory.mktemp("rows")
    (root / "work").mkdir()
    made = ReplPool(SandboxSpec(writable=root / "work"), choose(), (root / "work",), root / "repl.log")
    yield made, root / "work"
    made.close()


@pytest.fixture
def bench(pool: tuple[ReplPool, Path]) -> Iterator[Bench]:
    made = Bench(pool[1], pool[0].start)
    yield made
    made.repl.kill()
    for left in pool[1].iterdir():
        left.unlink() if left.is_file() else shutil.rmtree(left)


def rows(*tables: list[tuple[str, str]]) -> list[Any]:
    """Make a parameter of each row, named by its cell's last words."""
    return [pytest.param(cell, told, id=cell.replace(CHANNEL, "")[-60:]) for table in tables for cell, told in table]


@pytest.mark.parametrize(("cell", "told"), rows(TIME, ENDS, SIZE, REPLACED, OBJECTS, LEFT_BEHIND))
def test_a_hostile_cell_is_an_observation_and_the_next_step_is_intact(bench: Bench, cell: str, told: str) -> None:
    timeout = 0.3 if (cell, told) in TIME or ("while True" in cell and told != "MemoryError") else 20.0
    assert re.search(told, bench.told(cell, timeout), re.DOTALL)
    freed = "del l\n" if "os.dup(0)" in cell else "del x\n" if told == "MemoryError" and "append" in cell else ""
    after = bench.run(freed + NEXT)
    assert (after.output, after.answer, after.ready, after.ok) == (SHOWN, "fin", True, True)


def test_the_answer_so_far_is_restored_with_the_variables(bench: Bench) -> None:
    bench.run("answer['content'] = 'so far'")
    bench.before = bench.repl.snapshot(set())
    assert "exit code 3" in bench.told("import os\nos._exit(3)", 20.0)
    assert bench.run("1 / 0").answer == "so far"


@pytest.mark.skipif(choose().kind != "bubblewrap", reason="there is no namespace whose processes could be counted")
@pytest.mark.parametrize(
    "bomb",
    [
        "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
    ],
)
def test_a_fork_bomb_is_held(bench: Bench, bomb: str) -> None:
    told = bench.told(bomb, 60.0)
    assert os.geteuid() != 0 or "more than 256 processes" in told
    assert bench.run(NEXT).output == SHOWN


def test_the_host_keeps_nothing_of_repls_that_died(bench: Bench) -> None:
    for number in range(6):
        bench.told("import os\nos._exit(1)", 20.0)
        if number == 0:
            before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    deadline = time.monotonic() + 10
    while (after := (threading.active_count(), len(os.listdir("/proc/self/fd")))) > before:
        assert time.monotonic() < deadline, (before, after)
        time.sleep(0.05)
