"""Sharded weights with sampling servers: two ranks on CPUs, FSDP2 beside DDP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.services import free_port
from tests.sampling_servers import ROOT, InProcess
from tests.training import weights_digest

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]
SETTINGS: dict[str, Any] = {
    "learning_rate": 5e-3,
    "max_steps": 3,
    "checkpoint_steps": 1,
    "checkpoints_kept": 9,
    "max_completion_length": 8,
    "cases_per_batch": 1,
    "gradient_accumulation_steps": 1,
    "mask_truncated_completions": False,
    "share_prompts": False,  # sharded weights cannot share them, and sums depend on their order
}


def train(mode: str, model: Path, runs: Path, server: InProcess, **settings: Any) -> Any:
    """Train with two ranks; return what rank 0 printed."""
    port = free_port()
    given = json.dumps({**SETTINGS, **settings})
    command = [sys.executable, "-m", "tests.sharded_rank", mode, str(model), str(runs)]
    ranks = [
        subprocess.Popen(
            [*command, server.address, given],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=600) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), outputs[0][1][-3000:]
    return json.loads(outputs[0][0].splitlines()[-1])


def grad_norms(runs: Path) -> list[float]:
    lines = RunFolder(runs / "run").metrics.read_text().splitlines()
    return [json.loads(line)["grad_norm"] for line in lines]


@pytest.fixture(scope="module")
def server(tiny_folder):
    with InProcess(tiny_folder) as server:
        yield server


def test_an_adapter_of_sharded_weights_ends_as_one_of_replicated_weights(
    server, tiny_folder, tmp_path
):
    plain = train("ddp", tiny_folder, tmp_path / "ddp", server, lora=True)
    sharded = train("fsdp2", tiny_folder, tmp_path / "fsdp2", server, lora=True)
    assert (plain["is_sharded"], sharded["is_sharded"]) == (False, True)
    ends = [weights_digest(RunFolder(tmp_path / mode / "run")) for mode in ("ddp", "fsdp2")]
    print({"ddp": ends[0][:12], "fsdp2": ends[1][:12], "norms": grad_norms(tmp_path / "ddp")})
    assert ends[0] == ends[1]


def test_a_sharded_training_that_was_stopped_resumes_to_the_same_weights(
    server, tiny_folder, tmp_path
):
    train("fsdp2", tiny_folder, tmp_path / "whole", server, lora=True)
    train("fsdp2", tiny_folder, tmp_path / "parts", server, lora=True)
    folder = RunFolder(tmp_path / "parts" / "run")
    for checkpoint in list_checkpoints(folder.checkpoints)[1:]:
        checkpoint.path.rename(tmp_path / checkpoint.path.name)
    train("fsdp2", tiny_folder, tmp_path / "parts", server, lora=True)
    assert weights_digest(folder) == weights_digest(RunFolder(tmp_path / "whole" / "run"))


def test_whole_sharded_weights_have_the_gradients_of_replicated_ones(tiny_folder, tmp_path):
    for mode in ("ddp", "fsdp2"):
        with InProcess(tiny_folder) as server:
            train(mode, tiny_folder, tmp_path / mode, server, lora=False, learning_rate=1e-3)
    plain, sharded = (grad_norms(tmp_path / mode) for mode in ("ddp", "fsdp2"))
    print({"ddp": plain, "fsdp2": sharded})
    assert sharded == pytest.approx(plain, rel=1e-5)
