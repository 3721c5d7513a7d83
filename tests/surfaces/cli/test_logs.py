"""A log is printed from its end and followed, over restarts, until its run has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.operations.run_views import LogQuery
from sparring.runs.lifecycle import RunState
from sparring.surfaces.cli import logs
from sparring.surfaces.cli.callers import reader
from tests.surfaces.cli.terminal import TRAIN, copy_samples


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = copy_samples(tmp_path / "porter", monkeypatch)
    monkeypatch.chdir(made)
    return made


def test_a_log_is_printed_and_its_path_beside_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = project / "runs" / TRAIN / "logs" / "attempt-1" / "worker.log"
    log.write_text("".join(f"line {n}\x1b\n" for n in range(50)))
    request = LogQuery(run=TRAIN, process="worker", lines=3)
    logs.run_logs(request, reader(), as_json=False, follow=True)
    printed = capsys.readouterr()
    assert printed.out.split() == [
        "line", "47\\x1b", "line", "48\\x1b", "line", "49\\x1b",
    ]  # fmt: skip
    assert str(log) in printed.err


def test_following_a_file_misses_no_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")

    def is_over() -> bool:
        with log.open("a") as file:
            file.write("the last line\n")
        return True

    logs._follow_file(log, len("before\n"), is_over)
    assert capsys.readouterr().out == "the last line\n"


def test_following_a_log_continues_with_the_next_attempt(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project / "runs" / TRAIN / "logs"
    (folder / "attempt-1" / "worker.log").write_text("first\n")
    original = logs.run_status

    def restart_meanwhile(query: Any, caller: Any) -> Any:
        (folder / "attempt-2").mkdir()
        (folder / "attempt-2" / "worker.log").write_text("second\n")
        monkeypatch.setattr(logs, "run_status", original)
        return original(query, caller).model_copy(update={"state": RunState.RUNNING})

    monkeypatch.setattr(logs, "run_status", restart_meanwhile)
    request = LogQuery(run=TRAIN, process="worker", lines=3)
    logs.run_logs(request, reader(), as_json=False, follow=True)
    printed = capsys.readouterr()
    assert printed.out.split() == ["first", "second"]
    assert "attempt-2" in printed.err
