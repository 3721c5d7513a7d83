"""Every end of an attempt has a cause, which says whether a restart can help."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.runs import causes
from sparring.runs.causes import ExitedProcess, cause_of_exit, cause_of_failure, last_lines
from sparring.runs.history import RankResult


def reported(error: str, message: str, code: int = 0) -> RankResult:
    return RankResult("failed", message, error, code)


@pytest.mark.parametrize(
    ("error", "message", "kind", "is_retried"),
    [
        ("OSError", "[Errno 28] No space left on device", "disk_full", False),
        ("OutOfMemoryError", "CUDA", "out_of_memory", True),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory", "out_of_memory", True),
        ("GuardStop", "the reward collapsed", "guard", False),
        ("SettingError", "beta: no such field", "refused", False),
        ("InfrastructureError", "the endpoint is gone", "refused", True),
        ("ZeroDivisionError", "division by zero", "exception", True),
        ("CasesBroken", "record 7:\nthe server ran out of memory", "refused", False),
    ],
)
def test_a_reported_failure_is_retried_unless_it_would_fail_again(
    tmp_path: Path, error: str, message: str, kind: str, is_retried: bool
) -> None:
    cause = cause_of_failure(reported(error, message), "at step 4", tmp_path)
    assert (cause.kind, cause.is_retried, cause.error) == (kind, is_retried, error)
    assert message in cause.message


def test_a_refusal_keeps_the_exit_code_that_the_worker_reported(tmp_path: Path) -> None:
    assert cause_of_failure(reported("SettingError", "no", 2), "", tmp_path).exit_code == 2
    assert cause_of_failure(reported("SettingError", "no"), "", tmp_path).exit_code == 100


def test_on_a_full_disk_any_failure_is_the_disks_and_is_not_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    cause = cause_of_failure(reported("ValueError", "odd"), "while saving", tmp_path)
    assert (cause.kind, cause.is_retried) == ("disk_full", False)
    exited = ExitedProcess("worker", 1, tmp_path / "log")
    untold = cause_of_exit(exited, "while saving", tmp_path, was_out_of_memory=False)
    assert (untold.kind, untold.is_retried) == ("disk_full", False)


def test_a_kill_is_blamed_on_memory_only_if_the_machine_ran_out_of_it(tmp_path: Path) -> None:
    killed = ExitedProcess("rank-1", -signal.SIGKILL, tmp_path / "log")
    poor = cause_of_exit(killed, "at step 2", tmp_path, was_out_of_memory=True)
    assert poor.kind == "out_of_memory"
    rich = cause_of_exit(killed, "at step 2", tmp_path, was_out_of_memory=False)
    assert (rich.kind, rich.message) == (
        "killed",
        "rank-1 was killed by signal 9 (SIGKILL) at step 2",
    )
    crashed = ExitedProcess("rank-1", -signal.SIGSEGV, tmp_path / "log")
    assert cause_of_exit(crashed, "", tmp_path, was_out_of_memory=True).kind == "killed"


def test_a_bad_exit_code_is_explained_by_the_last_lines_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text("".join(f"line {n}\n" for n in range(40)))
    cause = cause_of_exit(
        ExitedProcess("worker", 1, log), "while loading", tmp_path, was_out_of_memory=False
    )
    assert cause.kind == "exception"
    assert "worker ended with exit code 1 while loading" in cause.message
    assert str(log) in cause.message
    assert "  line 39" in cause.message
    assert "line 27" not in cause.message
    log.write_text("OSError: [Errno 28] No space left on device\n")
    full = cause_of_exit(ExitedProcess("worker", 1, log), "", tmp_path, was_out_of_memory=False)
    assert (full.kind, full.is_retried) == ("disk_full", False)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (None, "worker ended with an unknown exit code"),
        (3, "worker ended with exit code 3"),
        (-15, "worker was killed by signal 15 (SIGTERM)"),
        (-200, "worker was killed by signal 200"),
    ],
)
def test_an_exit_is_described_by_its_code_or_signal(code: int | None, text: str) -> None:
    assert ExitedProcess("worker", code, Path("log")).describe() == text


@settings(max_examples=30)
@given(st.lists(st.text("ab ", min_size=1, max_size=5), max_size=30), st.integers(1, 20))
def test_the_last_lines_are_the_end_of_the_log_in_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], count: int
) -> None:
    log = tmp_path_factory.getbasetemp() / "last_lines.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    expected = [f"  {line}" for line in lines[-count:]] or ["  (nothing)"]
    assert last_lines(log, count).split("\n") == expected


def test_kills_for_memory_are_added_up_over_the_groups_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causes, "memory_groups", list)
    on_machine = causes.memory_kills()
    (tmp_path / "memory.events").write_text("oom 9\noom_kill 3\n")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "memory.events").write_text("oom_kill many\n")
    monkeypatch.setattr(causes, "memory_groups", lambda: [tmp_path, tmp_path / "damaged"])
    assert causes.memory_kills() == on_machine + 3
