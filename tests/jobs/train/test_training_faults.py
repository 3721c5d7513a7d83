"""Whatever kills a training run, it ends with the weights of one that nobody disturbed: LoRA, KL to
the warm start, ECHO, replaced groups and remembered difficulty all on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).resolve().parents[3]


def nursery(warm_folder: Path, runs: Path, scenario: str) -> Any:
    command = [sys.executable, "-m", "tests.jobs.fault_nursery", warm_folder, runs, scenario]
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shown = json.loads(done.stdout.splitlines()[-1])
    # Or it would not have been everything that was on.
    assert shown["calls"] > 0.5
    assert shown["env_loss"]
    assert shown["replaced"] > 0
    return shown


@pytest.mark.nightly
def test_a_training_killed_in_a_warm_start_or_a_save_ends_with_the_same_weights(
    warm_folder, tmp_path
):
    shown = nursery(warm_folder, tmp_path, "few saves")
    assert len(shown["ended"]) == 3
    assert set(shown["ended"].values()) == {shown["undisturbed"]}, shown


@pytest.mark.nightly
def test_a_training_killed_at_each_point_of_a_save_ends_with_the_same_weights(
    warm_folder, tmp_path
):
    shown = nursery(warm_folder, tmp_path, "saves")
    assert len(shown["ended"]) == 8
    assert set(shown["ended"].values()) == {shown["undisturbed"]}, shown


@pytest.mark.nightly
def test_a_training_killed_twenty_times_ends_with_the_same_weights(warm_folder, tmp_path):
    shown = nursery(warm_folder, tmp_path, "random")
    assert shown["ended"].pop("kills") >= 20
    assert set(shown["ended"].values()) == {shown["undisturbed"]}, shown


@pytest.mark.nightly
def test_sigterm_saves_at_the_next_boundary_and_resuming_is_exact(warm_folder, tmp_path):
    shown = nursery(warm_folder, tmp_path, "terminate")
    ended = shown["ended"]
    assert ended["exit"] == 0
    assert ended["event"] == "stopped"
    assert ended["saved"]
    assert ended["before_the_end"]
    assert ended["digest"] == shown["undisturbed"]
