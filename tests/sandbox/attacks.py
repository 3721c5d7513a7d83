"""Attempts to get out of the sandbox, to outlive it, or to take more than one's share.

Needs nothing but the standard library and `sparring.sandbox`, so that it can be run by an
ordinary user with any Python:

    python attacks.py [--name PART]      one JSON object with every attempt and its outcome

Each attempt is a program that says ESCAPED if it got anywhere. What cannot be seen from inside
is looked at from outside: files, processes, and how long the next call takes.
"""

# ruff: noqa: E501 - programs in one line each
from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sparring.sandbox import Finished, Sandbox, SandboxLimits
from sparring.sandbox.command import python
from sparring.sandbox.files import OutsideWorkspace

SECRET = "the-secret-of-the-host"
MIB = 1024 * 1024
LIMITS = SandboxLimits(
    wall_seconds=3, cpu_seconds=2, memory_bytes=256 * MIB, processes=24, file_bytes=16 * MIB,
    disk_bytes=32 * MIB, files=2000, scratch_bytes=8 * MIB, output_bytes=64 * 1024,
)  # fmt: skip

PRELUDE = """
import ctypes, errno, os, resource, signal, socket, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def fails(work):
    try:
        got = work()
    except BaseException as error:
        print("refused:", type(error).__name__, str(error)[:80]); return
    print("ESCAPED", repr(got)[:120])
def call(number, *arguments):
    if libc.syscall(number, *arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "the call went through"
def absent(path):
    print("ESCAPED" if os.path.exists(path) else "refused:", path)
"""


@dataclass(slots=True)
class Host:
    """What there is to be had on the host, and what must be the same afterwards."""

    folder: Path
    secret: Path
    verifier: Path
    port: int
    abstract: str
    socket: Path
    victim: subprocess.Popen[bytes]
    inheritable: int
    connections: list[str] = field(default_factory=list)

    def fill(self, code: str) -> str:
        words = {
            "SECRET_FILE": str(self.secret), "VERIFIER_FILE": str(self.verifier),
            "PORT": str(self.port), "ABSTRACT": self.abstract, "SOCKET": str(self.socket),
            "VICTIM": str(self.victim.pid), "SECRET": SECRET, "HOST_PID": str(os.getpid()),
            "HOST_FD": str(self.inheritable),
        }  # fmt: skip
        for word in sorted(words, key=len, reverse=True):
            code = code.replace(f"<{word}>", words[word])
        return code

    def damage(self) -> list[str]:
        found = []
        if self.victim.poll() is not None:
            found.append("a process of the host was ended")
        if self.secret.read_text() != SECRET or self.verifier.read_text() != SECRET:
            found.append("a file of the host was changed")
        expected = {self.secret, self.verifier, self.socket}
        if extra := set(self.folder.iterdir()) - expected:
            found.append(f"files were left: {sorted(map(str, extra))}")
        return found


@dataclass(frozen=True, slots=True)
class Attack:
    """`looks` judges what the program's own output cannot show."""

    name: str
    aim: str
    code: str = ""
    shell: str = ""
    looks: Callable[[Sandbox, Finished, Host], str] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    name: str
    aim: str
    contained: bool
    how: str
    seconds: float
    next_call_ms: float


def stopped_by(*causes: str) -> Callable[[Sandbox, Finished, Host], str]:
    def looks(_: Sandbox, finished: Finished, __: Host) -> str:
        return "" if finished.stopped_by in causes else f"ended by {finished.stopped_by!r}"

    return looks


def stays_small(sandbox: Sandbox, finished: Finished, _: Host) -> str:
    printed = subprocess.run(["du", "-sb", str(sandbox.root)], capture_output=True, text=True)
    size = int(printed.stdout.split()[0])
    return "" if size < 4 * LIMITS.disk_bytes else f"the workspace holds {size} bytes"


def fits_beside(_: Sandbox, finished: Finished, __: Host) -> str:
    """The host still has room for what it does itself."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(MIB))
    return ""


def reading_refuses(name: str) -> Callable[[Sandbox, Finished, Host], str]:
    """The host's own file tools must not be led astray by what lies in the workspace."""

    def looks(sandbox: Sandbox, _: Finished, __: Host) -> str:
        try:
            got = sandbox.read(name)
        except (OutsideWorkspace, OSError):
            return ""
        return f"read {got[:40]!r}" if SECRET.encode() in got or not got else ""

    return looks


