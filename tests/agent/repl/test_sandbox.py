"""The sandbox, with real processes, over every layer that this computer has."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.errors import SandboxError
from agent.repl import bubblewrap, sandbox
from agent.repl.sandbox import Launcher, Layer, SandboxSpec, choose, open_sandbox

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _layers() -> list[Layer]:
    """Give every layer that works here; bubblewrap from the system and from the wheel count as two."""
    found = []
    for kind in ("bubblewrap", "landlock"):
        try:
            found.append(choose(kind))
        except SandboxError:
            continue
    for program in bubblewrap.programs():
        if found and found[0].kind == "bubblewrap" and program != found[0].program:
            found.append(Layer("bubblewrap", program, f"({program})", protects_inside=True))
    return found


LAYERS = _layers()
ids = [f"{layer.kind}-{n}" for n, layer in enumerate(LAYERS)]


def test_bubblewrap_is_found_where_it_works() -> None:
    """Without this, a probe that fails for a reason of its own would only make tests disappear."""
    plain = ["--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    works = [p for p in bubblewrap.programs() if subprocess.run([p, *plain], capture_output=True).returncode == 0]
    assert ("bubblewrap-0" in ids) == bool(works)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace `ws` with .git and .rlm-agent, a context, and something private beside them."""
    for folder in ("ws/.git", "ws/.rlm-agent", "context/deep", "private"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("ws/.git/config", "ws/.rlm-agent/journal.db", "context/deep/a.txt", "private/key"):
        (tmp_path / file).write_text("secret")
    return tmp_path


@pytest.fixture
def spec(place: Path) -> SandboxSpec:
    ws = place / "ws"
    return SandboxSpec(
        ws, hidden=(ws / ".rlm-agent",), read_only=(ws / ".git", place / "context"), memory_bytes=512 << 20
    )


@pytest.fixture(params=LAYERS, ids=ids)
def launcher(request: pytest.FixtureRequest, spec: SandboxSpec) -> Launcher:
    return Launcher(spec, request.param)


@pytest.fixture
def run(launcher: Launcher) -> Iterator[Run]:
    started = []

    def python(code: str, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", textwrap.dedent(code)]
        process = launcher.launch(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # type: ignore[arg-type]
        started.append(process)
        out, error = process.communicate(timeout=60)
        return subprocess.CompletedProcess(command, process.returncode, out.decode(), error.decode())

    yield python
    for process in started:
        launcher.kill(process)


def test_the_workspace_can_be_written_and_the_context_read(run: Run, place: Path) -> None:
    done = run(f"""
        open("made.txt", "w").write("by the cell")
        print(open({str(place / "context/deep/a.txt")!r}).read(), open("made.txt").read())
    """)
    assert (done.stdout, done.stderr) == ("secret by the cell\n", "")
    assert (place / "ws" / "made.txt").read_text() == "by the cell"


def test_nothing_else_can_be_written(run: Run, place: Path) -> None:
    targets = [
        place / "context/new",
        place / "context/deep/a.txt",
        place / "private/new",
        Path(sys.prefix) / "new",
        Path("/usr/new"),
    ]
    done = run(f"""
        for path in {list(map(str, targets))!r}:
            try:
                open(path, "w")
            except OSError:
                continue
            print("wrote", path)
    """)
    assert (done.stdout, done.stderr) == ("", "")
    assert not any(path.exists() for path in targets if path.name == "new")


def test_git_is_read_only_and_the_journal_hidden(run: Run, launcher: Launcher, place: Path) -> None:
    if not launcher.layer.protects_inside:
        assert "not protected" in launcher.describe()
        return
    done = run("""
        import os
        print(open(".git/config").read(), os.listdir(".rlm-agent"))
        for act in (lambda: open(".git/hooks", "w"), lambda: os.rename(".git", "git"), lambda: os.unlink(".git/config")):
            try:
                act()
                print("changed .git")
            except OSError:
                pass
    """)
    assert (done.stdout, done.stderr) == ("secret []\n", "")
    assert (place / "ws/.rlm-agent/journal.db").read_text() == "secret"


def test_private_things_are_not_there(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    done = run(f"""
        import os
        for path in ("/etc/shadow", {str(place / "private/key")!r}, "/proc/{os.getpid()}/environ"):
            try:
                print("read", path, open(path).read()[:20])
            except OSError:
                pass
        print(sorted(os.environ))
        print(os.environ["HOME"] != {os.path.expanduser("~")!r}, os.environ["PYTHONHASHSEED"])
        open(os.path.expanduser("~/scratch"), "w").write("a home of its own")
    """)
    assert done.stderr == ""
    names, home = done.stdout.splitlines()
    assert "OPENAI_API_KEY" not in names and "PYTHONHASHSEED" in names
    assert home == "True 0"


def test_a_variable_can_be_given(run: Run) -> None:
    assert run("import os; print(os.environ['SEED'])", env={"SEED": "7"}).stdout == "7\n"


def test_there_is_no_network(run: Run) -> None:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with socket.create_server(("127.0.0.1", 0)) as tcp, udp:
        udp.bind(("127.0.0.1", 0))
        done = run(f"""
            import socket
            for kind, port in ((socket.SOCK_STREAM, {tcp.getsockname()[1]}), (socket.SOCK_DGRAM, {udp.getsockname()[1]})):
                try:
                    s = socket.socket(socket.AF_INET, kind)
                    s.connect(("127.0.0.1", port))
                    s.send(b"out")
                except OSError:
                    pass
        """)
        assert done.stderr == ""
        for server, receive in ((tcp, tcp.accept), (udp, lambda: udp.recv(3))):
            server.setblocking(False)
            with pytest.raises(BlockingIOError):
                receive()


@pytest.mark.parametrize("layer", LAYERS, ids=ids)
def test_network_can_be_allowed(layer: Layer, place: Path) -> None:
    launcher = Launcher(SandboxSpec(place / "ws", network=True), layer)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]})).send(b'hi')"
        process = launcher.launch([sys.executable, "-c", code])
        connection, _ = server.accept()
        with connection:
            assert connection.recv(2) == b"hi"
        launcher.kill(process)


