"""An operator that polls too often gets its last answer again; news is answered at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.operations import rate_limits
from sparring.operations.rate_limits import (
    LEAST_SECONDS,
    MOST_SECONDS,
    last_answer,
    seconds_between,
    store_answer,
)
from sparring.run_folder import RunFolder
from sparring.runs.history import History, StopRequest
from sparring.runs.lifecycle import RunState
from sparring.runs.status import RunStatus
from tests.operations.handmade import agent_in, owner_of


def status(seconds: Any = 8.0, **history: Any) -> RunStatus:
    facts = {"state": RunState.RUNNING, **history}
    return RunStatus(History(**facts), {"metrics": {"seconds": seconds}})


@given(st.none() | st.floats(0, 10_000))
def test_the_time_between_polls_is_about_one_step_within_its_limits(step: float | None) -> None:
    wanted = seconds_between(status(step))
    assert LEAST_SECONDS <= wanted <= MOST_SECONDS
    if step is not None and LEAST_SECONDS <= step <= MOST_SECONDS:
        assert wanted == step


def test_polls_of_an_ended_run_are_rare_and_those_of_a_run_without_metrics_frequent() -> None:
    assert seconds_between(status(8.0, state=RunState.COMPLETED)) == MOST_SECONDS
    assert seconds_between(RunStatus(History())) == LEAST_SECONDS


def test_an_answer_is_repeated_until_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, caller = RunFolder(tmp_path / "runs" / "one"), agent_in(tmp_path)
    now = [1000.0]
    monkeypatch.setattr(rate_limits, "since_boot", lambda: now[0])
    assert last_answer(folder, status(), caller) is None
    store_answer(folder, status(), caller, {"step": 3})
    now[0] += 3
    repeated = {"step": 3, "is_repeated": True, "next_check_seconds": 5.0}
    assert last_answer(folder, status(), caller) == repeated
    now[0] += 5
    assert last_answer(folder, status(), caller) is None


def test_an_answer_from_before_a_reboot_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, caller = RunFolder(tmp_path / "runs" / "one"), agent_in(tmp_path)
    store_answer(folder, status(), caller, {"step": 3})
    monkeypatch.setattr(rate_limits, "boot_id", lambda: "another boot")
    assert last_answer(folder, status(), caller) is None


@pytest.mark.parametrize(
    "news",
    [
        {"state": RunState.STOPPING},
        {"life": 2},
        {"restarts": 1},
        {"warning": "slow"},
        {"stop": StopRequest("ada")},
    ],
)
def test_news_is_answered_at_once(tmp_path: Path, news: dict[str, Any]) -> None:
    folder, caller = RunFolder(tmp_path / "runs" / "one"), agent_in(tmp_path)
    store_answer(folder, status(), caller, {"step": 3})
    assert last_answer(folder, status(), caller) is not None
    assert last_answer(folder, status(**news), caller) is None


def test_a_file_that_cannot_be_read_or_written_delays_nobody(tmp_path: Path) -> None:
    folder, caller = RunFolder(tmp_path / "runs" / "one"), agent_in(tmp_path)
    store_answer(folder, status(), caller, {"step": 3})
    answers = tmp_path / "runs" / ".sparring" / "answers"
    (path,) = answers.iterdir()
    for text in ("", "{}", "[]", '{"since_boot": "x"}'):
        path.write_text(text)
        assert last_answer(folder, status(), caller) is None
    path.unlink()
    answers.rmdir()
    answers.write_text("not a folder")
    store_answer(folder, status(), caller, {"step": 3})
    assert last_answer(folder, status(), caller) is None


def test_every_operator_and_every_run_has_its_own_last_answer(tmp_path: Path) -> None:
    one, two = (RunFolder(tmp_path / "runs" / name) for name in ("one", "two"))
    caller = agent_in(tmp_path)
    store_answer(one, status(), caller, {"step": 3})
    assert last_answer(one, status(), caller) is not None
    assert last_answer(two, status(), caller) is None
    assert last_answer(one, status(), replace(caller, name="another")) is None


def test_the_owners_answers_are_neither_stored_nor_repeated(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "one")
    store_answer(folder, status(), owner_of(tmp_path), {"step": 3})
    assert last_answer(folder, status(), owner_of(tmp_path)) is None
    assert not (tmp_path / "runs").exists()
