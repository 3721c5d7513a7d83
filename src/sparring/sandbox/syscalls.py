"""A seccomp filter for the system calls that a sandboxed program does not need.

Namespaces and an unprivileged user contain the program. The filter blocks system calls that
programs have used to escape, and interfaces that no namespace covers: keyrings, virtual sockets to
the hypervisor, and input into a terminal.
"""

from __future__ import annotations

import functools
import platform
import struct
from dataclasses import dataclass

_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
# BPF opcodes, and offsets in struct seccomp_data.
_LOAD, _EQUALS, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_NAMESPACES = 0x7E020000
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG: would let a program cancel --die-with-parent
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_UNIX, _IPV4, _IPV6 = 1, 2, 10

# Denied with any arguments. Numbers on x86-64 and 64-bit ARM; None if there is no such call.
_DENIED: dict[str, tuple[int, int | None]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "move_pages": (279, 239),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_secret": (447, 447),
    "io_setup": (206, 0),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "mq_open": (240, 180),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "lookup_dcookie": (212, 18),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "sysfs": (139, None),
}


# Calls that allocate memory that only a control group counts.
_UNCOUNTED = {
    "memfd_create": (319, 279),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
}
_NEWEST_CALL = 466  # removexattrat, of Linux 6.13


@dataclass(frozen=True, slots=True)
class _Machine:
    architecture: int
    column: int
    clone: int
    clone3: int
    socket: int
    ioctl: int
    prctl: int


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 0, clone=56, clone3=435, socket=41, ioctl=16, prctl=157),
    "aarch64": _Machine(0xC00000B7, 1, clone=220, clone3=435, socket=198, ioctl=29, prctl=167),
}


@functools.cache
def seccomp_filter(*, has_group: bool = True, has_loopback: bool = False) -> bytes | None:
    """Return the filter for this machine in bubblewrap's format; None if its architecture is
    neither x86-64 nor 64-bit ARM.

    Without a control group, the filter also denies calls that allocate memory that only a control
    group counts. With or without one, only Unix sockets are allowed, plus IP sockets if
    `has_loopback` is set; no limit covers the buffers of IP sockets. Calls newer than
    `_NEWEST_CALL` fail with ENOSYS.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return None
    refuse = _statement(_RETURN, _ERRNO | _EPERM)
    program = [
        _statement(_LOAD, _ARCHITECTURE),
        _jump(_EQUALS, machine.architecture, skip_if=1),
        _statement(_RETURN, _KILL),
        _statement(_LOAD, _NUMBER),
        _jump(_AT_LEAST, _NEWEST_CALL + 1, skip_if_not=1),  # includes the x32 calls
        _statement(_RETURN, _ERRNO | _ENOSYS),
        _jump(
            _EQUALS, machine.clone3, skip_if_not=1
        ),  # a filter cannot read its flags; libc falls back to clone
        _statement(_RETURN, _ERRNO | _ENOSYS),
    ]
    families = (_UNIX, _IPV4, _IPV6) if has_loopback else (_UNIX,)
    denied = [*_DENIED.values(), *([] if has_group else _UNCOUNTED.values())]
    for numbers in denied:
        if (number := numbers[machine.column]) is not None:
            program += [_jump(_EQUALS, number, skip_if_not=1), refuse]
    program += [
        _jump(_EQUALS, machine.clone, skip_if_not=3),
        _statement(_LOAD, _FIRST_ARGUMENT),
        _jump(_ANY_BIT, _NEW_NAMESPACES, skip_if_not=1),
        refuse,
        _statement(_LOAD, _NUMBER),
        _jump(_EQUALS, machine.prctl, skip_if_not=4),
        _statement(_LOAD, _FIRST_ARGUMENT),
        _jump(_EQUALS, _SET_DEATH_SIGNAL, skip_if_not=1),
        refuse,
        _statement(_LOAD, _NUMBER),
        _jump(_EQUALS, machine.ioctl, skip_if_not=1 + 2 * len(_TERMINAL_INPUT)),
        _statement(_LOAD, _SECOND_ARGUMENT),
    ]
    for request in _TERMINAL_INPUT:
        program += [_jump(_EQUALS, request, skip_if_not=1), refuse]
    program += [
        _statement(_LOAD, _NUMBER),
        _jump(_EQUALS, machine.socket, skip_if_not=2 + len(families)),
    ]
    program.append(_statement(_LOAD, _FIRST_ARGUMENT))
    for number, family in enumerate(families):
        program.append(_jump(_EQUALS, family, skip_if=len(families) - number))
    program += [refuse, _statement(_RETURN, _ALLOW)]
    return b"".join(program)


def _statement(code: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, 0, 0, value)


def _jump(code: int, value: int, *, skip_if: int = 0, skip_if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_if, skip_if_not, value)