def test_our_packages_can_be_imported_and_an_inherited_socket_used(launcher: Launcher) -> None:
    ours, theirs = socket.socketpair()
    code = (
        "import os, socket, agent.repl.wire as w, msgspec, cloudpickle\n"
        f"w.Channel(socket.socket(fileno={theirs.fileno()})).send(op='hello', where=os.getcwd())"
    )
    process = launcher.launch([sys.executable, "-c", code], pass_fds=[theirs.fileno()])
    theirs.close()
    from agent.repl.wire import Channel

    channel = Channel(ours)
    assert channel.receive() == {"op": "hello", "where": str(launcher.spec.writable)}
    assert channel.receive() is None  # nobody else holds the other end
    assert process.wait(30) == 0
    launcher.kill(process)
    ours.close()


def test_memory_is_limited_but_mapping_a_big_file_is_not(run: Run, place: Path) -> None:
    with open(place / "context" / "big", "wb") as file:
        file.truncate(4 << 30)
    done = run(f"""
        import mmap
        file = open({str(place / "context/big")!r}, "rb")
        print(len(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) >> 30)
        try:
            bytearray(1 << 30)
        except MemoryError:
            print("refused")
    """)
    assert done.stdout == "4\nrefused\n"


def test_an_exit_code_comes_through(run: Run) -> None:
    assert run("raise SystemExit(7)").returncode == 7


def test_no_privilege_is_left(run: Run) -> None:
    done = run("""
        import re
        status = open("/proc/self/status").read()
        print(re.findall(r"CapEff:\\s*(\\w+)|NoNewPrivs:\\s*(\\d)", status))
    """)
    assert done.stdout == "[('0000000000000000', ''), ('', '1')]\n"


def _holders(path: Path) -> list[int]:
    """Give the processes whose working folder is `path`."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            inside = os.readlink(f"/proc/{process}/cwd") == str(path)
            if inside and "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text():
                found.append(int(process))
        except OSError:
            continue
    return found


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


FAMILY = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
open(f"alive-{os.urandom(8).hex()}", "w")
time.sleep(300)
"""


def _family_lives(ws: Path) -> None:
    _until(lambda: len(list(ws.glob("alive-*"))) == 9)


def test_kill_ends_the_whole_tree(launcher: Launcher) -> None:
    process = launcher.launch([sys.executable, "-c", FAMILY])
    _family_lives(launcher.spec.writable)
    assert len(_holders(launcher.spec.writable)) >= 9
    launcher.kill(process)
    assert _holders(launcher.spec.writable) == []
    launcher.kill(process)  # a second time is nothing


def test_the_tree_ends_with_its_first_process(launcher: Launcher) -> None:
    code = FAMILY.replace(
        "time.sleep(300)", "time.sleep(300 if os.getsid(0) == os.getpid() or os.getppid() == 1 else 0)"
    )
    process = launcher.launch(["/bin/sh", "-c", f"{sys.executable} -c '{code}' & sleep 0.5"])
    process.wait(60)
    launcher.kill(process)
    assert _holders(launcher.spec.writable) == []


