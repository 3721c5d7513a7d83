"""Sampling servers in training: the same result whoever samples, and every silent fault named."""

from __future__ import annotations

import json
import threading
from array import array
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from sparring.contracts.errors import ParityError
from sparring.contracts.policies import Finish, Sample
from sparring.engine import publisher
from sparring.engine.parity_gate import Suspect
from sparring.engine.publisher import Publisher
from sparring.policies.vllm_server import VllmServer
from sparring.run_folder.rollout_log import RolloutLog
from tests.sampling_servers import InProcess, StandIn
from tests.training import trainer, weights_digest

pytestmark = [pytest.mark.timeout(120)]
SETTINGS: dict[str, Any] = {
    "lora": True,
    "learning_rate": 5e-3,
    "max_steps": 3,
    "max_completion_length": 8,
    "num_generations": 4,
    "cases_per_batch": 2,
    "gradient_accumulation_steps": 1,
    "mask_truncated_completions": False,
}


def train(tiny: Path, runs: Path, servers: list[str], **options: Any) -> Any:
    sampling = {"servers": servers, "wait_seconds": 10}
    return trainer(tiny, runs, sampling=sampling, **{**SETTINGS, **options}).train()


def rollouts_of(result: Any) -> list[Any]:
    return list(RolloutLog(result.folder.rollouts()).records())


def metrics_of(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.folder.metrics.read_text().splitlines()]


@pytest.fixture(scope="module")
def servers(tiny_folder):
    with InProcess(tiny_folder) as one, InProcess(tiny_folder) as other:
        yield one, other


@pytest.fixture(scope="module")
def by_one(servers, tiny_folder, tmp_path_factory):
    return train(tiny_folder, tmp_path_factory.mktemp("one"), [servers[0].address], run="run")


def test_the_gap_is_tiny_in_every_step_and_is_logged(by_one):
    gaps = [row["sampling/sampling_logp_difference/max"] for row in metrics_of(by_one)]
    assert len(gaps) == 3
    assert 0 < max(gaps) <= 1e-4
    assert any(row["grad_norm"] for row in metrics_of(by_one))


def test_two_servers_give_the_rollouts_and_the_weights_of_one(
    servers, by_one, tiny_folder, tmp_path
):
    both = train(tiny_folder, tmp_path, [each.address for each in servers], run="run")
    assert rollouts_of(both) == rollouts_of(by_one)
    assert weights_digest(both) == weights_digest(by_one)


@pytest.mark.nightly
def test_a_server_that_is_killed_or_comes_late_changes_nothing(
    servers, by_one, tiny_folder, tmp_path
):
    """One of three is killed in mid-request; another answers only from then on."""
    doomed, late = StandIn(tiny_folder).start(), InProcess(tiny_folder)
    addresses = [servers[0].address, doomed.address, late.address]
    started = trainer(tiny_folder, tmp_path, sampling=addresses, **SETTINGS, run="run")
    policy = started.policy
    complete = VllmServer.complete
    callees: list[str] = []

    async def and_kill(self: VllmServer, *given: Any, **options: Any) -> Any:
        callees.append(self.address)
        if self.address == doomed.address and callees.count(self.address) == 2:
            threading.Thread(target=doomed.kill).start()
            late.__enter__()
        return await complete(self, *given, **options)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(VllmServer, "complete", and_kill)
            result = started.train()
    finally:
        doomed.kill()
        late.__exit__()
    assert policy.retries > 0
    assert rollouts_of(result) == rollouts_of(by_one)
    assert weights_digest(result) == weights_digest(by_one)


# ------------------------------------------------------------------ faults with status 200


def refused(tiny: Path, runs: Path, server: InProcess, **options: Any) -> str:
    with pytest.raises(ParityError) as raised:
        train(tiny, runs, [server.address], **options)
    return str(raised.value)


class InPlace(Publisher):
    """Publishes every version under one name and reloads it in place, as others do."""

    def sync(self, in_play: Any = ()) -> None:
        import urllib.request
        from dataclasses import replace

        super().sync(in_play)
        current = self._policy._current
        assert current is not None
        body = {"lora_name": "policy", "lora_path": current.path, "load_inplace": True}
        request = urllib.request.Request(
            f"{self._policy.servers[0].address}/v1/load_lora_adapter",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).read()
        self._policy.use(replace(current, name="policy"))


def test_weights_that_are_reloaded_in_place_are_refused_as_a_stale_prefix_cache(
    tiny_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("sparring.engine.opening.Publisher", InPlace)
    with InProcess(tiny_folder, has_prefix_cache=True) as server:
        # One case only: its prompt is in the cache from the first step on.
        message = refused(tiny_folder, tmp_path, server, learning_rate=0.1, max_steps=4)
    assert publisher.STALE_PREFIX in message


@pytest.mark.nightly
def test_a_server_that_mixes_rows_of_several_models_is_refused(tiny_folder, tmp_path):
    with InProcess(tiny_folder, "mixed-rows") as server:
        message = refused(tiny_folder, tmp_path, server, learning_rate=0.1, max_steps=4)
    assert publisher.MIXED_ROWS in message


@pytest.mark.nightly
def test_a_server_that_does_not_apply_the_adapter_is_refused(tiny_folder, tmp_path):
    with InProcess(tiny_folder, "no-adapter") as server:
        message = refused(tiny_folder, tmp_path, server, learning_rate=0.1, max_steps=4)
    assert publisher.NO_ADAPTER in message


@pytest.mark.nightly
def test_a_server_of_another_base_model_is_refused_before_the_first_update(tiny_folder, tmp_path):
    other = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    with torch.no_grad():
        other.lm_head.weight.mul_(1.5)
    other.save_pretrained(tmp_path / "other")
    with InProcess(tmp_path / "other") as server:
        message = refused(tiny_folder, tmp_path, server)
    assert publisher.OTHER_WEIGHTS in message


@pytest.mark.nightly
def test_whole_weights_are_reloaded_and_a_head_that_stays_old_is_refused(tiny_folder, tmp_path):
    whole: dict[str, Any] = {"lora": False, "learning_rate": 1e-2, "max_steps": 3}
    with ExitStack() as stack:
        right = stack.enter_context(InProcess(tiny_folder))
        result = train(tiny_folder, tmp_path, [right.address], **whole)
        gaps = [row["sampling/sampling_logp_difference/max"] for row in metrics_of(result)]
        assert max(gaps) <= 1e-4
        wrong = stack.enter_context(InProcess(tiny_folder, "tied-head"))
        message = refused(tiny_folder, tmp_path, wrong, **whole)
    assert publisher.STALE_HEAD in message


@pytest.mark.parametrize(
    ("dtype", "rounding", "cause"),
    [
        ("float32", 1e-5, publisher.STALE_PREFIX),
        ("bfloat16", 0.02, publisher.STALE_PREFIX),
        ("bfloat16", 0.2, publisher.OTHER_WEIGHTS),
    ],
)
@pytest.mark.nightly
def test_a_stale_cache_is_named_in_every_precision(dtype, rounding, cause):
    def sample_again(request, salt):
        gap = rounding if salt else 1.0  # without the cache, only rounding remains
        return Sample(array("i", [5, 6]), array("f", [-1.0 - gap] * 2), Finish.STOP)

    faults = publisher.ServerFaults(
        sample_again, lambda _: "case", temperature=1.0, is_adapter=False, is_tied=False
    )
    suspect = Suspect(row=0, prompt=[1, 2], gap=1.0, dtype=dtype)
    assert faults(suspect, lambda prompt, ids, bare: [-1.0, -1.0]) == cause
