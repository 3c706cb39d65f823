"""Forked REPLs: what they see and may do is what a launched one does, and nothing of the fork server or a sibling is in reach."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.errors import ReplDied, SandboxError
from agent.repl import sandbox
from agent.repl.host import CellResult, Repl
from agent.repl.pool import ForkedProcess, ReplPool
from agent.repl.sandbox import Launcher, Layer, SandboxSpec, choose
from tests.agent.repl.serving import Serving

try:
    LAYER = choose("bubblewrap")
except SandboxError:
    pytest.skip("bubblewrap does not work here", allow_module_level=True)


class House:
    """A workspace with what a run has in it, a context, something private beside it, and a pool."""

    def __init__(self, folder: Path) -> None:
        self.ws, self.private = folder / "ws", folder / "ws/.rlm-agent"
        for name in ("ws/.git", "ws/.GCC/branches", "ws/.rlm-agent/scratch", "context", "private"):
            (folder / name).mkdir(parents=True)
        for name in ("ws/.git/config", "ws/.rlm-agent/journal.db", "ws/made.txt", "context/a.txt", "private/key"):
            (folder / name).write_text(f"content of {name}")
        shown = (folder / "context", self.ws / ".git", self.ws / ".GCC/branches")
        self.spec = SandboxSpec(self.ws, hidden=(self.private,), read_only=shown, memory_bytes=512 << 20)
        self.pool = ReplPool(self.spec, LAYER, (self.ws, self.private / "scratch"), self.private / "repl.log")
        self.repls: list[Repl] = []

    def root(self, **changed: Any) -> Repl:
        """Start a REPL that writes in the workspace."""
        return self._start(msgspec.structs.replace(self.spec, **changed))

    def child(self, name: str, **changed: Any) -> Repl:
        """Start a REPL that writes in a scratch folder made just now."""
        scratch = self.private / "scratch" / name
        scratch.mkdir(exist_ok=True)
        read_only = (self.ws, *self.spec.read_only)
        return self._start(
            msgspec.structs.replace(self.spec, **{"writable": scratch, "read_only": read_only, **changed})
        )

    def _start(self, spec: SandboxSpec) -> Repl:
        repl = Repl(Launcher(spec, LAYER), spec.writable, self.private / "repl.log", self.pool.start)
        self.repls.append(repl)
        repl.init({"context": {"value": "x"}})
        return repl


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    for repl in made.repls:
        repl.kill()
    made.pool.close()


def run(repl: Repl, code: str, timeout: float = 30.0) -> CellResult:
    return repl.run([textwrap.dedent(code)], 1, Serving(lambda kind, args: None), timeout, 20_000)


def until(holds: Any) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_repls_are_forked_where_bubblewrap_works(house: House) -> None:
    """Else every other test here would only see the long way."""
    repl = house.root()
    assert house.pool.reason == ""
    assert isinstance(repl.process, ForkedProcess)
    shown = Path(f"/proc/{repl.process.pid}/cmdline").read_bytes()
    assert b"agent.repl.worker" in shown and b"forkserver" not in shown


FACTS = """
import os, sys, resource, json
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
def tree(path):
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        return type(error).__name__
def written(path):
    try:
        open(os.path.join(path, "probe"), "w").close(); os.unlink(os.path.join(path, "probe"))
        return True
    except OSError:
        return False
mounts = {}
for line in open("/proc/self/mountinfo"):
    part = line.split()
    mounts[part[4]] = sorted(flag for flag in part[5].split(",") if flag in ("ro", "rw", "nosuid", "nodev"))
