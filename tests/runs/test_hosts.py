"""Two hosts, each in a network of its own: one is killed, the link between them is cut.

Opt in with `pytest -m hosts`, as root: it makes two network namespaces and takes them away again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sparring.contracts.specs import PolicySpec, Supervision
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.events import append_state
from sparring.run_folder.files import read_lines
from sparring.runs.lifecycle import RunState
from tests.runs.network import ROOT, Network
from tests.supervised import completed, history, wait_for
from tests.training import weights_digest

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces take root"),
]
TALK = f"{ROOT}/tests/jobs/train_file.py:Talk"


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


def trained(network: Network, runs: Path, name: str, tiny: Path) -> RunFolder:
    folder = RunFolder(runs / name)
    spec = TrainSpec(
        target=TALK,
        environment="talk",
        policy=PolicySpec(model=str(tiny)),
        settings=TrainSettings(
            max_steps=40,
            save_steps=4,
            max_completion_length=24,
            learning_rate=1e-3,
            validation_cases=0,
            cases_per_batch=1,
        ),
        supervision=Supervision(hang_timeout=8, start_timeout=120),
        sources={"hang_timeout": "the test"},
        nodes=2,
        rendezvous="10.77.0.1:29511",
    )
    folder.create(spec.model_dump(mode="json"))
    append_state(folder, RunState.QUEUED, author="test")
    network.start(0, "sparring.runs.supervisor", str(folder.path), "1")
    network.start(1, "sparring.runs.hosts", str(folder.path), "1")
    return folder


@pytest.fixture(scope="module")
def undisturbed(network, tiny_folder, tmp_path_factory):
    return completed(trained(network, tmp_path_factory.mktemp("whole"), "whole", tiny_folder))


def restarts(folder: RunFolder) -> list[str]:
    return [event["cause"] for event in read_lines(folder.events) if event["event"] == "restart"]


def test_a_killed_host_that_joins_again_is_part_of_the_next_worker_group(
    network, undisturbed, tiny_folder, tmp_path
):
    folder = trained(network, tmp_path, "killed", tiny_folder)
    wait_for(lambda: list_checkpoints(folder.checkpoints))
    for process in psutil.process_iter():
        line = " ".join(process.cmdline()) if process.status() != "zombie" else ""
        is_host = "sparring.runs.hosts" in line and str(folder.path) in line
        if is_host:
            for each in [*process.children(recursive=True), process]:
                each.kill()
    wait_for(lambda: restarts(folder), 60)
    network.start(1, "sparring.runs.hosts", str(folder.path), "1")
    completed(folder)
    assert history(folder).attempt.number == 2
    assert weights_digest(folder) == weights_digest(undisturbed)


def test_a_cut_link_is_noticed_in_time_and_the_worker_group_restarted(
    network, undisturbed, tiny_folder, tmp_path
):
    folder = trained(network, tmp_path, "cut", tiny_folder)
    wait_for(lambda: list_checkpoints(folder.checkpoints))
    network.cut()
    try:
        cut_at = time.monotonic()
        wait_for(lambda: restarts(folder), 60)
        assert time.monotonic() - cut_at < 8 + 5
        assert restarts(folder) == ["hung"]
    finally:
        network.mend()
    completed(folder)
    assert weights_digest(folder) == weights_digest(undisturbed)