def writing_refuses(name: str) -> Callable[[Sandbox, Finished, Host], str]:
    def looks(sandbox: Sandbox, _: Finished, host: Host) -> str:
        try:
            sandbox.write(name, b"overwritten")
        except (OutsideWorkspace, OSError):
            return ""
        return "; ".join(host.damage()) or "the write went somewhere"

    return looks


def listing_works(sandbox: Sandbox, _: Finished, __: Host) -> str:
    return "" if sandbox.names() else "the files cannot be listed"


def no_core_file(sandbox: Sandbox, _: Finished, __: Host) -> str:
    return "; ".join(name for name in sandbox.names() if "core" in name)


def nobody_came(_: Sandbox, __: Finished, host: Host) -> str:
    return "; ".join(host.connections)


ATTACKS = (
    # ---------------------------------------------------------------- files of the host
    Attack("read a file of the host", "host files", "fails(lambda: open('<SECRET_FILE>').read())"),
    Attack("read /etc/shadow", "host files", "fails(lambda: open('/etc/shadow').read())"),
    Attack("read /etc/passwd", "host files", "fails(lambda: open('/etc/passwd').read())"),
    Attack("look into the host's home folders", "host files",
           "[absent(p) for p in ('/home', '/root/.ssh', '/root/.bashrc', '/var', '/srv', '/sys')]"),
    Attack("write to /usr/bin", "host files", "fails(lambda: open('/usr/bin/ls', 'ab'))"),
    Attack("write to the interpreter", "host files", "fails(lambda: open(sys.executable, 'ab'))"),
    Attack("write beside the workspace", "host files", "fails(lambda: open('/evil', 'w'))"),
    Attack("read the verifier's data", "verifier", "fails(lambda: open('<VERIFIER_FILE>').read())"),
    Attack("replace the verifier's data", "verifier",
           "fails(lambda: os.replace('/workspace/x', '<VERIFIER_FILE>'))"),
    Attack("find another rollout's workspace", "other rollouts",
           "print('ESCAPED' if any('sparring-sandboxes' in p for p in os.listdir('/tmp')) "
           "else 'refused')"),
    # ---------------------------------------------------------------- /proc and processes
    Attack("read the host's files through /proc/1/root", "/proc",
           "fails(lambda: open('/proc/1/root<SECRET_FILE>').read())"),
    Attack("read the host's files through /proc/self/cwd", "/proc",
           "fails(lambda: open('/proc/self/cwd/../../../../..<SECRET_FILE>').read())"),
    Attack("the environment of process 1", "/proc", """
        try:
            text = open('/proc/1/environ').read()
        except OSError:
            text = ''
        print('ESCAPED' if '<SECRET>' in text or 'HOME' in text else 'refused')"""),
    Attack("the environment of every process", "environment", """
        seen = []
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try: seen.append(open(f'/proc/{pid}/environ').read())
            except OSError: pass
        print('ESCAPED' if any('<SECRET>' in each for each in seen) else 'refused')"""),
    Attack("its own environment", "environment",
           "print('ESCAPED' if '<SECRET>' in str(os.environ) else 'refused')"),
    Attack("see the host's processes", "processes", """
        pids = [p for p in os.listdir('/proc') if p.isdigit()]
        print('ESCAPED' if len(pids) > 12 else 'refused', len(pids))"""),
    Attack("end a process of the host", "signals", "fails(lambda: os.kill(<VICTIM>, 9))"),
    Attack("end every process", "signals", "os.kill(-1, 9)",
           looks=lambda _, __, host: "; ".join(host.damage())),
    Attack("ptrace process 1", "ptrace", "fails(lambda: call(101, 16, 1, 0, 0))"),
    Attack("read the memory of process 1", "ptrace", """
        def search():
            found = b''
            for line in open('/proc/1/maps'):
                start, end = (int(part, 16) for part in line.split()[0].split('-'))
                if line.split()[1][0] != 'r' or end - start > 1 << 24: continue
                memory = open('/proc/1/mem', 'rb', 0)
                try:
                    memory.seek(start); found += memory.read(end - start)
                except OSError: pass
            return '<SECRET>'.encode() in found
        try: print('ESCAPED' if search() else 'refused')
        except OSError as error: print('refused:', error)"""),
    Attack("clear its parent-death signal", "signals", "fails(lambda: call(157, 1, 0, 0, 0, 0))"),
    Attack("read memory by process_vm_readv", "ptrace", "fails(lambda: call(310, 1, 0, 0, 0, 0, 0))"),
    Attack("change a setting of the kernel", "/proc",
           "fails(lambda: open('/proc/sys/kernel/core_pattern', 'w').write('|/evil'))"),
    Attack("write to /proc/sysrq-trigger", "/proc",
           "fails(lambda: open('/proc/sysrq-trigger', 'w').write('b'))"),
    Attack("escape the out-of-memory killer", "/proc",
           "fails(lambda: os.write(os.open('/proc/self/oom_score_adj', 1), b'-1000'))"),
    # ---------------------------------------------------------------- network
    Attack("connect to the host's loopback", "sockets",
           "fails(lambda: socket.create_connection(('127.0.0.1', <PORT>), 1))", looks=nobody_came),
    Attack("connect to an abstract socket", "sockets", """
        s = socket.socket(socket.AF_UNIX)
        fails(lambda: s.connect('\\0<ABSTRACT>'))""", looks=nobody_came),
    Attack("connect to a socket file", "sockets", """
        s = socket.socket(socket.AF_UNIX)
        fails(lambda: s.connect('<SOCKET>'))""", looks=nobody_came),
    Attack("connect to the internet", "sockets",
           "fails(lambda: socket.create_connection(('1.1.1.1', 53), 1))"),
    Attack("resolve a name", "sockets", "fails(lambda: socket.getaddrinfo('example.com', 80))"),
    Attack("open a vsock to the hypervisor", "sockets", "fails(lambda: socket.socket(40, 1))"),
    Attack("listen to raw packets", "sockets",
           "fails(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))"),
    # ---------------------------------------------------------------- devices and mounts
    Attack("make a device node", "devices",
           "fails(lambda: os.mknod('disk', 0o60666, os.makedev(254, 0)))"),
    Attack("open the machine's memory and disks", "devices",
           "[absent(p) for p in ('/dev/mem', '/dev/kmsg', '/dev/vda', '/dev/sda', '/dev/kvm', "
           "'/dev/fuse', '/dev/loop0', '/dev/vsock')]"),
    Attack("mount a file system", "mounts", "fails(lambda: call(165, b'none', b'/tmp', b'tmpfs', 0, 0))"),
    Attack("unmount the read-only runtime", "mounts", "fails(lambda: call(166, b'/usr/bin', 2))"),
    Attack("remount it for writing", "mounts",
           "fails(lambda: call(165, b'none', b'/usr/bin', 0, 0x1020, 0))"),
    Attack("create namespaces with unshare", "mounts", "fails(lambda: call(272, 0x10000000 | 0x20000))"),
    Attack("create namespaces with clone3", "mounts",
           "fails(lambda: call(435, struct.pack('=QQQQQQQQ', 0x10020000, 0, 0, 0, 17, 0, 0, 0), 64))"),
    Attack("start a sandbox in the sandbox", "mounts", shell="bwrap --unshare-all --ro-bind / / echo ESCAPED"),
    Attack("chroot", "mounts", "fails(lambda: os.chroot('/tmp'))"),
    # ---------------------------------------------------------------- the workspace as a trap
    Attack("a link to a file of the host", "links", "os.symlink('<SECRET_FILE>', 'link')",
           looks=reading_refuses("link")),
    Attack("a link to a folder of the host", "links",
           "os.symlink(os.path.dirname('<SECRET_FILE>'), 'folder')",
           looks=reading_refuses("folder/secret")),
    Attack("write through a link", "links", "os.symlink('<SECRET_FILE>', 'out')",
           looks=writing_refuses("out")),
    Attack("write through a linked folder", "links",
           "os.symlink(os.path.dirname('<SECRET_FILE>'), 'away')",
           looks=writing_refuses("away/secret")),
    Attack("read a path with ..", "links", "open('x', 'w')",
           looks=reading_refuses("../../../../../etc/passwd")),
    Attack("a hard link to the runtime", "links", "fails(lambda: os.link('/usr/bin/ls', 'ls'))"),
    Attack("a pipe in place of a file", "links", "os.mkfifo('pipe')", looks=reading_refuses("pipe")),
    Attack("names that no terminal can show", "links", """
        for name in (b'\\xff\\xfe', b'a\\nb', b'\\x1b[2J'): open(name, 'w')""", looks=listing_works),
    # ---------------------------------------------------------------- rights
    Attack("become root", "setuid", "fails(lambda: (os.setuid(0), os.getuid()))"),
    Attack("a setuid program of its own", "setuid", """
        import shutil
        shutil.copy('/usr/bin/id', 'id'); os.chmod('id', 0o6755)
        printed = subprocess.run(['./id', '-u'], capture_output=True, text=True).stdout
        print('ESCAPED' if printed.strip() == '0' else 'refused', printed)"""),
    Attack("the host's setuid programs", "setuid", """
        printed = open('/proc/self/status').read()
        print('refused' if 'NoNewPrivs:\\t1' in printed else 'ESCAPED')"""),
    Attack("capabilities", "setuid", """
        printed = open('/proc/self/status').read().splitlines()
        held = [line for line in printed if line.startswith(('CapEff', 'CapPrm', 'CapAmb'))]
        print('ESCAPED' if any(int(line.split()[1], 16) for line in held) else 'refused')"""),
    Attack("raise its own limits", "setuid", """
        fails(lambda: resource.setrlimit(resource.RLIMIT_NPROC, (9999, 9999)))"""),
    Attack("raise its own priority", "setuid", "fails(lambda: os.nice(-10))"),
    Attack("set the clock", "clock and name", "fails(lambda: time.clock_settime(0, 1.0))"),
    Attack("change the host name", "clock and name", "fails(lambda: socket.sethostname('evil'))"),
    Attack("read the host name", "clock and name",
           "print('refused' if socket.gethostname() == 'sandbox' else 'ESCAPED')"),
    Attack("keys in the kernel's keyring", "kernel", "fails(lambda: call(248, b'user', b'k', b'v', 1, -3))"),
    Attack("load a BPF program", "kernel", "fails(lambda: call(321, 0, 0, 0))"),
    Attack("io_uring", "kernel", "fails(lambda: call(425, 8, ctypes.create_string_buffer(128)))"),
    Attack("inject terminal input (TIOCSTI)", "kernel", """
        import fcntl
        fails(lambda: fcntl.ioctl(0, 0x5412, b'x'))"""),
    Attack("descriptors left open", "descriptors", """
        held = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')
                if os.path.islink(f'/proc/self/fd/{n}')]
        odd = [p for p in held if not p.startswith(('pipe:', '/dev/null', '/proc/', '/memfd:given'))]
        print('ESCAPED' if odd else 'refused', odd)"""),
    # ---------------------------------------------------------------- more than its share
    Attack("a fork bomb", "processes", shell="bomb() { bomb | bomb & }; bomb; sleep 1; echo done"),
    Attack("a fork bomb that ignores signals", "processes", """
        [signal.signal(n, signal.SIG_IGN) for n in range(1, 32) if n not in (9, 19)]
        while True:
            try: os.fork()
            except OSError: pass""", looks=stopped_by("time", "")),
    Attack("a memory bomb", "memory", "held = []\nwhile True: held.append(bytearray(8 << 20))"),
    Attack("a memory bomb of many processes", "memory", """
        for _ in range(12): os.fork()
        held = bytearray(100 << 20)
        for n in range(0, len(held), 4096): held[n] = 1
        time.sleep(1.5); print('GOT IT')""", looks=lambda _, finished, __:
           "" if finished.text.count("GOT IT") <= 2 else "more got theirs than there is"),
    Attack("fill memory with files in /dev/shm", "memory", """
        def fill():
            for n in range(400): open(f'/dev/shm/{n}', 'wb').write(bytes(1 << 20))
        fails(fill)"""),
    Attack("fill memory with files in /tmp", "memory", """
        def fill():
            for n in range(400): open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))
        fails(fill)"""),
    Attack("fill the disk with one file", "disk", """
        def fill():
            with open('big', 'wb') as file:
                for _ in range(4096): file.write(bytes(1 << 20))
        fails(fill)""", looks=stays_small),
    Attack("fill the disk with many files", "disk", """
        for n in range(4096): open(f'f{n}', 'wb').write(bytes(1 << 20))
        print('ESCAPED')""", looks=stays_small),
    Attack("use up the inodes", "disk", """
        for n in range(10**6): open(f'n{n}', 'w').close()
        print('ESCAPED')""", looks=stopped_by("disk", "time")),
    Attack("folders whose path is too long to be walked", "disk", """
        for n in range(17): os.mkdir('d' * 250); os.chdir('d' * 250)
        for n in range(200): open(f'f{n}', 'wb').write(bytes(1 << 20))
        print('ESCAPED')""", looks=stays_small),
    Attack("a folder that cannot be listed", "disk", """
        os.mkdir('shut'); os.chmod('shut', 0o300); os.chdir('shut')
        for n in range(200): open(f'f{n}', 'wb').write(bytes(1 << 20))
        print('ESCAPED')""", looks=stays_small),
    Attack("files that are deleted and still open", "disk", """
        held = []
        for n in range(100):
            held.append(open(f'f{n}', 'wb', 0)); os.unlink(f'f{n}'); held[-1].write(bytes(4 << 20))
        time.sleep(1); print('ESCAPED')""", looks=stopped_by("disk", "memory", "time", "")),
    Attack("memory in anonymous files (memfd)", "memory", """
        held = []
        for n in range(60):
            held.append(os.memfd_create('m')); os.write(held[-1], bytes(15 << 20))
        time.sleep(1); print('ESCAPED')""", looks=stopped_by("disk", "memory", "time", "")),
    Attack("memory that many processes share", "memory", """
        import mmap
        for _ in range(3): os.fork()
        held = mmap.mmap(-1, 80 << 20)
        for n in range(0, len(held), 4096): held[n] = 1
        time.sleep(1.5); print('GOT IT')""", looks=lambda _, finished, __:
           "" if finished.text.count("GOT IT") <= 3 else "more got theirs than there is"),
    Attack("deleted files whose descriptors wait in a socket", "disk", """
        ends, held = [], 0
        try:
            for n in range(200):
                if n % 40 == 0: ends.append(socket.socketpair())
                file = os.open(f'f{n}', os.O_CREAT | os.O_RDWR); os.unlink(f'f{n}')
                held += os.write(file, bytes(4 << 20))
                socket.send_fds(ends[-1][0], [b'x'], [file]); os.close(file)
        except OSError as error: print('refused:', error)
        print('ESCAPED' if held > 64 << 20 else 'refused:', held)""", looks=fits_beside),
    Attack("unnamed files whose descriptors wait in a socket", "memory", """
        ends, held = [], 0
        try:
            for n in range(400):
                if n % 40 == 0: ends.append(socket.socketpair())
                file = os.memfd_create('m')
                held += os.write(file, bytes(4 << 20))
                socket.send_fds(ends[-1][0], [b'x'], [file]); os.close(file)
        except OSError as error: print('refused:', error)
        print('ESCAPED' if held > 300 << 20 else 'refused:', held)"""),
    Attack("deleted files of a second thread's child", "disk", """
        import threading
        def hold():
            kept, held = [], 0
            try:
                for n in range(100):
                    kept.append(os.open(f't{n}', os.O_CREAT | os.O_RDWR)); os.unlink(f't{n}')
                    held += os.write(kept[-1], bytes(4 << 20))
            except OSError as error: print('refused:', error, flush=True)
            print('ESCAPED' if held > 64 << 20 else 'refused:', held, flush=True)
            time.sleep(1)
        def fork():
            if os.fork() == 0: hold(); os._exit(0)
            time.sleep(2)
        other = threading.Thread(target=fork); other.start(); other.join()"""),
    Attack("memory of a second thread's children", "memory", """
        import threading
        def fork():
            for _ in range(8):
                if os.fork() == 0:
                    held = bytearray(100 << 20)
                    for n in range(0, len(held), 4096): held[n] = 1
                    time.sleep(1.5); os.write(1, b'GOT IT'); os._exit(0)
            time.sleep(2.5)
        other = threading.Thread(target=fork); other.start(); other.join()""",
           looks=lambda _, finished, __:
           "" if finished.text.count("GOT IT") <= 2 else "more got theirs than there is"),
    Attack("a workspace without permissions", "disk", """
        os.mkdir('s'); folder = os.open('s', os.O_RDONLY)
        os.chmod('/workspace', 0)
        held = 0
        try:
            for n in range(100):
                file = os.open(f'f{n}', os.O_CREAT | os.O_RDWR, dir_fd=folder)
                held += os.write(file, bytes(4 << 20)); os.close(file)
        except OSError as error: print('refused:', error)
        print('ESCAPED' if held > 64 << 20 else 'refused:', held)"""),
    Attack("many processes with many descriptors", "disk", """
        for worker in range(16):
            if os.fork() == 0:
                kept, held = [], 0
                try:
                    for n in range(60):
                        kept.append(os.open(f'w{worker}-{n}', os.O_CREAT | os.O_RDWR))
                        os.unlink(f'w{worker}-{n}')
                        held += os.write(kept[-1], bytes(1 << 20))
                except OSError: pass
                os.write(1, f'{held >> 20}\\n'.encode()); time.sleep(1); os._exit(0)
        time.sleep(1.5)""", looks=lambda _, finished, __:
           "" if sum(map(int, finished.text.split())) <= 64 else "they hold more than there is"),
    Attack("the machine's slots for asynchronous I/O", "kernel", """
        context = ctypes.c_ulong(0)
        fails(lambda: call(206, 8000, ctypes.byref(context)))"""),
    Attack("a call that is newer than the filter", "kernel",
           "fails(lambda: call(467, -100, b'/', 0, 0, 0))"),
    Attack("open a netlink socket", "sockets", "fails(lambda: socket.socket(16, 3, 2))"),
    Attack("buffers of network sockets", "sockets", "fails(lambda: socket.socket())"),
    Attack("watch what others open", "kernel", "fails(lambda: call(294, 0))"),
    Attack("watch files with fanotify", "kernel", "fails(lambda: call(300, 0, 0))"),
    Attack("open a POSIX message queue", "kernel", "fails(lambda: call(240, b'q', 66, 0o600, 0))"),
    Attack("create timers without end", "kernel", """
        held, timer = 0, ctypes.c_void_p()
        while held < 5000 and call and libc.syscall(222, 1, 0, ctypes.byref(timer)) == 0: held += 1
        print('ESCAPED' if held >= 5000 else 'refused', held)"""),
    Attack("System V shared memory", "memory", """
        held = 0
        for n in range(12):
            found = libc.shmget(0, 60 << 20, 0o1600)
            if found < 0: break
            libc.shmat.restype = ctypes.c_void_p
            place = libc.shmat(found, None, 0)
            if place in (None, ctypes.c_void_p(-1).value): break
            ctypes.memset(place, 1, 60 << 20); held += 60; libc.shmdt(ctypes.c_void_p(place))
        print('ESCAPED' if held > 256 else 'refused', held)"""),
    Attack("buffers between many processes", "memory", """
        for _ in range(17):
            if os.fork() == 0:
                held, total = [], 0
                try:
                    while True:
                        ends = socket.socketpair(); held.append(ends)
                        for end in ends:
                            end.setblocking(False)
                            try:
                                while True: total += end.send(bytes(65536))
                            except BlockingIOError: pass
                except OSError: pass
                os.write(1, f'{total >> 20} '.encode()); time.sleep(1); os._exit(0)
        time.sleep(2)""", looks=lambda _, finished, __:
           "" if sum(map(int, finished.text.split())) <= 512 else "they hold more than there is"),
    Attack("a disk full of folders", "disk", """
        made = 0
        try:
            while made < 10**6: os.mkdir(f'd{made}'); made += 1
        except OSError as error: print('refused:', error)
        print('ESCAPED' if made > 3000 else 'refused:', made)"""),
    Attack("a file with a hole that is filled later", "disk", """
        def fill():
            with open('hole', 'wb') as file:
                file.truncate(15 << 20)
            for n in range(20):
                with open(f'copy{n}', 'wb') as file: file.write(bytes(15 << 20))
        fails(fill)""", looks=stays_small),
    Attack("extended attributes without end", "disk", """
        open('x', 'w').close(); held = 0
        try:
            for n in range(100_000): os.setxattr('x', f'user.{n}', bytes(60_000)); held += 60_000
        except OSError as error: print('refused:', error)
        print('ESCAPED' if held > 64 << 20 else 'refused:', held)"""),
    Attack("the keeper's own mounts", "mounts", """
        printed = open('/proc/self/mountinfo').read()
        print('ESCAPED' if printed.count('sparring-sandboxes') > 3 else 'refused')"""),
    Attack("empty files in memory without end", "memory", """
        for n in range(10**6): open(f'/tmp/{n}', 'w').close()
        print('ESCAPED')""", looks=stopped_by("memory", "time", "")),
    Attack("read back what it printed", "output", """
        own = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)
        until = time.time() + 1
        while time.time() < until:
            os.write(1, b'x')
            try: os.read(own, 1)
            except OSError: pass"""),
    Attack("a file of a terabyte", "disk", "fails(lambda: os.truncate(os.open('t', 66), 1 << 40))"),
    Attack("folders nested deeper than PATH_MAX", "disk", """
        for _ in range(3000):
            os.mkdir('d' * 20); os.chdir('d' * 20)""", looks=stopped_by("disk", "time", "")),
    Attack("a folder without permissions", "disk",
           "os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a/b', 0); os.chmod('a', 0)"),
    Attack("a flood of output", "output", "while True: sys.stdout.write('x' * 65536)",
           looks=stopped_by("output")),
    Attack("a program that never ends", "time", "while True: pass", looks=stopped_by("time", "")),
    Attack("a program that stops itself (SIGSTOP)", "time", "os.kill(os.getpid(), signal.SIGSTOP)",
           looks=stopped_by("time")),
    Attack("a daemon that outlives its program", "daemons", """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for n in (0, 1, 2): os.close(n)
                time.sleep(1); open('/workspace/alive', 'w').write('ESCAPED')
                time.sleep(60)
            os._exit(0)
        print('started')""", looks=lambda sandbox, _, __:
           time.sleep(1.2) or ("it lives" if "alive" in sandbox.names() else "")),
    Attack("a daemon started by the shell", "daemons",
           shell="nohup setsid sh -c 'sleep 1; touch alive; sleep 60' >/dev/null 2>&1 & echo started",
           looks=lambda sandbox, _, __:
           time.sleep(1.2) or ("it lives" if "alive" in sandbox.names() else "")),
    Attack("a core dump", "core dumps", "os.kill(os.getpid(), signal.SIGSEGV)", looks=no_core_file),
    Attack("open files without end", "descriptors", """
        def take():
            held = []
            while True: held.append(open('/dev/null'))
        fails(take)"""),
)  # fmt: skip


