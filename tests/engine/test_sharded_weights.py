"""Sharded weights with sampling servers: two ranks on CPUs, FSDP2 and DeepSpeed beside DDP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.services import free_port
from tests.sampling_servers import ROOT, InProcess
from tests.training import weights_digest

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
needs_deepspeed = pytest.mark.skipif(
    find_spec("deepspeed") is None, reason="DeepSpeed is not installed; `make sharded` installs it"
)
SETTINGS: dict[str, Any] = {
    "learning_rate": 5e-3,
    "max_steps": 3,
    "save_steps": 1,
    "save_total_limit": 9,
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


def metric(runs: Path, name: str) -> list[float]:
    lines = RunFolder(runs / "run").metrics.read_text().splitlines()
    return [json.loads(line)[name] for line in lines]


def grad_norms(runs: Path) -> list[float]:
    return metric(runs, "grad_norm")


def last_weights(runs: Path) -> dict[str, torch.Tensor]:
    last = list_checkpoints(RunFolder(runs / "run").checkpoints)[-1]
    return load_file(next(last.path.glob("*.safetensors")))


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


@needs_deepspeed
@pytest.mark.parametrize("mode", ["zero2", "zero3"])
def test_deepspeed_has_the_losses_and_gradients_of_replicated_weights(
    mode, server, tiny_folder, tmp_path
):
    plain = train("ddp", tiny_folder, tmp_path / "ddp", server, lora=True)
    sharded = train(mode, tiny_folder, tmp_path / mode, server, lora=True)
    assert plain["steps"] == sharded["steps"]
    assert (sharded["by"], sharded["is_sharded"]) == ("DEEPSPEED", mode == "zero3")
    for name in ("loss", "grad_norm"):
        found = [metric(tmp_path / each, name) for each in ("ddp", mode)]
        print({name: found})
        assert found[1] == pytest.approx(found[0], rel=1e-5, abs=1e-5)
    expected, saved = (last_weights(tmp_path / each) for each in ("ddp", mode))
    assert saved.keys() == expected.keys()
    for name, weights in expected.items():
        assert torch.allclose(saved[name], weights, atol=2e-4), name


@needs_deepspeed
def test_a_deepspeed_training_that_was_stopped_resumes_to_the_same_weights(
    server, tiny_folder, tmp_path
):
    for name in ("whole", "parts"):
        train("zero3", tiny_folder, tmp_path / name, server, lora=True)
    folder = RunFolder(tmp_path / "parts" / "run")
    for checkpoint in list_checkpoints(folder.checkpoints)[1:]:
        checkpoint.path.rename(tmp_path / checkpoint.path.name)
    train("zero3", tiny_folder, tmp_path / "parts", server, lora=True)
    assert weights_digest(folder) == weights_digest(RunFolder(tmp_path / "whole" / "run"))
