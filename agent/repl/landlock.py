"""Landlock and seccomp by system call: what a process gives up before it becomes the REPL.

Landlock takes away every file that is not listed, and TCP where the kernel can; the seccomp filter takes
away what Landlock does not see: sockets of every family, io_uring (which would make them unseen), ptrace,
mounts and new namespaces. Both last for the process and its descendants and can't be undone. Standard
library only, because it runs before anything is imported.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct
from collections.abc import Iterable

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same on every architecture
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_SECUREBITS = 38, 22, 24, 28

READ_FILE, READ_DIR, EXECUTE = 1 << 2, 1 << 3, 1 << 0
READ = READ_FILE | READ_DIR | EXECUTE
#: What needs no folder: execute, write, read, truncate and (ABI 5) ioctl on devices.
_ON_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15

# System calls by architecture, in the order of _DENIED.
_DENIED = [
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "mount",
    "umount2",
    "pivot_root",
    "unshare",
    "setns",
    "bpf",
    "perf_event_open",
    "keyctl",
    "add_key",
    "request_key",
    "userfaultfd",
    "io_uring_setup",
    "kexec_load",
    "init_module",
    "finit_module",
    "open_by_handle_at",
]
_NUMBERS = {
    "x86_64": (101, 310, 311, 165, 166, 155, 272, 308, 321, 298, 250, 248, 249, 323, 425, 246, 175, 313, 304),
    "aarch64": (117, 270, 271, 40, 39, 41, 97, 268, 280, 241, 219, 217, 218, 282, 425, 104, 105, 273, 265),
}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_CLONE = {"x86_64": 56, "aarch64": 220}
#: The same on every architecture: open_tree to fspick and mount_setattr (mounts of the newer kind), pidfd_getfd.
_DENIED_EVERYWHERE = (*range(428, 434), 442, 438)
_CLONE3 = 435
_NEW_NAMESPACES = 0x7E020000  # the flags of clone that ask for a namespace of its own
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """Give the kernel's Landlock version, 0 when it has none."""
    return max(0, int(_libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def seccomp_known() -> bool:
    """Say whether the filter knows this processor's system calls."""
    return platform.machine() in _SOCKET


def restrict(readable: Iterable[str], writable: Iterable[str], *, network: bool) -> None:
    """Take away every file but these (folders with all below), and TCP; raises OSError."""
    version = abi()
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    tcp = 0 if network or version < 4 else 0b11
    scopes = 0b11 if version >= 6 else 0  # no abstract unix sockets and no signals to the outside
    size = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}.get(version, 24)
    attributes = struct.pack("=QQQ", files, tcp, scopes)[:size]
    ruleset = _checked(_libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0)), "Landlock")
    for path in readable:
        _allow(ruleset, path, READ & files)
    for path in writable:
        _allow(ruleset, path, files)
    no_new_privileges()
    _checked(_libc.syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "Landlock")
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no permission
    try:
        if not os.path.isdir(path):
            access &= _ON_FILES
        rule = struct.pack("=Qi", access, fd)
        _checked(
            _libc.syscall(_ADD_RULE, ctypes.c_int(ruleset), 1, rule, ctypes.c_uint32(0)),
            f"Landlock rule for {path}",
        )
    finally:
        os.close(fd)


def no_new_privileges() -> None:
    """Make set-user-id programs ordinary ones, for good."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def drop_capabilities() -> None:
    """Make root an ordinary user to the kernel: no capability is left, and none comes back."""
    if os.geteuid() == 0:
        give_up_capabilities()


def give_up_capabilities() -> None:
    """Give up every capability in this user namespace, for good."""
    _libc.prctl(_PR_SET_SECUREBITS, 0b11, 0, 0, 0)  # user id 0 brings no capabilities with exec
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # past the kernel's last
    header, nothing = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    _checked(_libc.capset(header, nothing), "capset")


@functools.cache
def seccomp_program(*, network: bool) -> bytes:
    """Give the filter in the kernel's binary form, empty on a processor it does not know."""
    machine = platform.machine()
    if machine not in _SOCKET:
        return b""
    denied = [*_NUMBERS[machine], *_DENIED_EVERYWHERE] + ([] if network else [_SOCKET[machine]])
    load_arch, load_call, load_flags = (0x20, 0, 0, 4), (0x20, 0, 0, 0), (0x20, 0, 0, 16)
    allow, refuse = (0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | 1)  # SECCOMP_RET_ALLOW, EPERM
    unknown = (0x06, 0, 0, 0x00050000 | 38)  # ENOSYS: a C library then uses clone, whose flags can be looked at
    rest = [(0x15, 0, 1, _CLONE3), unknown]
    rest += [(0x15, 0, 2, _CLONE[machine]), load_flags, (0x45, 1, 0, _NEW_NAMESPACES), allow, refuse]
    program = [
        load_arch,
        (0x15, 1, 0, _AUDIT_ARCH[machine]),
        refuse,
        load_call,
        (0x35, 0, 1, 0x40000000),
        refuse,
    ]
    for left, number in zip(range(len(denied) - 1, -1, -1), denied, strict=True):
        program.append((0x15, left + len(rest) - 1, 0, number))  # equal: jump to the `refuse` at the end
    return b"".join(struct.pack("=HBBI", *step) for step in (*program, *rest))


def filter_calls(*, network: bool) -> None:
    """Install the seccomp filter; raises OSError."""
    program = seccomp_program(network=network)
    if not program:
        return
    code = ctypes.create_string_buffer(program, len(program))
    argument = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    no_new_privileges()
    _checked(_libc.prctl(_PR_SET_SECCOMP, 2, argument, 0, 0), "seccomp")


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