@contextmanager
def host() -> Iterator[Host]:
    """Something to steal, somebody to harm, and somewhere to call."""
    with tempfile.TemporaryDirectory(prefix="host-") as place:
        folder = Path(place)
        for name in ("secret", "verifier.json"):
            (folder / name).write_text(SECRET)
        listener = socket.create_server(("127.0.0.1", 0))
        named = socket.socket(socket.AF_UNIX)
        named.bind(str(folder / "socket"))
        named.listen()
        abstract = f"sparring-{os.getpid()}"
        hidden = socket.socket(socket.AF_UNIX)
        hidden.bind(f"\0{abstract}")
        hidden.listen()
        os.environ["SPARRING_SECRET"] = SECRET
        descriptor = os.open(folder / "secret", os.O_RDONLY)
        os.set_inheritable(descriptor, True)
        victim = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL)
        there = Host(
            folder, folder / "secret", folder / "verifier.json", listener.getsockname()[1],
            abstract, folder / "socket", victim, descriptor,
        )  # fmt: skip
        for each in (listener, named, hidden):
            each.setblocking(False)
        try:
            yield there
        finally:
            for each in (listener, named, hidden):
                try:
                    each.accept()
                    there.connections.append("somebody connected")
                except BlockingIOError:
                    pass
                each.close()
            os.close(descriptor)
            victim.kill()
            victim.wait()