@pytest.mark.parametrize("layer", [*LAYERS, Layer("none")], ids=[*ids, "none"])
def test_nothing_outlives_a_killed_host(layer: Layer, place: Path, tmp_path: Path) -> None:
    host = f"""
import pathlib, sys, threading, time
from agent.repl.sandbox import Launcher, Layer, SandboxSpec
layer = Layer({layer.kind!r}, {layer.program!r})
def start():
    Launcher(SandboxSpec(pathlib.Path({str(place / "ws")!r})), layer).launch([sys.executable, "-c", {FAMILY!r}])
thread = threading.Thread(target=start)  # the thread's end must not be the sandbox's
thread.start()
thread.join()
print("started", flush=True)
time.sleep(300)
"""
    root = str(Path(sandbox.__file__).resolve().parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", host], stdout=subprocess.PIPE, env=environment, cwd=tmp_path
    ) as process:
        assert process.stdout and process.stdout.readline() == b"started\n"
        _family_lives(place / "ws")
        os.kill(process.pid, signal.SIGKILL)
    _until(lambda: _holders(place / "ws") == [])


@pytest.mark.skipif(os.geteuid() == 0, reason="the kernel does not limit root's processes")
def test_a_fork_bomb_is_limited(launcher: Launcher) -> None:
    process = launcher.launch(
        [
            sys.executable,
            "-c",
            "import os\ntry:\n  while True:\n    if os.fork() == 0: os.read(os.pipe()[0], 1)\nexcept OSError: print('stopped')",
        ],
        stdout=subprocess.PIPE,
    )
    assert process.stdout and process.stdout.readline() == b"stopped\n"
    assert len(_holders(launcher.spec.writable)) <= launcher.spec.processes + 2
    launcher.kill(process)
    process.stdout.close()


def test_mounts_are_laid_from_the_outside_in(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place / "context")
    found = bubblewrap.arguments(
        network=False,
        writable=[place / "ws"],
        read_only=[place, place / "ws" / ".git", tmp_path / "link"],
        hidden=[place / "ws" / ".rlm-agent", place / "gone"],
        programs=[],
    )
    tail = found[found.index(bubblewrap.HOME) + 1 :]
    assert bubblewrap.HOME not in tail
    ws = str(place / "ws")
    assert tail[:3] == ["--ro-bind", str(place), str(place)]
    assert tail.index("--bind") < tail.index(f"{ws}/.git") < tail.index(f"{ws}/.rlm-agent")
    assert "--share-net" not in found and str(place / "gone") not in found


def test_a_workspace_inside_a_read_only_folder_can_be_written(place: Path) -> None:
    launcher = open_sandbox(SandboxSpec(place / "ws", read_only=(place,)))
    if not launcher.layer.protects_inside:
        pytest.skip("bubblewrap only")
    process = launcher.launch(["/bin/sh", "-c", "touch ws-file; touch ../outside 2>/dev/null; true"])
    process.wait(30)
    launcher.kill(process)
    assert (place / "ws" / "ws-file").exists() and not (place / "outside").exists()


@pytest.mark.skipif("bubblewrap-0" not in ids, reason="bubblewrap only")
def test_a_task_may_stand_in_tmp_itself(place: Path) -> None:
    launcher = open_sandbox(SandboxSpec(place / "ws", kind="bubblewrap", read_only=(Path("/tmp"),)))
    code = "import tempfile; tempfile.TemporaryFile(); open('made', 'w'); open('/dev/shm/x', 'w')"
    process = launcher.launch([sys.executable, "-c", code])
    assert process.wait(30) == 0
    launcher.kill(process)


@pytest.mark.skipif("bubblewrap-0" not in ids, reason="bubblewrap only")
def test_an_interpreter_behind_symlinks_starts(place: Path, tmp_path: Path) -> None:
    """As uv and pyenv lay them: a venv whose python and home lead over links that move with each version."""
    (tmp_path / "python-3").symlink_to(sys.base_prefix)
    python = tmp_path / "python-3" / "bin" / Path(os.path.realpath(sys.executable)).name
    subprocess.run([python, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, env={})
    code = (
        "import sys, subprocess, pathlib, agent.repl.sandbox as s\n"
        f"p = s.open_sandbox(s.SandboxSpec(pathlib.Path({str(place / 'ws')!r}))).launch([sys.executable, '-c', 'import json, agent.repl'])\n"
        "sys.exit(p.wait(30))"
    )
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, [str(Path(sandbox.__file__).parents[2]), *sys.path]))}
    done = subprocess.run([tmp_path / "venv/bin/python", "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_kind_and_an_impossible_one_are_refused() -> None:
    with pytest.raises(SandboxError, match="not known") as caught:
        choose("jail")
    assert "kind: none" in caught.value.hint and caught.value.exit_code == 2
    assert choose("none").kind == "none"


def test_descriptions_say_what_is_not_covered(spec: SandboxSpec) -> None:
    assert "unprotected" in Launcher(spec, Layer("none")).describe()
    assert "not protected" in Launcher(spec, Layer("landlock", detail="ABI 7")).describe()
    assert "no network" in Launcher(spec, Layer("bubblewrap", protects_inside=True)).describe()
