"""Agents with several rows per rollout are trained for real, and resume exactly after kill -9."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutLog
from tests.jobs.real_agents import KINDS, warmed
from tests.training import weights_digest

ROOT = Path(__file__).resolve().parents[2]
ROWS = {"handoffs": 2, "nested": 2, "clock": 2, "compacted": 3, "user": 1, "mcp": 1}


def start(kind: str, model: Path, runs: Path, run: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.jobs.real_agents", kind, model, runs, run]
    return subprocess.Popen([str(part) for part in command], cwd=ROOT)


def trained(kind: str, model: Path, runs: Path) -> RunFolder:
    """A run that was not disturbed, and learned from all rows of most rollouts."""
    assert start(kind, model, runs, "whole").wait() == 0
    whole = RunFolder(runs / "whole")
    played = [from_record(each) for each in RolloutLog(whole.rollouts()).records()]
    complete = [each for each in played if len(each.rows) >= ROWS[kind]]
    assert len(complete) > len(played) / 2, [each.ending for each in played]
    assert {row.versions[0][0] for each in complete for row in each.rows} == {0, 1, 2, 3}
    return whole


@pytest.mark.timeout(900)
@pytest.mark.nightly
def test_agents_that_hand_off_learn_from_every_row(tiny_folder: Path, tmp_path: Path) -> None:
    trained("handoffs", warmed("handoffs", tiny_folder, tmp_path), tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_with_several_rows_trains_and_resumes_exactly_after_a_kill(
    kind: str, tiny_folder: Path, tmp_path: Path
) -> None:
    model = warmed(kind, tiny_folder, tmp_path)
    whole = trained(kind, model, tmp_path)
    killed = RunFolder(tmp_path / "killed")
    process = start(kind, model, tmp_path, "killed")
    while process.poll() is None and not (killed.checkpoints / "step-2").exists():
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert start(kind, model, tmp_path, "killed").wait() == 0
    assert weights_digest(killed) == weights_digest(whole)
