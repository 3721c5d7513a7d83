"""The seccomp filter, run by an interpreter of its own: what the kernel would answer."""

from __future__ import annotations

import platform
import struct
from collections.abc import Callable

import pytest

from sparring.sandbox.syscalls import seccomp_filter

ALLOWED, KILLED, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# From the kernel's own tables.
NUMBERS = {
    "x86_64": {
        "read": 0, "execve": 59, "openat": 257, "mount": 165, "ptrace": 101, "unshare": 272,
        "setns": 308, "bpf": 321, "keyctl": 250, "io_uring_setup": 425, "memfd_create": 319,
        "shmget": 29, "clone": 56, "clone3": 435, "socket": 41, "ioctl": 16, "prctl": 157,
        "init_module": 175, "open_by_handle_at": 304, "userfaultfd": 323, "statx": 332,
    },
    "aarch64": {
        "read": 63, "execve": 221, "openat": 56, "mount": 40, "ptrace": 117, "unshare": 97,
        "setns": 268, "bpf": 280, "keyctl": 219, "io_uring_setup": 425, "memfd_create": 279,
        "shmget": 194, "clone": 220, "clone3": 435, "socket": 198, "ioctl": 29, "prctl": 167,
        "init_module": 105, "open_by_handle_at": 265, "userfaultfd": 282, "statx": 291,
    },
}  # fmt: skip
DENIED = (
    "mount", "ptrace", "unshare", "setns", "bpf", "keyctl", "io_uring_setup", "init_module",
    "open_by_handle_at", "userfaultfd",
)  # fmt: skip
NEW_NAMESPACES = [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
Ask = Callable[..., int]


def interpret(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the classic BPF program returns for this system call."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *[*arguments, *[0] * 6][:6])
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return int(value)
        else:
            tests = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: accumulator & value != 0,
            }
            at += if_true if tests[code] else if_false


@pytest.fixture(params=["x86_64", "aarch64"])
def ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ask:
    machine: str = request.param
    monkeypatch.setattr(platform, "machine", lambda: machine)

    def ask(call: str | int, *arguments: int, group: bool = True, loopback: bool = False) -> int:
        program = seccomp_filter.__wrapped__(has_group=group, has_loopback=loopback)
        assert program is not None
        number = call if isinstance(call, int) else NUMBERS[machine][call]
        return interpret(program, ARCHITECTURES[machine], number, *arguments)

    return ask


@pytest.mark.parametrize("call", ["read", "execve", "openat", "statx"])
def test_ordinary_calls_are_allowed(ask: Ask, call: str) -> None:
    assert ask(call) == ALLOWED
    assert ask(call, group=False, loopback=True) == ALLOWED


@pytest.mark.parametrize("call", DENIED)
def test_calls_that_reach_out_of_the_sandbox_are_refused(ask: Ask, call: str) -> None:
    assert ask(call) == EPERM


@pytest.mark.parametrize("call", ["memfd_create", "shmget"])
def test_memory_that_only_a_control_group_counts_is_refused_without_one(
    ask: Ask, call: str
) -> None:
    assert ask(call, group=True) == ALLOWED
    assert ask(call, group=False) == EPERM


def test_a_process_may_be_cloned_but_not_into_a_new_namespace(ask: Ask) -> None:
    assert ask("clone", 0x01200011) == ALLOWED  # as fork does it
    assert ask("clone", 0x003D0F00) == ALLOWED  # as a thread is started
    assert [ask("clone", flag | 17) for flag in NEW_NAMESPACES] == [EPERM] * len(NEW_NAMESPACES)


def test_calls_whose_arguments_cannot_be_seen_or_that_are_too_new_do_not_exist(ask: Ask) -> None:
    assert ask("clone3") == ENOSYS
    assert ask(466) == ALLOWED
    assert [ask(number) for number in (467, 600, 0x40000000)] == [ENOSYS] * 3


def test_sockets_are_local_unless_there_is_a_loopback(ask: Ask) -> None:
    unix, ipv4, ipv6, netlink, vsock = 1, 2, 10, 16, 40
    assert ask("socket", unix) == ALLOWED
    assert [ask("socket", kind) for kind in (ipv4, ipv6, netlink, vsock)] == [EPERM] * 4
    assert [ask("socket", kind, loopback=True) for kind in (unix, ipv4, ipv6)] == [ALLOWED] * 3
    assert [ask("socket", kind, loopback=True) for kind in (netlink, vsock)] == [EPERM] * 2


def test_input_into_a_terminal_is_refused_and_other_requests_are_not(ask: Ask) -> None:
    assert [ask("ioctl", 0, request) for request in (0x5412, 0x541C)] == [EPERM] * 2
    assert ask("ioctl", 0, 0x5401) == ALLOWED
    assert ask("ioctl", 0x5412, 0) == ALLOWED


def test_a_program_cannot_ask_for_a_signal_when_its_parent_dies(ask: Ask) -> None:
    assert ask("prctl", 1) == EPERM
    assert ask("prctl", 15) == ALLOWED  # sets its name


def test_a_call_of_another_architecture_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    program = seccomp_filter.__wrapped__()
    assert program is not None
    assert interpret(program, 0x40000003, NUMBERS["x86_64"]["read"]) == KILLED  # i386


def test_an_unknown_machine_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert seccomp_filter.__wrapped__() is None
