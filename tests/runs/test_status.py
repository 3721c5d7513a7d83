from __future__ import annotations

import pytest

from sparring.runs.history import History
from sparring.runs.lifecycle import RunState
from sparring.runs.status import RunStatus, time_left


def status(**beat) -> RunStatus:
    history = History(state=RunState.RUNNING, started=0.0, updated=100.0)
    return RunStatus(history=history, progress=beat)


@pytest.mark.parametrize(
    "beat",
    [
        {"rollouts": 128, "total": 192, "doing": "timing"},
        {"rollouts": 192, "total": 192, "doing": "playing"},
        {"rollouts": 0, "total": 192},
    ],
)
def test_rollouts_that_nobody_plays_are_no_ground_for_an_estimate(beat):
    assert time_left(status(**beat), []) is None


@pytest.mark.parametrize("activity", ["playing", "playing the base model", ""])
def test_rollouts_to_play_are(activity):
    found = time_left(status(rollouts=48, total=192, doing=activity), [])
    assert found is not None
    assert "144 rollouts left" in found.basis


def test_a_run_of_python_counts_from_its_beginning_to_its_last_sign_of_life():
    history = History(created=100.0, updated=110.0, pid=7)
    assert RunStatus(history=history, progress={"time": 160.0}).seconds == 60
    assert RunStatus(history=history).seconds == 10
