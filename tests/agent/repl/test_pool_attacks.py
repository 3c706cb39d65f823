"""What a cell may try against the fork server, its init, its siblings and the host: each attempt is made, and reaches nothing."""

from __future__ import annotations

import os
import socket
import textwrap
from pathlib import Path

import msgspec
import pytest

from agent.repl.sandbox import Launcher
from tests.agent.repl.test_pool import LAYER, House, house, run

__all__ = ["house"]

# Each attack prints what it reached; nothing printed means that it was held.
ATTACKS = {
    "a capability": "open('/proc/self/oom_score_adj', 'w').write('-900'); print('lowered')",
    "the kernel's switches": "open('/proc/sys/kernel/core_pattern', 'w').write('|/tmp/x'); print('wrote')",
    "sysrq": "open('/proc/sysrq-trigger', 'w').write('h'); print('wrote')",
    "mount": "sc(165, b'tmpfs', b'/tmp', b'tmpfs', 0, None)",
    "umount": "sc(166, WS + b'/.rlm-agent', 2)",
    "a remount": "sc(165, None, WS + b'/.git', None, 32 | 4096, None)",
    "mount_setattr": "sc(442, -100, WS + b'/.git', 0, b'\\0' * 8 + b'\\1' + b'\\0' * 23, 32)",
    "open_tree": "sc(428, -100, b'/', 1)",
    "fsopen": "sc(430, b'proc', 0)",
    "a namespace by unshare": "sc(272, 0x10000000)",
    "a namespace by clone": "sc(56, 0x10000000 | 17, 0, 0, 0, 0)",
    "a namespace by clone3": "sc(435, (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17), 88)",
    "the namespaces of the init": "sc(308, os.open('/proc/1/ns/mnt', os.O_RDONLY), 0)",
    "the init's memory": "open('/proc/1/mem', 'r+b'); print('opened')",
    "the init's descriptors": "print(os.readlink('/proc/1/fd/4'), os.open('/proc/1/fd/4', os.O_RDWR))",
    "the init's root": "print(os.listdir('/proc/1/root'))",
    "tracing the init": "sc(101, 16, 1, 0, 0)",
    "the init's life": "os.kill(1, 9); time.sleep(0.1); os.kill(1, 9)\nprint('gone') if not os.path.exists('/proc/1') else None",
    "a descriptor of the init": "sc(438, os.pidfd_open(1), 4, 0)",
    "processes elsewhere": "print([p for p in os.listdir('/proc') if p.isdigit() and int(p) > 2 and p not in MINE])",
    "a descriptor left open": "print([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if ok(n)])",
    "the old root": "for n in range(3, 99):\n  try: print(os.listdir(f'/proc/self/fd/{n}/..'))\n  except OSError: pass",
    "the fork server's sources": "print(os.listdir('/run/rlm-agent'))",
    "chroot": "os.chroot('/tmp'); print('in')",
    "a device": "os.mknod('/tmp/sda', 0o666 | 0o60000, os.makedev(254, 0)); print('made')",
    "a set-user-id file": "os.setuid(0); print('root')",
    "keys of the host": "sc(250, 0, -3, 0)",
    "raw sockets": "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('raw')",
    "limits": "import resource; resource.setrlimit(resource.RLIMIT_DATA, (-1, -1)); print('wider')",
    "a write to the system": "open('/usr/probe', 'w'); print('wrote')",
    "a link instead of git": "os.rename('.git', 'git'); print('moved')",
    "the hidden folder": "os.rmdir('.rlm-agent'); print('uncovered', os.listdir('.rlm-agent'))",
}
TOOLS = """
import ctypes, os, time
c = ctypes.CDLL(None, use_errno=True)
def sc(number, *args):
    got = c.syscall(number, *args)
    if got == 0 and number in (56, 435):
        os._exit(0)
    if got >= 0:
        print("it worked:", got)
MINE = os.listdir("/proc/self/task")
def ok(n):
    try:
        to = os.readlink(f"/proc/self/fd/{n}")
    except OSError:
        return False
    return not to.startswith(("pipe:", "anon_inode:", "/dev/null", "/proc/")) and not (to.startswith("socket:") and n == "3")
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls are named by number")
def test_attacks_reach_nothing(house: House) -> None:
    repl = house.root()
    run(repl, TOOLS + f"WS = {os.fsencode(house.ws)!r}")
    reached = {}
    for name, attack in ATTACKS.items():
        body = textwrap.indent(attack, "    ")
        shown = run(repl, f"try:\n{body}\nexcept OSError as e:\n    pass\nexcept ValueError:\n    pass").output
        if shown.strip() not in ("", "[]"):
            reached[name] = shown
    assert reached == {}
    assert Path(house.ws, ".git/config").read_text() == "content of ws/.git/config"
    assert "rlm" not in Path("/proc/sys/kernel/core_pattern").read_text()


def test_siblings_cannot_meet(house: House) -> None:
    """By abstract and named sockets, loopback, shared memory, terminals or signals."""
    one, two = house.child("one"), house.child("two")
    code = """
    import ctypes, os, pty, socket
    a = socket.socket(socket.AF_UNIX); a.bind("\\0meet"); a.listen()
    t = socket.create_server(("127.0.0.1", 8765))
    c = ctypes.CDLL(None); print(c.shmget(4242, 4096, 0o1666) >= 0)
    open("/dev/shm/meet", "w").write("x"); open("/tmp/meet", "w").write("x")
    master, terminal = pty.openpty(); print(os.ttyname(terminal))
    """
    assert run(one, code).ok
    shown = run(one, "print(os.ttyname(terminal))").output.strip()
    tried = f"""
    import ctypes, os, socket
    for family, where in ((socket.AF_UNIX, "\\0meet"), (socket.AF_INET, ("127.0.0.1", 8765))):
        try:
            socket.socket(family).connect(where); print("met", where)
        except OSError:
            pass
    if ctypes.CDLL(None).shmget(4242, 4096, 0o1666 & ~0o1000) >= 0: print("shared memory")
    print(*[p for p in ("/dev/shm/meet", "/tmp/meet", {shown!r}) if os.path.exists(p)])
    """
    assert run(two, tried).output == "\n"


def test_a_link_in_the_workspace_does_not_choose_what_is_shown(house: House) -> None:
    """A cell that swaps a folder for a link, between the host's look and the mount, gets an error, not another's files."""
    server = house.pool._ready_server()
    assert server is not None
    (house.ws / "a/b").mkdir(parents=True)
    spec = msgspec.structs.replace(house.spec, read_only=(*house.spec.read_only, house.ws / "a/b"))
    plan = server.plan(Launcher(spec, LAYER), house.ws)
    assert plan is not None
    (house.ws / "a").rename(house.ws / "c")
    (house.ws / "a").symlink_to("c")
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(Exception, match="Too many levels"):
        server.fork(plan, theirs, house.private / "repl.log")
