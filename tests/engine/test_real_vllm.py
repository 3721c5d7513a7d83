"""Training with real vLLM servers on a CPU. Opt in with `pytest -m vllm`."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparring.policies.vllm_server import VllmServer
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutLog
from tests.real_vllm import ADAPTERS, RealServer
from tests.training import trainer, weights_digest
from tests.wide_tiny import wide_tiny

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]


def train(model: Path, runs: Path, servers: list[RealServer], **options: Any) -> Any:
    settings: dict[str, Any] = {
        "run": "run",
        "sampling": {"servers": [each.address for each in servers], "wait_seconds": 300},
        "lora": True,
        "learning_rate": 5e-3,
        "mask_truncated_completions": False,
        "max_completion_length": 12,
        "gradient_accumulation_steps": 1,
        "max_steps": 6,
    }
    return trainer(model, runs, **{**settings, **options}).train()


def rollouts_of(result: Any) -> list[Any]:
    return list(RolloutLog(result.folder.rollouts()).records())


def metrics_of(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.folder.metrics.read_text().splitlines()]


def gaps_of(result: Any) -> list[float]:
    return [row["sampling/sampling_logp_difference/max"] for row in metrics_of(result)]


@pytest.fixture(scope="module")
def served(tiny_folder, tmp_path_factory):
    """A model, a server of it, and a training with that server alone."""
    place = tmp_path_factory.mktemp("served")
    model = wide_tiny(tiny_folder, place / "model")
    server = RealServer(model, place / "log", *ADAPTERS).start()
    try:
        yield model, server.wait(), train(model, place / "alone", [server])
    finally:
        server.kill()


def test_two_servers_end_as_one_does_and_so_does_one_of_two_that_is_killed(
    served, tmp_path, monkeypatch
):
    model, one, alone = served
    other = RealServer(model, tmp_path / "log", *ADAPTERS).start()
    complete, addresses = VllmServer.complete, []

    async def and_kill(self: VllmServer, *given: Any, **options: Any) -> Any:
        addresses.append(self.address)
        if addresses.count(other.address) == 3:
            threading.Thread(target=other.kill).start()
        return await complete(self, *given, **options)

    try:
        both = train(model, tmp_path / "both", [one, other.wait()])
        monkeypatch.setattr(VllmServer, "complete", and_kill)
        killed = train(model, tmp_path / "killed", [one, other])
    finally:
        other.kill()
    print({"largest_gap": max(gaps_of(alone)), "weights": weights_digest(alone)[:12]})
    assert 0 < max(gaps_of(alone)) <= 1e-4
    for result in (both, killed):
        assert rollouts_of(result) == rollouts_of(alone)
        assert weights_digest(result) == weights_digest(alone)


def test_a_server_that_starts_in_mid_run_changes_nothing(served, tmp_path, monkeypatch):
    """The second server starts at its first request; the first one waits until it is up."""
    model, one, alone = served
    late = RealServer(model, tmp_path / "log", *ADAPTERS)
    complete, begin = VllmServer.complete, threading.Event()
    answered: Counter[str] = Counter()

    async def and_start(self: VllmServer, *given: Any, **options: Any) -> Any:
        if self.address == late.address and not begin.is_set():
            begin.set()
            late.start()
        elif self.address == one.address and begin.is_set():
            await asyncio.to_thread(late.wait)
        sample = await complete(self, *given, **options)
        answered[self.address] += 1
        return sample

    monkeypatch.setattr(VllmServer, "complete", and_start)
    try:
        result = train(model, tmp_path / "runs", [one, late])
    finally:
        late.kill()
    print({"answered": [answered[each.address] for each in (one, late)]})
    assert min(answered[each.address] for each in (one, late)) > 0
    assert rollouts_of(result) == rollouts_of(alone)
    assert weights_digest(result) == weights_digest(alone)


def test_rollouts_of_older_weights_are_learned_from_alike_each_time(tiny_folder, tmp_path):
    model = wide_tiny(tiny_folder, tmp_path / "model")
    server = RealServer(model, tmp_path / "log", *ADAPTERS).start()
    try:
        runs = [
            train(model, tmp_path / name, [server.wait()], max_staleness=1, max_steps=4)
            for name in ("once", "again")
        ]
    finally:
        server.kill()
    once, again = runs
    rows = [row for each in rollouts_of(once) for row in from_record(each).rows]
    largest = max(row["parity_gap"] for row in metrics_of(once))
    print({"largest_gap": largest})
    assert {version for row in rows for version, _ in row.versions} == {0, 1, 2}
    assert 0 < largest <= 1e-4
    assert rollouts_of(again) == rollouts_of(once)
    assert weights_digest(again) == weights_digest(once)


def test_whole_weights_are_reloaded_from_disk(tiny_folder, tmp_path):
    model = wide_tiny(tiny_folder, tmp_path / "model", is_tied=False)
    server = RealServer(model, tmp_path / "log").start()
    try:
        result = train(model, tmp_path / "runs", [server.wait()], lora=False, learning_rate=1e-3)
    finally:
        server.kill()
    print({"largest_gap": max(gaps_of(result))})
    assert 0 < max(gaps_of(result)) <= 1e-4