def strangers() -> set[int]:
    """Live processes in another process namespace than ours: those of sandboxes. The dead wait
    for an instant until somebody takes note of it."""
    own = Path("/proc/self/ns/pid").readlink()
    found = set()
    for pid in filter(str.isdigit, (each.name for each in Path("/proc").iterdir())):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if Path(f"/proc/{pid}/ns/pid").readlink() != own and state not in "ZX":
                found.add(int(pid))
        except OSError:
            continue
    return found


def is_of(pid: int, sandbox: Sandbox) -> bool:
    """Whether a process belongs to this sandbox, and not to one that somebody else runs now."""
    place = "/".join(sandbox.root.parts[-2:])
    for file in ("mountinfo", "cmdline"):
        try:
            if place in Path(f"/proc/{pid}/{file}").read_text():
                return True
        except FileNotFoundError:
            return False  # gone
        except OSError:
            return True  # hidden from us: nobody else's would be
    return False


def next_call() -> float:
    """Milliseconds of a harmless call in a new sandbox."""
    sandbox = Sandbox(LIMITS)
    try:
        started = time.perf_counter()
        done = sandbox.run(["/bin/true"])
        assert done.exit_code == 0, done
        return (time.perf_counter() - started) * 1000
    finally:
        sandbox.close()


def _after_a_harmless_one() -> float:
    """What to compare with: taking a sandbox down costs the kernel time, whatever ran in it."""
    sandbox = Sandbox(LIMITS)
    sandbox.run([python(), "-"], b"print('hello')")
    sandbox.close()
    return next_call()


