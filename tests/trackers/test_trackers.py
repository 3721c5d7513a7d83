from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.contracts.errors import SettingError
from sparring.trackers import trackers as room
from sparring.trackers.trackers import TrackedRun, Trackers
from tests.training import trainer

SHOWN = ("loss", "reward", "learning_rate", "pass_rate/even", "live_groups")


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))


def kept(result: Any) -> dict[str, list[tuple[int, float]]]:
    """What the run folder says, by name."""
    return {
        name: [(row["step"], row[name]) for row in result.history if name in row] for name in SHOWN
    }


def test_tensorboard_gives_back_the_numbers_of_the_run_folder(tiny_folder, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = trainer(tiny_folder, tmp_path, report_to="tensorboard").train()
    read = EventAccumulator(str(result.folder.path / "tensorboard"))
    read.Reload()
    for name, rows in kept(result).items():
        given = [(event.step, event.value) for event in read.Scalars(name)]
        assert [step for step, _ in given] == [step for step, _ in rows]
        assert [value for _, value in given] == pytest.approx([value for _, value in rows])
    assert "tensorboard --logdir" in result.summary.links["tensorboard"]


def test_trackio_gives_back_the_numbers_of_the_run_folder(tiny_folder, tmp_path):
    """In a process of its own: trackio reads its folder when it is imported."""
    import os
    import subprocess
    import sys

    script = f"""
import json, sys
from pathlib import Path
import trackio
from tests.training import trainer
result = trainer(Path({str(tiny_folder)!r}), Path({str(tmp_path)!r}), report_to="trackio",
                 project="talk", run="talk-1").train()
from trackio.sqlite_storage import SQLiteStorage
rows = SQLiteStorage.get_logs("talk", "talk-1")
print(json.dumps([result.history, rows]))
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)}, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    history, rows = json.loads(done.stdout.splitlines()[-1])
    for name in SHOWN:
        mine = {row["step"]: row[name] for row in history if name in row}
        theirs = {row["step"]: row[name] for row in rows if name in row}
        assert theirs == pytest.approx(mine), name


def test_wandb_writes_offline(tiny_folder, tmp_path):
    result = trainer(tiny_folder, tmp_path, report_to="wandb", project="talk").train()
    written = list((result.folder.path / "wandb").glob("offline-run-*/*.wandb"))
    assert written
    assert written[0].stat().st_size > 0


class Failing:
    """Works for one step."""

    link = "nowhere"

    def __init__(self, run: TrackedRun) -> None:
        self.calls = 0

    def log(self, step: int, figures: Any) -> None:
        self.calls += 1
        if self.calls > 1:
            raise ConnectionError("the tracker is down")

    def finish(self) -> None:
        raise ConnectionError("still down")


def test_a_tracker_that_fails_warns_once_and_the_run_continues(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "TRACKERS", {"failing": Failing})
    result = trainer(tiny_folder, tmp_path, report_to="failing").train()
    assert result.summary.steps == 3
    events = [json.loads(line) for line in result.folder.events.read_text().splitlines()]
    warned = [event["message"] for event in events if event["event"] == "warning"]
    assert warned == [
        "failing failed (ConnectionError: the tracker is down); the run continues without it"
    ]


def tracked(tmp_path: Path) -> TrackedRun:
    return TrackedRun("r", "r", "p", None, tmp_path, {})


def test_a_tracker_that_is_not_installed_warns_and_names_the_package(tmp_path, monkeypatch):
    def missing(_: TrackedRun) -> Any:
        raise ModuleNotFoundError("No module named 'mlflow'")

    monkeypatch.setattr(room, "TRACKERS", {"mlflow": missing})
    warned: list[str] = []
    made = Trackers(("mlflow",), tracked(tmp_path), warned.append)
    made.log(1, {"loss": 1.0})
    assert warned == ["mlflow is not installed (pip install mlflow); the run continues without it"]


def test_an_unknown_tracker_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(SettingError, match="tensorboard, trackio, wandb, mlflow"):
        Trackers(("tensorbord",), tracked(tmp_path))


class MlflowGone(Exception):
    error_code = "RESOURCE_DOES_NOT_EXIST"


class FakeMlflow:
    """MLflow weighs 824 MB and is not installed here; the calls that we make are."""

    exceptions = SimpleNamespace(MlflowException=MlflowGone)

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.runs: list[str] = []

    def set_experiment(self, name: str) -> Any:
        self.calls.append(("experiment", name))
        return SimpleNamespace(experiment_id="1")

    def get_run(self, run_id: str) -> Any:
        if run_id not in self.runs:
            raise MlflowGone(f"Run '{run_id}' not found")
        return SimpleNamespace(info=SimpleNamespace(experiment_id="1", lifecycle_stage="active"))

    def start_run(self, run_name: str = "", run_id: str = "") -> Any:
        if not run_id:
            self.runs.append(f"id-{len(self.runs)}")
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id or self.runs[-1]))

    def log_params(self, params: Any) -> None:
        self.calls.append(("params", params))

    def log_metrics(self, figures: Any, step: int) -> None:
        self.calls.append((step, figures))

    def get_tracking_uri(self) -> str:
        return "file:mlruns"

    def end_run(self) -> None:
        self.calls.append("end")


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> FakeMlflow:
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return fake


def test_metrics_have_names_that_mlflow_accepts(tmp_path, mlflow):
    made = Trackers(("mlflow",), tracked(tmp_path))
    made.log(3, {"pass_rate/a b": 0.5, "name": "text", "flag": True})
    made.finish()
    assert mlflow.calls[-2:] == [(3, {"pass_rate/a_b": 0.5}), "end"]
    assert made.links() == {"mlflow": "file:mlruns: p, run id-0"}


def test_a_resumed_run_continues_its_mlflow_run_with_the_parameters_it_has(tmp_path, mlflow):
    links = [Trackers(("mlflow",), tracked(tmp_path)).links() for _ in range(2)]
    assert links[0] == links[1]
    assert [each for each in mlflow.calls if each[0] == "params"] == [("params", {})]


def test_an_mlflow_run_that_is_gone_is_replaced(tmp_path, mlflow):
    Trackers(("mlflow",), tracked(tmp_path))
    mlflow.runs[:] = ["another"]
    assert Trackers(("mlflow",), tracked(tmp_path)).links()["mlflow"].endswith("run id-1")
