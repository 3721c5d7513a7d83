"""Measures the unit costs of a training run outside the GPUs, and predicts those of larger runs.

    python benchmarks/scaling_costs.py [--quick]

Measures a turn, a rollout in the log, an order, a publication of weights and a host's heartbeats
with Sparring's own components and a scripted model: the player with a token policy; the client of
sampling servers (`server_policy.py`); the rollout log; orders to player processes; writing,
digesting and renaming an adapter; heartbeats (`hosts.py`). Predicts the costs of runs on one GPU,
on eight, and on a hundred hosts. The cost model does not include the GPUs.

The bar: playing and logging together takes at most 1.5 × the CPU that the model predicts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from hosts import count_calls
from player_overhead import AGENT, TURNS, cpu_per_turn, players, token_script
from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Rollout, RolloutKey
from sparring.contracts.specs import Limits
from sparring.engine.publisher import _digest_of
from sparring.models.tiny import build_tokenizer
from sparring.player import Play, Player
from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.run_folder.files import sync_folder
from sparring.run_folder.orders import Orders
from sparring.run_folder.rollout_log import RolloutWriter

HERE = Path(__file__).parent
BAR = 1.5
ADAPTER_MEGABYTES = 100
PLAYS_PER_ORDER = 8


@dataclass(frozen=True, slots=True)
class Costs:
    """The unit costs. Milliseconds are CPU time, except for publishing, which is wall time."""

    turn_ms: float
    client_ms: float
    log_ms: float
    rollout_bytes: int
    order_ms: float
    order_calls: float
    publish_ms_per_100_mb: float
    calls_per_host: float


@dataclass(frozen=True, slots=True)
class Setup:
    """The sizes of a training run. `step_seconds` is the assumed duration of a step."""

    name: str
    hosts: int
    rollouts: int
    turns: int
    step_seconds: float


SETUPS = (
    Setup("1 GPU", 1, 64, 5, 30.0),
    Setup("8 GPUs", 1, 512, 5, 60.0),
    Setup("100 hosts, 800 GPUs", 100, 16_000, 5, 300.0),
)


def measure(*, is_quick: bool) -> Costs:
    """Measure every unit cost."""
    count, repeats = (64, 1) if is_quick else (256, 3)
    rollouts = asyncio.run(play_all(count))
    with tempfile.TemporaryDirectory(prefix="sparring-costs-") as place:
        log_ms, size = cost_of_log(Path(place), rollouts)
        order_ms, order_calls = cost_of_order(Path(place))
        publish_ms = cost_of_publishing(Path(place))
    return Costs(
        turn_ms=round(cpu_per_turn(players()["token"], count, repeats), 3),
        client_ms=round(
            from_benchmark("server_policy.py", "--quick")["ms_per_turn_above_scripted"]["2000"], 3
        ),
        log_ms=log_ms,
        rollout_bytes=size,
        order_ms=order_ms,
        order_calls=order_calls,
        publish_ms_per_100_mb=publish_ms,
        calls_per_host=from_benchmark("hosts.py", "--quick")["calls_per_second_and_host"],
    )


async def play_all(count: int) -> list[Rollout]:
    policy = ScriptedPolicy(token_script, ChatCodec(build_tokenizer(), family_named("qwen3")))
    player = Player(AGENT, policy, limits=Limits(max_concurrency=count))
    plays = (Play(RolloutKey(0, 0, str(n), 0), Case(str(n), "Look up 7.")) for n in range(count))
    return [played.rollout async for played in player.play(plays)]


def cost_of_log(place: Path, rollouts: list[Rollout]) -> tuple[float, int]:
    """Return the CPU milliseconds to log one rollout, and its bytes."""
    began = time.process_time()
    with RolloutWriter(place / "log") as writer:
        for rollout in rollouts:
            writer.append(rollout, 1.0)
    cpu = time.process_time() - began
    size = sum(file.stat().st_size for file in (place / "log").iterdir())
    return round(1000 * cpu / len(rollouts), 3), size // len(rollouts)


def cost_of_order(place: Path, count: int = 200) -> tuple[float, float]:
    """Return the CPU milliseconds and calls to post, claim, finish and take one order."""
    calls = count_calls(place)
    orders, began = Orders(place / "orders"), time.process_time()
    results = [{"reward": 1.0, "ids": list(range(500))}] * PLAYS_PER_ORDER
    for number in range(count):
        name = f"{number:06d}"
        orders.post(name, {"plays": [{"case": "a"}] * PLAYS_PER_ORDER})
        orders.claim("player-0")
        orders.finish("player-0", name, results)
        orders.take(name)
    milliseconds = 1000 * (time.process_time() - began) / count
    return round(milliseconds, 3), round(sum(calls.values()) / count, 1)


def cost_of_publishing(place: Path) -> float:
    """Return the milliseconds until servers can load an adapter of 100 MB."""
    numbers = ADAPTER_MEGABYTES * 1_000_000 // 2 // 64
    state = {f"layer{n}": torch.zeros(numbers, dtype=torch.bfloat16) for n in range(64)}
    staging = place / "staging"
    staging.mkdir()
    began = time.monotonic()
    save_file(state, str(staging / "adapter.safetensors"))
    _digest_of(staging / "adapter.safetensors", staging)
    sync_folder(staging)
    staging.rename(place / "published")
    return round(1000 * (time.monotonic() - began), 1)


def predict(costs: Costs, setup: Setup) -> dict[str, Any]:
    """Return the predicted costs of a step outside the GPUs."""
    turns = setup.rollouts * setup.turns
    orders = setup.rollouts / PLAYS_PER_ORDER
    cpu = turns * (costs.turn_ms + costs.client_ms) + setup.rollouts * costs.log_ms
    cpu_seconds = (cpu + orders * costs.order_ms) / 1000
    calls = setup.hosts * costs.calls_per_host + orders * costs.order_calls / setup.step_seconds
    return {
        "setup": setup.name,
        "rollouts_per_step": setup.rollouts,
        "step_seconds": setup.step_seconds,
        "cpu_seconds_per_step": round(cpu_seconds, 1),
        "busy_share_of_one_process": round(cpu_seconds / setup.step_seconds, 2),
        "players_at_half_load": max(1, round(cpu_seconds / setup.step_seconds / 0.5 + 0.49)),
        "calls_to_the_file_server_per_second": round(calls, 1),
        "log_megabytes_per_step": round(setup.rollouts * costs.rollout_bytes / 1e6, 1),
        "publish_seconds": round(costs.publish_ms_per_100_mb / 1000, 2),
    }


def check_model(costs: Costs, count: int) -> float:
    """Return the measured CPU of playing and logging, divided by the prediction."""
    began = time.process_time()
    rollouts = asyncio.run(play_all(count))
    with (
        tempfile.TemporaryDirectory(prefix="sparring-costs-") as place,
        RolloutWriter(Path(place) / "log") as writer,
    ):
        for rollout in rollouts:
            writer.append(rollout, 1.0)
    measured = time.process_time() - began
    return round(1000 * measured / (count * (TURNS * costs.turn_ms + costs.log_ms)), 2)


def from_benchmark(name: str, *options: str) -> Any:
    command = [sys.executable, str(HERE / name), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rollouts")
    options = parser.parse_args()
    costs = measure(is_quick=options.quick)
    ratio = check_model(costs, 128 if options.quick else 512)
    rows = [predict(costs, setup) for setup in SETUPS]
    result = {"costs": asdict(costs), "setups": rows, "measured_over_model": ratio}
    is_ok = ratio <= BAR
    print(json.dumps({**result, "bar": BAR, "ok": is_ok}))
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