def attempt(attack: Attack, there: Host) -> Outcome:
    before = strangers()
    sandbox = Sandbox(LIMITS)
    started = time.perf_counter()
    if attack.shell:
        finished = sandbox.run(["/bin/sh", "-s"], attack.shell.encode())
    else:
        code = there.fill(PRELUDE + textwrap.dedent(attack.code))
        finished = sandbox.run([python(), "-"], code.encode())
    seconds = time.perf_counter() - started
    problems = []
    if left := {pid for pid in strangers() - before if is_of(pid, sandbox)}:
        problems.append(f"processes were left: {sorted(left)}")
    if "ESCAPED" in finished.text:
        problems.append(finished.text.strip()[-200:])
    if attack.looks and (seen := attack.looks(sandbox, finished, there)):
        problems.append(seen)
    sandbox.close()
    if sandbox.root.exists():
        problems.append("the workspace was left")
    problems += there.damage()
    how = "; ".join(problems) or _as_text(finished)
    return Outcome(attack.name, attack.aim, not problems, how, round(seconds, 2), next_call())


def _as_text(finished: Finished) -> str:
    if finished.stopped_by:
        return f"stopped by its limit: {finished.stopped_by}"
    lines = [line for line in finished.text.strip().splitlines() if line.strip()]
    last = lines[-1][:80] if lines else ""
    if last.startswith("refused: ") and not last.startswith("refused: /"):
        return last.removeprefix("refused: ").partition(": '")[0].partition(" '")[0][:70]
    if "refused" in last or finished.exit_code == 0:
        return "contained"
    return f"ended: {last[:60]}" if last else "ended by a signal"


def run_all(part: str = "") -> dict[str, object]:
    chosen = [attack for attack in ATTACKS if part in attack.name]
    with host() as there:
        usual = statistics.median(_after_a_harmless_one() for _ in range(15))
        outcomes = [attempt(attack, there) for attack in chosen]
    after = statistics.median(outcome.next_call_ms for outcome in outcomes)
    return {
        "as": "root" if os.geteuid() == 0 else "an ordinary user",
        "attempts": len(outcomes),
        "contained": sum(outcome.contained for outcome in outcomes),
        "connections": there.connections,
        "call_ms_before": round(usual, 2),
        "call_ms_after": round(after, 2),
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--name", default="")
    result = run_all(options.parse_args().name)
    print(json.dumps(result))
    sys.exit(0 if result["attempts"] == result["contained"] else 1)
