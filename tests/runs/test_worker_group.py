"""Several processes: real ranks under a supervisor, on one host and on two that share a folder."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.run_folder.events import append_event
from sparring.run_folder.files import read_json, read_lines
from sparring.runs.lifecycle import RunState
from tests.jobs.porter import BELL, DEMONSTRATIONS
from tests.supervised import completed, ended, history, ranks_of, start, wait_for
from tests.training import weights_digest

pytestmark = [pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]
SETTINGS: dict[str, Any] = {
    "max_steps": 4,
    "save_steps": 2,
    "max_completion_length": 128,
    "max_turns": 2,
    "mask_truncated_completions": False,
    "learning_rate": 3e-4,
    "validation_cases": 8,
    "cases_per_batch": 1,
    "beta": 0.1,
    "echo_coefficient": 0.05,
    "warm_start": {"source": str(DEMONSTRATIONS), "num_train_epochs": 1},
}


# One thread each: a supervisor gives that to ranks that share a host and not to one alone, and sums
# of floats depend on how many threads shared them.
OF_EVERY_RANK = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module", autouse=True)
def _alike_on_every_host():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in OF_EVERY_RANK.items():
            patch.setenv(name, value)
        yield


def create(runs: Path, name: str, tiny: Path, settings: Any = None, **spec: Any) -> RunFolder:
    folder = RunFolder(runs / name)
    made = TrainSpec(
        target=f"{BELL}/bell.py:Bell",
        policy=PolicySpec(model=str(tiny)),
        settings=TrainSettings(**{**SETTINGS, **(settings or {})}),
        **spec,
    )
    folder.create(made.model_dump(mode="json"))
    return folder


@pytest.fixture(scope="module")
def model(warm_folder):
    return warm_folder


@pytest.fixture(scope="module")
def undisturbed(_alike_on_every_host, model, tmp_path_factory):
    """The digest of a training run by two ranks that nobody disturbed, with everything on."""
    folder = create(tmp_path_factory.mktemp("ranks"), "whole", model, processes=2)
    return completed(start(folder))


def played_besides(row: dict[str, Any]) -> float:
    """Groups that were replaced, or played without a gradient."""
    names = [name for name in row if name.startswith(("replaced/", "failed_replacements/"))]
    return sum(row[name] for name in names)


@pytest.mark.nightly
def test_two_ranks_play_their_shares_into_shards_of_their_own(undisturbed):
    for rank in (0, 1):
        assert (undisturbed.rollouts(rank) / "00000.jsonl").stat().st_size
        assert (undisturbed.validation_rollouts(rank) / "00000.jsonl").stat().st_size
    rows = [row for row in read_lines(undisturbed.metrics) if "loss" in row]
    assert [row["rollouts"] - 4 * played_besides(row) for row in rows] == [16] * 4
    assert all(row["env_loss"] > 0 and row["kl"] >= 0 for row in rows)
    validated = [row for row in read_lines(undisturbed.metrics) if "validation/reward" in row]
    assert [row["validation/rollouts"] for row in validated] == [8] * 3
    manifest = list_checkpoints(undisturbed.checkpoints)[-1].manifest
    assert manifest["world_size"] == 2


def test_a_killed_rank_is_started_again_with_all_and_ends_alike(undisturbed, model, tmp_path):
    folder = start(create(tmp_path, "killed", model, processes=2))
    wait_for(lambda: list_checkpoints(folder.checkpoints))
    ranks_of(folder)[1].send_signal(signal.SIGKILL)
    completed(folder)
    assert history(folder).attempt.number == 2
    restart = next(event for event in read_lines(folder.events) if event["event"] == "restart")
    assert restart["cause"] == "killed"
    assert "rank-1 was killed by signal 9 (SIGKILL) at step" in restart["message"]
    assert weights_digest(folder) == weights_digest(undisturbed)


@pytest.mark.nightly
def test_two_hosts_that_meet_end_like_two_ranks_on_one(undisturbed, model, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    folder = create(tmp_path, "hosts", model, nodes=2, rendezvous=address)
    start(folder)
    joined = join(folder)
    completed(folder)
    assert joined.wait(30) == 0
    assert weights_digest(folder) == weights_digest(undisturbed)


@pytest.mark.nightly
def test_asking_for_two_and_getting_one_fails_at_the_start(model, tmp_path):
    folder = create(tmp_path, "alone", model, processes=2)
    command = [sys.executable, "-m", "sparring.jobs", str(folder.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert "2 processes were requested, but 1 started" in done.stderr
    assert not folder.checkpoints.exists()


@pytest.mark.nightly
def test_a_changed_world_size_is_not_resumed(undisturbed, model, tmp_path):
    folder = create(tmp_path, "other", model, processes=1)
    undisturbed.checkpoints.rename(folder.checkpoints)
    try:
        assert "world size (2 → 1)" in ended(start(folder)).message
    finally:
        folder.checkpoints.rename(undisturbed.checkpoints)


@pytest.mark.nightly
def test_ranks_that_are_refused_say_why_once_and_are_not_started_again(model, tmp_path):
    folder = create(tmp_path, "wrong", model, {"engine": {"los_type": "x"}}, processes=2)
    found = ended(start(folder))
    assert (found.state, found.cause, found.attempt.number) == (RunState.FAILED, "refused", 1)
    assert "did you mean loss_type" in found.message


@pytest.mark.nightly
def test_eight_rows_on_one_rank_and_four_on_each_of_two_give_equal_weights(model, tmp_path):
    settings = {
        "max_steps": 1,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1.0,
        "validation_cases": 0,
        "engine": {"optim": "sgd"},
        "beta": 0.0,
        "warm_start": None,
        "replacement_groups": 0,  # ranks have budgets of their own
    }
    one = create(tmp_path, "one", model, {**settings, "cases_per_batch": 2})
    two = create(tmp_path, "two", model, {**settings, "cases_per_batch": 1}, processes=2)
    a_row_a_pass = {**settings, "cases_per_batch": 1, "pass_memory": 1e-6}
    tight = create(tmp_path, "tight", model, a_row_a_pass, processes=2)
    weights = [
        load_file(completed(start(each)).checkpoints / "step-1" / "model.safetensors")
        for each in (one, two, tight)
    ]
    assert read_json(two.passes)["rows"] == 4
    assert read_json(tight.passes)["rows"] == 1
    for name, tensor in weights[0].items():
        for other in weights[1:]:
            assert torch.allclose(tensor, other[name], atol=1e-6), name


@pytest.mark.nightly
def test_a_stop_request_reaches_every_rank(model, tmp_path):
    folder = start(create(tmp_path, "stop", model, {"max_steps": 200}, processes=2))
    wait_for(lambda: list_checkpoints(folder.checkpoints))
    append_event(folder, "stop_requested", author="somebody")
    found = ended(folder)
    assert (found.state, found.message) == (RunState.STOPPED, "stopped by somebody")
    assert not ranks_of(folder)


def join(folder: RunFolder, number: int = 1) -> subprocess.Popen[bytes]:
    """A further host, on this machine."""
    command = [sys.executable, "-m", "sparring.runs.hosts", str(folder.path), str(number)]
    return subprocess.Popen(command)
