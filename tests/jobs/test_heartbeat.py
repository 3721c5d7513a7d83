"""A worker whose run is taken away ends itself."""

import shutil
import subprocess
import sys
import textwrap
import time

import pytest

from sparring.jobs.heartbeat import SUPERSEDED, Heartbeat
from sparring.run_folder import RunFolder

PROGRAM = """
    import sys, time
    from pathlib import Path
    from sparring.run_folder import RunFolder
    from sparring.jobs.heartbeat import Heartbeat
    Heartbeat(RunFolder(Path(sys.argv[1])), 0, 1).begin()
    print("on", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("loss", ["gone", "another"])
def test_a_worker_ends_when_its_folder_is_gone_or_another(tmp_path, loss):
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.create({"format": 1, "kind": "train"})
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder.path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    worker.stdout.readline()
    (tmp_path / "runs").rename(tmp_path / "moved")
    if loss == "another":
        folder.create({"format": 1, "kind": "train"})
    assert worker.wait(timeout=30) == SUPERSEDED
    if loss == "gone":
        assert not (tmp_path / "runs").exists()
    else:
        assert not folder.rank_heartbeat(0).exists()
    shutil.rmtree(tmp_path / "moved")


def test_a_beat_makes_no_folder_that_was_taken_away(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.create({"format": 1, "kind": "train"})
    heartbeat = Heartbeat(folder, 0, None)
    shutil.rmtree(folder.path)
    heartbeat.note("playing")
    time.sleep(0.06)
    heartbeat.note("playing")
    assert not folder.path.exists()


def test_a_rank_makes_its_heartbeat_before_rank_0_makes_the_folder(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "one")
    heartbeat = Heartbeat(folder, 1, None)
    folder.create({"format": 1, "kind": "train"})
    heartbeat.begin()
    heartbeat.end()
    assert folder.rank_heartbeat(1).exists()