mounts.pop("/proc")
mounts = {path: flags for path, flags in mounts.items() if not path.startswith(("/dev", "/etc", "/proc"))}
print(json.dumps({
    "environment": dict(os.environ), "ids": [os.getuid(), os.getgid(), os.geteuid(), os.getpid()], "cwd": os.getcwd(),
    "caps": [status[n] for n in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")],
    "limits": [resource.getrlimit(getattr(resource, n)) for n in ("RLIMIT_CORE", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NOFILE")],
    "trees": {p: tree(p) for p in ("/", "/etc", "/dev", "/tmp", "/run", "/root", "/home", WS, CONTEXT, PRIVATE, WS + "/.rlm-agent", WS + "/.git")},
    "written": [p for p in ("/", "/etc", "/usr", "/proc", "/tmp", "/dev/shm", os.environ["HOME"], WS, CONTEXT, WS + "/.git", WS + "/.GCC/branches", WS + "/.GCC") if written(p)],
    "host": os.uname().nodename, "hash": hash("a"), "mounts": mounts, "stdin": os.readlink("/proc/self/fd/0"),
    "umask": os.umask(0o22), "path": sys.path, "flags": sys.flags.safe_path,
}, sort_keys=True))
"""


@pytest.mark.parametrize("who", ["root", "child"])
def test_a_forked_repl_sees_and_may_what_a_launched_one_does(house: House, who: str) -> None:
    places = {"WS": house.ws, "CONTEXT": house.ws.parent / "context", "PRIVATE": house.ws.parent / "private"}
    code = "\n".join(f"{name} = {str(path)!r}" for name, path in places.items()) + FACTS
    facts = []
    for spawn in (house.pool.start, sandbox.launch_worker):
        house.pool.start, kept = spawn, house.pool.start  # type: ignore[method-assign]
        repl = house.root() if who == "root" else house.child("one")
        house.pool.start = kept  # type: ignore[method-assign]
        facts.append(msgspec.json.decode(run(repl, code).output))
    forked, launched = facts
    launched["written"].remove("/etc")  # a folder of tmpfs there, the same one for all forks here
    for name in launched:
        assert forked[name] == launched[name], name
    assert forked["trees"][str(places["PRIVATE"])] == "FileNotFoundError"


def test_a_child_writes_in_its_scratch_folder_alone(house: House) -> None:
    one, two = house.child("one"), house.child("two")
    assert run(one, "open('mine', 'w').write('1')").output == "1\n"
    assert (house.private / "scratch/one/mine").read_text() == "1"
    shown = run(two, f"import os\nprint(os.listdir('..'), os.listdir({str(house.ws)!r}), os.listdir('/tmp'))").output
    assert shown.startswith("['two']") and "'made.txt'" in shown
    assert run(two, f"open({str(house.ws / 'made.txt')!r}, 'w')").ok is False
    assert run(two, f"open({str(house.private / 'scratch/one/mine')!r})").ok is False
    assert run(house.root(), "import os\nprint(os.listdir('.rlm-agent'))").output == "[]\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="the kernel does not limit root's processes")
def test_a_fork_bomb_is_limited_and_harms_no_sibling(house: House) -> None:
    code = """
    import os
    made = 0
    try:
        while made < 2000:
            if os.fork() == 0: os.read(os.pipe()[0], 1)
            made += 1
    except OSError:
        print(made)
    """
    assert 100 < int(run(house.child("one"), code).output) <= house.spec.processes
    assert run(house.child("two"), "import os\nprint(os.system('true'))").output == "0\n"


def test_memory_is_limited(house: House) -> None:
    assert "MemoryError" in run(house.root(), "bytearray(1 << 30)").output


def test_the_end_is_told_as_it_was(house: House) -> None:
    """An exit code, a signal to oneself, and a kill from outside."""
    with pytest.raises(ReplDied, match="exit code 3") as died:
        run(house.root(), "import os; os._exit(3)")
    assert not died.value.signalled
    with pytest.raises(ReplDied) as died:
        run(house.root(), "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert died.value.signalled
    repl = house.root()
    os.kill(repl.process.pid, signal.SIGKILL)
    with pytest.raises(ReplDied) as died:
        run(repl, "while True: pass")
    assert died.value.signalled and repl.process.returncode == -9


def _holders(folder: Path) -> list[str]:
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            inside = os.readlink(f"/proc/{process}/cwd") == str(folder)
            if inside and "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text():
                found.append(process)
        except OSError:
            continue
    return found


def test_kill_ends_all_that_a_repl_started_and_no_sibling(house: House) -> None:
    one, two = house.child("one"), house.child("two")
    run(one, "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid(); time.sleep(300)")
    run(one, "import subprocess; kept = subprocess.Popen(['setsid', 'sleep', '300'])")
    assert len(_holders(house.private / "scratch/one")) >= 2
    one.kill()
    assert _holders(house.private / "scratch/one") == []
    assert run(two, "1 + 1").output == "2\n"


def test_a_server_that_was_killed_is_started_again(house: House) -> None:
    repl = house.root()
    parent = int(Path(f"/proc/{repl.process.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    with pytest.raises(ReplDied) as died:
        run(repl, "while True: pass")
    assert died.value.signalled
    fresh = house.root()
    assert isinstance(fresh.process, ForkedProcess) and run(fresh, "2 + 2").output == "4\n"


def test_nothing_outlives_a_closed_pool(house: House) -> None:
    repl = house.child("one")
    run(repl, "import subprocess; kept = subprocess.Popen(['sleep', '300'])")
    house.pool.close()
    assert _holders(house.private / "scratch/one") == []


def test_nothing_outlives_a_killed_host(house: House, tmp_path: Path) -> None:
    house.child("one")  # its folder is made
    code = f"""
import time
from pathlib import Path
from agent.repl.pool import ReplPool
from agent.repl.sandbox import *
from agent.repl.host import Repl
ws, scratch = Path({str(house.ws)!r}), Path({str(house.private / "scratch")!r})
spec = SandboxSpec(ws, hidden=(scratch.parent,))
layer = Layer({LAYER.kind!r}, {LAYER.program!r})
pool = ReplPool(spec, layer, (ws, scratch), Path("log"))
pool.warm()
repl = Repl(Launcher(SandboxSpec(scratch / "two", hidden=(scratch.parent,), read_only=(ws,)), layer), scratch / "two", Path("log"), pool.start)
print(type(repl.process).__name__, flush=True)
time.sleep(300)
"""
    import subprocess

    two = house.private / "scratch/two"
    two.mkdir()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(sandbox.__file__).resolve().parents[2]), *sys.path])
    }
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, cwd=tmp_path) as host:
        assert host.stdout and host.stdout.readline() == b"ForkedProcess\n"
        assert _holders(two)
        os.kill(host.pid, signal.SIGKILL)
    until(lambda: _holders(two) == [])


def test_what_a_fork_cannot_give_is_launched_the_long_way(house: House, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    repl = house.child("one", writable=elsewhere, read_only=())
    assert not isinstance(repl.process, ForkedProcess)
    assert run(repl, f"open({str(elsewhere / 'x')!r}, 'w').write('ab')").output == "2\n"
    assert isinstance(house.child("two").process, ForkedProcess)


def test_a_server_that_cannot_make_namespaces_is_not_used(house: House, tmp_path: Path) -> None:
    """bwrap without the right to give capabilities, as AppArmor makes it."""
    program = tmp_path / "bwrap"
    program.write_text(
        '#!/bin/sh\nfor a; do shift; case $a in --cap-add) skip=1;; *) if [ $skip ]; then skip=; else set -- "$@" "$a"; fi;; esac; done\n'
        f'exec {LAYER.program} "$@"\n'
    )
    program.chmod(0o755)
    layer = Layer("bubblewrap", str(program), protects_inside=True)
    pool = ReplPool(house.spec, layer, (house.ws,), house.private / "repl.log")
    repl = Repl(Launcher(house.spec, layer), house.ws, house.private / "repl.log", pool.start)
    house.repls.append(repl)
    repl.init({"context": {"value": "x"}})
    assert pool.reason and not isinstance(repl.process, ForkedProcess)
    assert run(repl, "3").output == "3\n"
    pool.close()


@pytest.mark.parametrize("layer", [Layer("none"), Layer("landlock", detail="ABI")], ids=lambda layer: layer.kind)
def test_other_layers_are_launched_the_long_way(house: House, layer: Layer) -> None:
    if layer.kind == "landlock":
        try:
            layer = choose("landlock")
        except SandboxError:
            pytest.skip("no Landlock here")
    pool = ReplPool(house.spec, layer, (house.ws,), house.private / "repl.log")
    pool.warm()
    repl = Repl(Launcher(house.spec, layer), house.ws, house.private / "repl.log", pool.start)
    house.repls.append(repl)
    repl.init({"context": {"value": "x"}})
    assert run(repl, "3").output == "3\n" and layer.kind in pool.reason
    pool.close()


def test_each_fork_has_its_own_randomness_and_temporary_names(house: House) -> None:
    code = "import os, random, tempfile, uuid\nprint(random.SystemRandom().random(), uuid.uuid4(), tempfile.mkdtemp())"
    one, two = (run(house.child(name), code).output.split() for name in ("one", "two"))
    assert not set(one) & set(two)
