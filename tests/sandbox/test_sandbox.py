"""The sandbox in ordinary use. What tries to get out of it is in attacks.py."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparring.contracts.errors import InfrastructureError, InvalidInput
from sparring.sandbox import Sandbox, SandboxLimits, keeper_client, probe
from sparring.sandbox.command import python
from sparring.sandbox.files import OutsideWorkspace

works = pytest.mark.skipif(not probe().works, reason=probe().why_not)


@pytest.fixture
def sandbox():
    made = Sandbox(SandboxLimits(wall_seconds=5))
    yield made
    made.close()


@works
def test_a_file_that_one_call_writes_is_there_for_the_next(sandbox):
    assert sandbox.run(["/bin/sh", "-c", "echo hello > note"]).exit_code == 0
    assert sandbox.run(["cat", "note"]).text == "hello\n"
    assert sandbox.read("note") == b"hello\n"
    assert sandbox.names() == ["note"]


@works
def test_files_go_in_and_come_out(sandbox):
    sandbox.write("folder/in.txt", b"42")
    done = sandbox.run([python(), "-"], b"print(int(open('folder/in.txt').read()) + 1)")
    assert done.text == "43\n"
    sandbox.run(["/bin/sh", "-c", "rm -r folder"])
    assert sandbox.names() == []


@works
def test_a_program_may_change_what_was_written_for_it(sandbox):
    sandbox.write("note", b"one\n")
    assert sandbox.run(["/bin/sh", "-c", "echo two >> note"]).exit_code == 0
    assert sandbox.read("note") == b"one\ntwo\n"


@works
def test_the_exit_code_and_both_outputs_come_back(sandbox):
    done = sandbox.run(["/bin/sh", "-c", "echo out; echo err >&2; exit 7"])
    assert done.exit_code == 7
    assert set(done.text.split()) == {"out", "err"}


@works
def test_a_call_that_takes_too_long_is_ended_with_all_it_started():
    sandbox = Sandbox(SandboxLimits(wall_seconds=0.5))
    started = time.monotonic()
    done = sandbox.run(["/bin/sh", "-c", "sleep 30 & sleep 30"])
    assert done.stopped_by == "time"
    assert time.monotonic() - started < 3
    sandbox.close()


@works
def test_nothing_is_left_when_it_is_closed(sandbox):
    sandbox.run(["/bin/sh", "-c", "mkdir -p a/b; touch a/b/c; chmod 000 a"])
    sandbox.close()
    assert not sandbox.root.exists()


@works
def test_a_forgotten_sandbox_takes_its_files_along():
    sandbox = Sandbox()
    root = sandbox.root
    del sandbox
    assert not root.exists()


@works
def test_a_killed_process_leaves_nothing_running_and_no_files():
    program = """
        import sys, time
        from sparring.sandbox import Sandbox
        sandbox = Sandbox()
        print(sandbox.root, flush=True)
        sandbox.run(["sleep", "4321"])
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    root = Path(worker.stdout.readline().strip())
    while not _running("sleep 4321"):
        time.sleep(0.02)
    worker.kill()
    worker.wait()
    deadline = time.monotonic() + 10
    while _running("sleep 4321") or root.exists():
        assert time.monotonic() < deadline, "something outlived its worker"
        time.sleep(0.02)


@works
def test_kills_at_any_moment_leave_nothing():
    """Also in the middle of starting, when bubblewrap is not yet bound to its parent."""
    program = """
        import threading
        from sparring.sandbox import Sandbox
        def keep_running():
            sandbox = Sandbox()
            while True:
                sandbox.run(["sleep", "4322"]) if sandbox.run(["true"]) else None
        for _ in range(2):
            threading.Thread(target=keep_running).start()
        print(Sandbox().root.parent, flush=True)
    """
    chance = random.Random(3)
    for _ in range(12):
        command = [sys.executable, "-c", textwrap.dedent(program)]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        folder = Path(worker.stdout.readline().strip())
        time.sleep(chance.random() * 0.05)
        worker.kill()
        worker.wait()
        deadline = time.monotonic() + 15
        while _running("sleep 4322") or folder.exists():
            assert time.monotonic() < deadline, "something outlived its worker"
            time.sleep(0.02)


@works
def test_closing_ends_what_still_runs(sandbox):
    closing = threading.Timer(0.3, sandbox.close)
    closing.start()
    started = time.monotonic()
    assert sandbox.run(["sleep", "60"]).exit_code != 0
    closing.join()
    assert time.monotonic() - started < 4
    assert not sandbox.root.exists()


