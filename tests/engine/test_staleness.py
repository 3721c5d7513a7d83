"""Rollouts that are played ahead: their versions, their parity, and runs that repeat and resume."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from sparring import Suite
from sparring.contracts.errors import ParityError, SettingError
from sparring.engine.trainer import PolicyTrainer
from sparring.run_folder.checkpoint_list import IN_PLAY, list_checkpoints
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutLog
from tests.runs.test_helpers import ROOT, create
from tests.sampling_servers import COMMAND, InProcess
from tests.supervised import completed, history, ranks_of, start, wait_for
from tests.training import trainer, weights_digest

pytestmark = [pytest.mark.timeout(120)]
STEPS = 5
SETTINGS: dict[str, Any] = {
    "run": "run",
    "lora": True,
    "learning_rate": 5e-2,
    "max_steps": STEPS,
    "save_steps": 2,
    "max_completion_length": 8,
    "num_generations": 4,
    "cases_per_batch": 1,
    "gradient_accumulation_steps": 2,
    "mask_truncated_completions": False,
    "validation_cases": 2,
    "replacement_groups": 1,
    "draw_by_difficulty": True,
    "max_staleness": 1,
}
CASES = [  # an epoch has four steps of two
    {"input": f"question {n}", "split": "validation" if n > 8 else "training"} for n in range(11)
]


@pytest.fixture(scope="module")
def server(tiny_folder):
    with InProcess(tiny_folder) as server:
        yield server.address


def made(tiny: Path, runs: Path, server: str, **options: Any) -> Any:
    suite = Suite.from_records(CASES, minimum_cases=2)
    return trainer(tiny, runs, sampling=[server], suite=suite, **{**SETTINGS, **options})


def rollouts_of(result: Any) -> list[Any]:
    return list(RolloutLog(result.folder.rollouts()).records())


def metrics_of(result: Any) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in result.folder.metrics.read_text().splitlines()]
    return [row for row in rows if "loss" in row]


@pytest.fixture(scope="module")
def ahead(server, tiny_folder, tmp_path_factory):
    """A run with staleness 1, and its batches before and after the correction, by step."""
    scored = []
    correct = PolicyTrainer._correct

    def and_note(self: Any, tensors: Any, mask: Any) -> None:
        before = tensors["advantages"].clone()
        correct(self, tensors, mask)
        scored.append((mask.bool(), before, dict(tensors)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PolicyTrainer, "_correct", and_note)
        result = made(tiny_folder, tmp_path_factory.mktemp("ahead"), server).train()
    return result, scored


def test_every_row_has_the_version_that_its_step_was_begun_with(ahead):
    versions = {}
    for record in rollouts_of(ahead[0]):
        rollout = from_record(record)
        sampled = {version for row in rollout.rows for version, _ in row.versions}
        versions.setdefault(rollout.key.step, set()).update(sampled)
    assert versions == {0: {0}, 1: {0}, 2: {1}, 3: {2}, 4: {3}}


def test_parity_is_checked_at_the_version_that_sampled(ahead):
    rows = metrics_of(ahead[0])
    assert [row["staleness"] for row in rows] == [0, 1, 1, 1, 1]
    assert 0 < max(row["parity_gap"] for row in rows) <= 1e-4
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows[1:]) > 1e-2


def test_the_log_has_the_gap_to_the_weights_that_sampled(ahead):
    gaps = [
        abs(gap)
        for record in rollouts_of(ahead[0])
        for row in from_record(record).rows
        for gap in row.gaps
    ]
    assert 0 < max(gaps) <= 1e-4


def test_the_advantage_of_every_token_is_weighted_by_the_ratio_to_its_own_version(ahead):
    tokens = 0
    for mask, advantages, batch in ahead[1]:
        gaps = (batch["old_per_token_logps"] - batch["sampling_per_token_logps"])[mask]
        wanted = advantages[mask] * gaps.exp().clamp(max=3.0)
        assert torch.allclose(batch["advantages"][mask], wanted, rtol=1e-6)
        tokens += int(mask.sum())
    assert tokens > STEPS * 8
    rows = metrics_of(ahead[0])
    assert all(math.isfinite(row["sampling/importance_sampling_ratio/max"]) for row in rows)


@pytest.mark.nightly
def test_a_run_repeats_bit_by_bit_whatever_the_servers_speed(
    ahead, server, tiny_folder, tmp_path, monkeypatch
):
    import asyncio

    from sparring.policies.vllm_server import VllmServer

    complete, calls = VllmServer.complete, []

    async def late(self: VllmServer, *given: Any, **options: Any) -> Any:
        calls.append(1)
        await asyncio.sleep(0.03 * (len(calls) * 7 % 5))
        return await complete(self, *given, **options)

    monkeypatch.setattr(VllmServer, "complete", late)
    again = made(tiny_folder, tmp_path, server).train()
    assert rollouts_of(again) == rollouts_of(ahead[0])
    assert weights_digest(again) == weights_digest(ahead[0])


@pytest.mark.nightly
def test_a_run_that_dies_between_checkpoints_ends_in_the_same_weights(
    ahead, server, tiny_folder, tmp_path, monkeypatch
):
    class Died(Exception):
        """Ends the run as a kill would: nothing is saved."""

    compute = PolicyTrainer._compute_loss

    def die(self: Any, *given: Any) -> Any:
        if self.state.global_step == 3:
            raise Died
        return compute(self, *given)

    begun = made(tiny_folder, tmp_path, server)
    with monkeypatch.context() as patch:
        patch.setattr(PolicyTrainer, "_compute_loss", die)
        with pytest.raises(Died):
            begun.train()
    folder = tmp_path / "run"
    (newest,) = [each for each in list_checkpoints(folder / "checkpoints") if each.step == 2]
    in_play = json.loads((newest.path / IN_PLAY).read_text())
    assert [each["step"] for each in in_play["ranks"][0]["steps"]] == [2]
    assert [each["weights"]["version"] for each in in_play["ranks"][0]["steps"]] == [1]
    for published in (folder / "policies").iterdir():  # as on another host
        published.rename(tmp_path / published.name)
    resumed = made(tiny_folder, tmp_path, server).train()
    assert rollouts_of(resumed) == rollouts_of(ahead[0])
    assert weights_digest(resumed) == weights_digest(ahead[0])


@pytest.mark.nightly
def test_a_wrong_adapter_is_refused_though_rollouts_are_stale(tiny_folder, tmp_path):
    from sparring.engine import publisher

    with (
        InProcess(tiny_folder, "no-adapter") as server,
        pytest.raises(ParityError) as raised,
    ):
        made(tiny_folder, tmp_path, server.address).train()
    assert publisher.NO_ADAPTER in str(raised.value)


@pytest.mark.nightly
def test_whole_weights_are_refused(server, tiny_folder, tmp_path):
    with pytest.raises(SettingError, match="max_staleness needs an adapter"):
        made(tiny_folder, tmp_path, server, lora=False)


@pytest.mark.nightly
def test_with_staleness_two_three_steps_are_in_play(server, tiny_folder, tmp_path):
    result = made(tiny_folder, tmp_path, server, max_staleness=2, validation_cases=0).train()
    assert [row["staleness"] for row in metrics_of(result)] == [0, 1, 2, 2, 2]


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_rank_that_is_killed_in_the_middle_changes_nothing(tiny_folder, tmp_path, monkeypatch):
    """kill -9 under a real supervisor, with servers of the run's own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    sampling = {"servers": 1, "command": COMMAND}
    alone = start(create(tmp_path, "alone", tiny_folder, sampling, max_staleness=1))
    completed(alone, 400)
    folder = start(create(tmp_path, "killed", tiny_folder, sampling, max_staleness=1))
    wait_for(lambda: [each for each in list_checkpoints(folder.checkpoints) if each.step == 2], 400)
    ranks_of(folder)[0].kill()
    completed(folder, 400)
    assert history(folder).attempt.number > 1
    assert weights_digest(folder) == weights_digest(alone)
    logs = [list(RolloutLog(each.rollouts()).records()) for each in (alone, folder)]
    assert logs[0] == logs[1]
