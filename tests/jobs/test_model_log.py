"""The log of a model has a line for each rollout, and one that says how the play ended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.rollouts import Ending
from sparring.jobs.model_log import ModelLog, log_name
from sparring.player import Played
from sparring.run_folder import RunFolder
from tests.rollouts import rollout


@settings(max_examples=50)
@given(st.integers(0, 99), st.text())
def test_any_model_has_a_log_name_that_stays_in_its_folder(number: int, model: str) -> None:
    name = log_name(number, model)
    assert re.fullmatch(rf"{number + 1}-[A-Za-z0-9.-]{{0,60}}", name)


def test_models_of_the_same_name_have_different_logs() -> None:
    assert log_name(0, "qwen/qwen3-8b") == "1-qwen-qwen3-8b"
    assert log_name(1, "qwen/qwen3-8b") == "2-qwen-qwen3-8b"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "check")
    made.create({"format": 1, "kind": "check"})
    return made


def lines(folder: RunFolder) -> list[str]:
    return (folder.path / "logs" / "1-big.log").read_text().splitlines()


def test_each_rollout_is_one_line_at_once_whatever_its_detail(folder: RunFolder) -> None:
    log = ModelLog(folder, "1-big", "big", 1.0)
    log.write(Played(rollout("yes", reward=0.5), 1.25))
    broken = rollout(ending=Ending.INFRASTRUCTURE_ERROR, detail="down\nTraceback:\n  line 1")
    log.write(Played(broken, 0.0))
    assert lines(folder) == [
        "c.0.0 answered, reward 0.5, 1.2 s",
        "c.0.0 infrastructure_error, unscored, 0.0 s down Traceback: line 1",
    ]


def test_a_play_that_ends_well_says_so(folder: RunFolder) -> None:
    log = ModelLog(folder, "1-big", "big", 1.0)
    with log.recording(is_required=True):
        pass
    assert log.message == ""
    assert re.fullmatch(r"big: done, \d+\.\d s", lines(folder)[-1])


def test_a_timeout_ends_the_play_with_the_count_of_its_rollouts(folder: RunFolder) -> None:
    log = ModelLog(folder, "1-big", "big", 0.25)
    with log.recording(is_required=True):
        log.write(Played(rollout("yes", reward=1.0), 1.0))
        raise TimeoutError
    assert log.message == "stopped after 0.25 minutes with 1 rollouts done"
    assert log.message in lines(folder)[-1]


def test_an_error_is_recorded_and_raised_only_where_the_model_is_required(
    folder: RunFolder,
) -> None:
    log = ModelLog(folder, "1-big", "big", 1.0)
    with log.recording(is_required=False):
        raise InfrastructureError("no reply")
    assert log.message == "InfrastructureError: no reply"
    assert "no reply" in lines(folder)[-1]
    required = ModelLog(folder, "1-big", "big", 1.0)
    with (
        pytest.raises(InfrastructureError, match="no reply"),
        required.recording(is_required=True),
    ):
        raise InfrastructureError("no reply")
    assert "big: InfrastructureError: no reply" in lines(folder)[-1]


def test_a_mistake_in_the_code_is_never_swallowed(folder: RunFolder) -> None:
    log = ModelLog(folder, "1-big", "big", 1.0)
    with pytest.raises(KeyError), log.recording(is_required=False):
        raise KeyError("typo")
    (line,) = lines(folder)
    assert "stopped by KeyError" in line


def test_a_resumed_model_appends_to_its_log(folder: RunFolder) -> None:
    for _ in range(2):
        with ModelLog(folder, "1-big", "big", 1.0).recording(is_required=True):
            pass
    assert len(lines(folder)) == 2
