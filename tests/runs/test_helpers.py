"""Helpers: processes that are started again, until they fail too often before they worked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.files import read_lines
from sparring.runs import helpers as module
from sparring.runs.causes import ExitedProcess
from sparring.runs.helpers import Helper, Helpers
from sparring.runs.processes import marked
from sparring.runs.worker_group import mark_of
from tests.sampling_servers import COMMAND
from tests.supervised import completed, ended, start, wait_for
from tests.talker import TARGET
from tests.training import weights_digest

ROOT = Path(__file__).resolve().parents[2]


class Fleet:
    """Starts fake processes, and ends them when a test says so."""

    def __init__(self) -> None:
        self.started: list[Any] = []

    def start(self, name: str, _: Sequence[str]) -> Any:
        process = SimpleNamespace(name=name, exited=None, close=lambda: None)
        self.started.append(process)
        return process

    def end(self, code: int = -9) -> None:
        last = self.started[-1]
        last.exited = ExitedProcess(last.name, code, Path("x.log"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    now = SimpleNamespace(value=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: now.value)
    return now


def test_a_helper_that_ends_is_started_again_after_a_pause(clock: Any) -> None:
    fleet = Fleet()
    helpers = Helpers(fleet.start)
    helpers.start([Helper("player-0", ["x"])])
    fleet.end()
    (message,) = helpers.look()
    assert "player-0 was killed by signal 9" in message
    assert helpers.members == []
    clock.value += 0.4
    helpers.look()
    assert len(fleet.started) == 1
    clock.value += 0.2
    assert helpers.look() == []
    assert len(fleet.started) == 2


def test_a_helper_that_never_works_is_lost(clock: Any) -> None:
    fleet = Fleet()
    helpers = Helpers(fleet.start)
    helpers.start([Helper("player-0", ["x"])])
    for _ in range(3):
        assert helpers.lost is None
        fleet.end(1)
        helpers.look()
        clock.value += 5
        helpers.look()
    assert helpers.lost is not None
    assert helpers.lost.code == 1


def test_a_helper_that_is_killed_while_it_loads_gets_more_tries(clock: Any) -> None:
    fleet = Fleet()
    helpers = Helpers(fleet.start)
    helpers.start([Helper("player-0", ["x"])])
    for _ in range(module.MAX_KILLS):
        assert helpers.lost is None
        fleet.end(-9)
        helpers.look()
        clock.value += 61
        helpers.look()
    assert helpers.lost is not None
    assert len(fleet.started) == module.MAX_KILLS + 1


def test_a_player_whose_heart_has_beaten_may_end_any_number_of_times(
    clock: Any, tmp_path: Path
) -> None:
    fleet, heartbeat = Fleet(), tmp_path / "player-0.json"
    helpers = Helpers(fleet.start)
    helpers.start([Helper("player-0", ["x"], heartbeat=heartbeat)])
    for number in range(10):
        heartbeat.write_text(str(number))
        fleet.end()
        helpers.look()
        clock.value += 2
        helpers.look()
    assert helpers.lost is None
    assert len(fleet.started) == 11


def test_a_successor_starts_only_the_helpers_that_are_missing() -> None:
    fleet = Fleet()
    alive = SimpleNamespace(name="server-0", exited=None)
    helpers = Helpers(fleet.start)
    helpers.adopt([Helper("server-0", ["x"], 1), Helper("server-1", ["x"], 2)], {"server-0": alive})
    assert [each.name for each in helpers.members] == ["server-0", "server-1"]
    assert [each.name for each in fleet.started] == ["server-1"]


# ------------------------------------------------------------------ under a real supervisor


def create(
    runs: Path, name: str, tiny: Path, sampling: dict[str, Any], **options: Any
) -> RunFolder:
    settings: dict[str, Any] = {
        "max_steps": 4,
        "save_steps": 1,
        "max_completion_length": 8,
        "max_turns": 2,
        "mask_truncated_completions": False,
        "learning_rate": 5e-3,
        "validation_cases": 0,
        "cases_per_batch": 1,
        "gradient_accumulation_steps": 1,
        "replacement_groups": 0,
        "lora": True,
        "sampling": sampling,
        "guards": {"no_tool_call": "off", "dead_groups": "off"},
    }
    folder = RunFolder(runs / name)
    spec = TrainSpec(
        target=TARGET,
        policy=PolicySpec(model=str(tiny)),
        settings=TrainSettings(**{**settings, **options}),
    )
    folder.create(spec.model_dump(mode="json"))
    return folder


def servers_of(folder: RunFolder) -> list[Any]:
    return [each for each in marked(mark_of(folder)) if COMMAND[-1] in each.cmdline()]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_server_that_is_killed_is_started_again_and_the_run_ends_alike(
    tiny_folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    one = create(tmp_path, "one", tiny_folder, {"servers": 1, "command": COMMAND})
    completed(start(one))
    two = start(create(tmp_path, "two", tiny_folder, {"servers": 2, "command": COMMAND}))
    wait_for(lambda: list_checkpoints(two.checkpoints))
    servers_of(two)[0].kill()
    completed(two)
    warnings = [event for event in read_lines(two.events) if event["event"] == "warning"]
    assert any("was killed by signal 9" in event["message"] for event in warnings)
    assert weights_digest(two) == weights_digest(one)
    assert not servers_of(two)


@pytest.mark.timeout(120)
@pytest.mark.nightly
def test_a_server_that_cannot_start_fails_the_run_with_its_log(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, "-c", "raise SystemExit('no such accelerator')"]
    folder = start(create(tmp_path, "run", tiny_folder, {"servers": 1, "command": command}))
    assert "no such accelerator" in ended(folder).message
