from __future__ import annotations

import time

import pytest

from sparring.runs.history import History
from sparring.runs.lifecycle import RunState
from sparring.runs.status import RunStatus, time_left


def status(**beat) -> RunStatus:
    history = History(state=RunState.RUNNING, started=0.0, updated=100.0)
    return RunStatus(history=history, progress=beat)


def test_the_time_left_is_that_of_the_heartbeat_less_its_age():
    now = time.time()
    found = time_left(status(rollouts=48, total=192, seconds_left=600.0, time=now - 60))
    assert found is not None
    assert 530 < found.seconds <= 540
    assert found.basis == "144 rollouts left, at the pace so far"


@pytest.mark.parametrize("left", [None, 0.0, 30.0])
def test_a_time_that_is_unknown_or_over_is_no_estimate(left):
    beat = {"step": 1, "steps": 5, "seconds_left": left, "time": time.time() - 60}
    assert time_left(status(**beat)) is None


def test_a_run_of_python_counts_from_its_beginning_to_its_last_sign_of_life():
    history = History(created=100.0, updated=110.0, pid=7)
    assert RunStatus(history=history, progress={"time": 160.0}).seconds == 60
    assert RunStatus(history=history).seconds == 10