@works
def test_a_forked_child_takes_nothing_along(sandbox):
    program = textwrap.dedent("""
        import os, sys
        from sparring.sandbox import Sandbox
        sandbox = Sandbox()
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        print(sandbox.root.exists())
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


@works
def test_a_program_longer_than_a_pipe_arrives_whole(sandbox):
    program = b"print(len('" + b"x" * 300_000 + b"'))"
    assert sandbox.run([python(), "-"], program).text == "300000\n"


@works
def test_no_package_of_ours_can_be_seen(sandbox):
    seen = sandbox.run([python(), "-c", "import sys; print([p for p in sys.path if 'site' in p])"])
    assert seen.exit_code == 0
    found = sandbox.run([python(), "-c", "import pip"])
    assert "ModuleNotFoundError" in found.text


@works
def test_many_at_once_leave_no_descriptor_behind():
    before = len(list(Path("/proc/self/fd").iterdir()))
    sandboxes = [Sandbox() for _ in range(24)]
    with ThreadPoolExecutor(24) as pool:
        codes = list(pool.map(lambda each: each.run(["true"]).exit_code, sandboxes * 3))
    assert codes == [0] * 72
    for each in sandboxes:
        each.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2


def _running(command: str) -> bool:
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return any(line.strip() == command for line in found.stdout.splitlines())


@works
@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x", "a/../../x", "", ".", "x\0y", "a" * 2000, "\ud800"]
)
def test_a_name_that_is_no_file_of_the_workspace_is_refused(sandbox, name):
    with pytest.raises(OutsideWorkspace):
        sandbox.read(name)
    with pytest.raises(OutsideWorkspace):
        sandbox.write(name, b"")


@works
def test_a_workspace_that_is_full_takes_no_more(tmp_path):
    sandbox = Sandbox(SandboxLimits(disk_bytes=1_000_000))
    sandbox.write("a", bytes(900_000))
    with pytest.raises(OSError, match="no room"):
        sandbox.write("b", bytes(900_000))
    sandbox.close()


def test_unsandboxed_has_its_limits_all_the_same():
    sandbox = Sandbox(SandboxLimits(wall_seconds=0.5), is_unsandboxed=True)
    assert sandbox.run(["/bin/sh", "-c", "echo here > x; cat x"]).text == "here\n"
    assert sandbox.run(["sleep", "30"]).stopped_by == "time"
    sandbox.close()


@works
def test_a_keeper_that_answers_too_late_gets_no_further_requests(monkeypatch):
    """What it says from then on would be the answer to another question."""
    monkeypatch.setattr(keeper_client, "_SECONDS", 0.5)
    first = Sandbox()
    keeper = first._workspace.keeper
    os.kill(keeper._process.pid, signal.SIGSTOP)
    with pytest.raises(InfrastructureError):
        Sandbox()
    monkeypatch.setattr(keeper_client, "_SECONDS", 30.0)
    later = Sandbox(SandboxLimits(disk_bytes=1 << 20))
    assert later.run(["/bin/sh", "-c", "echo mine > x && ls"]).text == "x\n"
    assert later.read("x") == b"mine\n"
    later.close()
    with pytest.raises(InfrastructureError):
        first.names()
    first.close()


@works
def test_without_its_keeper_a_workspace_is_gone_and_not_empty():
    sandbox = Sandbox()
    sandbox.write("x", b"1")
    os.kill(sandbox._workspace.keeper._process.pid, signal.SIGKILL)
    sandbox._workspace.keeper._process.wait()
    for look in (sandbox.names, lambda: sandbox.read("x"), lambda: sandbox.write("y", b"2")):
        with pytest.raises(InfrastructureError, match="gone"):
            look()
    sandbox.close()
    fine = Sandbox()
    assert fine.run(["true"]).exit_code == 0
    fine.close()


@works
def test_a_forked_child_leaves_its_parents_sandbox_alone():
    program = textwrap.dedent("""
        import os, sys
        from sparring.sandbox import Sandbox
        sandbox = Sandbox()
        sandbox.write("x", b"1")
        if os.fork() == 0:
            sandbox.close()
            own = Sandbox()
            own.write("y", b"2")
            print(own.names(), flush=True)
            own.close()
            os._exit(0)
        os.wait()
        print(sandbox.names(), sandbox.run(["cat", "x"]).text)
        sandbox.close()
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "['y']\n['x'] 1\n", done.stderr


@works
@pytest.mark.parametrize("command", [[], ["a\0b"], ["true", "x" * 200_000], ["\ud800"]])
def test_a_command_that_no_system_could_start_is_refused(sandbox, command):
    with pytest.raises(InvalidInput, match="a command must"):
        sandbox.run(command)


@works
def test_loopback_is_there_on_request():
    program = b'import socket; socket.create_server(("127.0.0.1", 0)); print("on")'
    for loopback, output in ((False, "PermissionError"), (True, "on")):
        sandbox = Sandbox(SandboxLimits(loopback=loopback))
        assert output in sandbox.run([python(), "-"], program).text
        sandbox.close()
