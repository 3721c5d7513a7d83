"""`sparring train`, as a process: what people and programs see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TALK = f"{ROOT}/tests/jobs/train_file.py:Talk"
COMMAND = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def sparring(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=180,
        check=False, env=ENVIRONMENT,
    )  # fmt: skip


def options(tiny_folder: Path, steps: int) -> list[str]:
    given = {"model": tiny_folder, "max-steps": steps, "max-completion-length": 24}
    given |= {"learning-rate": 1e-3, "save-steps": 2}
    parts = [str(part) for name, value in given.items() for part in (f"--{name}", value)]
    return [*parts, "--no-prove"]


@pytest.mark.nightly
def test_a_training_is_followed_stopped_and_resumed(tmp_path, tiny_folder):
    command = [*COMMAND, "train", TALK, *options(tiny_folder, 12), "--set", "beta=0.01"]
    running = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=ENVIRONMENT,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/checkpoints/step-*/manifest.json")):
        assert time.monotonic() < deadline
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, output = running.communicate(timeout=180)
    assert running.returncode == 103, output
    assert "/12 · loss" in output
    assert "sparring run resume train-file-" in output

    (folder,) = (tmp_path / "runs").glob("[!.]*")
    assert json.loads((folder / "spec.json").read_text())["settings"]["beta"] == 0.01
    done = sparring("run", "resume", folder.name, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for shown in ("12 steps of 4 cases", "validation at step 12", "weights step-"):
        assert shown in " ".join(done.stdout.split())
    listed = json.loads(sparring("rollout", "list", folder.name, "--json", folder=tmp_path).stdout)
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    played = {row["step"]: row["rollouts"] for row in steps if "loss" in row}
    assert set(played) == set(range(1, 13))
    assert listed["total"] == sum(played.values()) >= 12 * 16
    again = sparring("run", "resume", folder.name, "--json", folder=tmp_path)
    assert json.loads(again.stdout)["steps"] == 12


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--set", "checkpoint_steps=5"], "checkpoint_steps: use save_steps"),
        (["--set", "learning_rat=5"], "did you mean learning_rate"),
        (["--set", "top_p=0.9"], "temperature only"),
        (["--set", "nonsense"], "--set needs NAME=VALUE"),
        (["--nodes", "2"], "rendezvous address"),
    ],
)
def test_a_wrong_setting_is_refused_before_a_run_is_made(tmp_path, arguments, advice):
    done = sparring("train", TALK, *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert advice in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.nightly
def test_a_wrong_field_of_the_engine_fails_the_run_with_what_to_use(tmp_path, tiny_folder):
    wrong = ["--set", "engine.los_type=grpo"]
    done = sparring("train", TALK, *options(tiny_folder, 2), *wrong, "--json", folder=tmp_path)
    error = json.loads(done.stdout)["error"]
    assert error["type"] == "SettingError"
    assert "did you mean loss_type" in error["message"]
