"""A call is watched until it ends or exceeds a limit; then nothing of it is left."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparring.contracts.errors import InfrastructureError
from sparring.sandbox import SandboxLimits, probe
from sparring.sandbox.call import Call, kill, set_limits, start_confined, start_unconfined
from sparring.sandbox.command import can_switch_user, confined, spare_user_id

works = pytest.mark.skipif(not probe().works, reason=probe().why_not)
LIMITS = SandboxLimits(wall_seconds=10)


@pytest.fixture
def sleeper() -> Iterator[Call]:
    """A call without limits that sleeps and says nothing."""
    read, write = os.pipe()
    process = subprocess.Popen(["sleep", "60"], stdout=write, start_new_session=True)
    os.close(write)
    yield Call(process, read)
    kill(process)
    process.wait()
    os.close(read)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def run(
    program: str, folder: Path, limits: SandboxLimits = LIMITS, stdin: bytes = b""
) -> tuple[bytes, str, int | None]:
    """Output, exceeded limit, and exit code if it ended by itself."""
    with start_unconfined(["/bin/sh", "-c", program], limits, str(folder), stdin) as call:
        output, stopped_by = call.watch(limits, None, counts_memory=False)
        return output, stopped_by, call.process.poll()


def test_both_outputs_come_back_in_order(tmp_path: Path) -> None:
    output, stopped_by, code = run("pwd; echo err >&2; echo out; exit 7", tmp_path)
    assert output.decode() == f"{tmp_path}\nerr\nout\n"
    assert (stopped_by, code) == ("", 7)


def test_input_longer_than_a_pipe_arrives_whole(tmp_path: Path) -> None:
    assert run("wc -c", tmp_path, stdin=b"x" * 300_000)[0].strip() == b"300000"


def test_the_program_gets_no_variable_of_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "secret")
    assert b"SECRET_KEY" not in run("env", tmp_path)[0]


def test_a_program_that_takes_too_long_is_gone_with_what_it_started(tmp_path: Path) -> None:
    limits = SandboxLimits(wall_seconds=0.2)
    output, stopped_by, _ = run("sleep 60 & echo $!; wait", tmp_path, limits)
    assert stopped_by == "time"
    deadline = time.monotonic() + 5
    while is_alive(int(output)):
        assert time.monotonic() < deadline, "it outlived its call"


def test_too_much_output_is_cut_at_its_limit(tmp_path: Path) -> None:
    limits = SandboxLimits(wall_seconds=10, output_bytes=1000)
    output, stopped_by, _ = run("yes", tmp_path, limits)
    assert (len(output), stopped_by) == (1000, "output")


def test_a_program_that_closes_its_output_is_watched_until_it_ends(tmp_path: Path) -> None:
    program = "exec >&- 2>&-; sleep 0.1; touch done; exit 3"
    assert run(program, tmp_path) == (b"", "", 3)
    assert (tmp_path / "done").exists()


def test_a_full_workspace_stops_the_call(sleeper: Call) -> None:
    calls: list[int] = []

    def is_full(more: int) -> bool:
        calls.append(more)
        return len(calls) > 2

    assert sleeper.watch(LIMITS, is_full, counts_memory=False) == (b"", "disk")
    assert calls == [0, 0, 0]


def test_memory_is_a_limit_only_where_no_control_group_counts_it(sleeper: Call) -> None:
    little = SandboxLimits(wall_seconds=0.2, memory_bytes=1)
    assert sleeper.watch(little, None, counts_memory=True) == (b"", "memory")
    assert sleeper.watch(little, None, counts_memory=False) == (b"", "time")


@pytest.mark.parametrize(("has_group", "open_files"), [(True, 100), (False, 64)])
def test_limits_are_hard_and_fewer_files_are_open_without_a_group(
    sleeper: Call, has_group: bool, open_files: int
) -> None:
    limits = SandboxLimits(cpu_seconds=3, file_bytes=4321, open_files=100)
    set_limits(sleeper.process.pid, limits, has_group=has_group)
    for kind, value in (
        (resource.RLIMIT_CPU, 3),
        (resource.RLIMIT_FSIZE, 4321),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        assert resource.prlimit(sleeper.process.pid, kind) == (value, value)


def test_a_process_that_has_ended_is_killed_and_limited_in_peace(sleeper: Call) -> None:
    kill(sleeper.process)
    assert sleeper.process.wait() == -9
    kill(sleeper.process)
    set_limits(sleeper.process.pid, LIMITS)


def test_a_bubblewrap_that_does_not_start_tells_why() -> None:
    broken = ["/bin/sh", "-c", "echo no namespaces >&2; exit 1"]
    starting = start_confined(lambda _: broken, LIMITS, None, stdin=b"", user=None)
    with pytest.raises(InfrastructureError, match="bubblewrap did not start: no namespaces"):
        starting.__enter__()


@works
def test_a_confined_program_has_its_limits_before_it_starts() -> None:
    user = spare_user_id(0) if can_switch_user() else None
    limits = SandboxLimits(wall_seconds=10, open_files=50, loopback=False)
    program = ["/bin/sh", "-c", "ulimit -n; cat; exit 5"]
    with start_confined(
        lambda descriptors: confined(program, workspace=None, user=user, **descriptors),
        limits, None, stdin=b"given", user=user,
    ) as call:  # fmt: skip
        output, stopped_by = call.watch(limits, None, counts_memory=True)
    assert (output, stopped_by) == (b"50\ngiven", "")
    assert call.process.returncode == 5


@works
def test_calls_leave_no_descriptor_behind() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names only

    before = count()
    for _ in range(3):
        with start_confined(
            lambda descriptors: confined(["true"], workspace=None, **descriptors),
            LIMITS, None, stdin=b"x", user=None,
        ) as call:  # fmt: skip
            call.watch(LIMITS, None, counts_memory=True)
    assert count() == before
