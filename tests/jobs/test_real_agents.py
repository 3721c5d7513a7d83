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
ROWS = {"handoffs": 2, "nested": 2, "clock": 2, "compacted": 3, "user": 1}
SLOW = [pytest.param("handoffs", marks=pytest.mark.slow)]
NIGHTLY = [pytest.param(kind, marks=pytest.mark.nightly) for kind in KINDS if kind != "handoffs"]


def start(kind: str, model: Path, runs: Path, run: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.jobs.real_agents", kind, model, runs, run]
    return subprocess.Popen([str(part) for part in command], cwd=ROOT)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [*SLOW, *NIGHTLY])
def test_it_learns_from_every_row_and_resumes_exactly_after_kill_9(
    kind: str, tiny_folder: Path, tmp_path: Path
) -> None:
    model = warmed(kind, tiny_folder, tmp_path)
    assert start(kind, model, tmp_path, "whole").wait() == 0
    whole = RunFolder(tmp_path / "whole")
    played = [from_record(each) for each in RolloutLog(whole.rollouts()).records()]
    complete = [each for each in played if len(each.rows) >= ROWS[kind]]
    assert len(complete) > len(played) / 2, [each.ending for each in played]
    assert {row.versions[0][0] for each in complete for row in each.rows} == {0, 1, 2, 3}

    killed = RunFolder(tmp_path / "killed")
    process = start(kind, model, tmp_path, "killed")
    while process.poll() is None and not (killed.checkpoints / "step-2").exists():
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert start(kind, model, tmp_path, "killed").wait() == 0
    assert weights_digest(killed) == weights_digest(whole)
