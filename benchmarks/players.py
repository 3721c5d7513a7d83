"""Compares the turns per second of one player process and of two, each with a scripted policy.

    python benchmarks/players.py [--orders N] [--rounds N]

Each process is Sparring's own `OrderPlayer`: it claims orders of eight rollouts from a folder,
plays and judges them, and writes the results. One process and two alternately play the same number
of orders. Two busy cores are each slower than one busy core; a loop that shares nothing measures by
how much. Bars, on two cores: the best round of two processes has at least 1.6 times the turns per
second of the best round of one, and at most 1.15 times its CPU per turn, after division by the
loop's ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from player_overhead import AGENT, TURNS, token_script
from sparring import Verdict, measure
from sparring.contracts.cases import Case, Split
from sparring.contracts.policies import PublishedWeights
from sparring.contracts.specs import Limits
from sparring.jobs.player import OrderPlayer
from sparring.measures import MeasureSet
from sparring.models.tiny import build_tokenizer
from sparring.player import Player
from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.run_folder.orders import Orders

PLAYS = 8
TIMES_BAR, CPU_BAR = 1.6, 1.15


@measure
def answered(answer: str) -> Verdict:
    return Verdict.passed("it answered") if answer else Verdict.failed("no answer")


class Scripted(ScriptedPolicy):
    """A scripted policy in place of sampling servers."""

    @contextmanager
    def assigned(self, weights: PublishedWeights, rollouts: Iterable[Any]) -> Iterator[None]:
        yield


def play(folder: str, name: str, ready: Any, go: Any, stop: Any, cpu: Any) -> None:
    """Play orders until `stop` is set; put the CPU seconds into `cpu`."""
    policy = Scripted(token_script, ChatCodec(build_tokenizer(), family_named("qwen3")))
    player = OrderPlayer(
        Orders(Path(folder)),
        name,
        player=Player(AGENT, policy, limits=Limits(max_concurrency=64)),
        measures=MeasureSet.of((answered,)),
        policy=policy,  # type: ignore[arg-type]
        find_case=lambda _split, case_id: Case(case_id, "Look up 7."),
        at_once=8,
    )
    ready.release()
    go.wait()
    began = time.process_time()
    asyncio.run(player.run(stop.is_set))
    cpu.put(time.process_time() - began)


def play_round(players: int, orders: int) -> dict[str, float]:
    """Play the orders with `players` processes; return turns per second and CPU per turn."""
    context = multiprocessing.get_context("spawn")
    ready, go, stop, cpu = context.Semaphore(0), context.Event(), context.Event(), context.Queue()
    with tempfile.TemporaryDirectory(prefix="sparring-players-") as place:
        folder = Orders(place)
        processes = [
            context.Process(target=play, args=(place, f"player-{n}", ready, go, stop, cpu))
            for n in range(players)
        ]
        for process in processes:
            process.start()
        for _ in processes:
            ready.acquire()
        weights = PublishedWeights(0, "v0", place).to_dict()
        names = [f"{number:06d}" for number in range(orders)]
        for name in names:
            plays = [[0, 0, f"{name}-{n}", 0, Split.TRAINING.value] for n in range(PLAYS)]
            folder.post(name, {"weights": weights, "plays": plays})
        began = time.monotonic()
        go.set()
        taken = [take(folder, name) for name in names]
        seconds = time.monotonic() - began
        stop.set()
        spent = sum(cpu.get() for _ in processes)
        for process in processes:
            process.join()
    turns = orders * PLAYS * TURNS
    assert all("rollout" in row for rows in taken for row in rows), taken[0][0]
    return {"turns_per_second": turns / seconds, "cpu_ms_per_turn": 1000 * spent / turns}


def spin(ready: Any, go: Any, cpu: Any) -> None:
    """Process texts and dictionaries, as a player does; put the CPU seconds into `cpu`."""
    ready.release()
    go.wait()
    began = time.process_time()
    for number in range(40_000):
        json.loads(json.dumps({f"key {n}": [n, str(number)] for n in range(20)}))
    cpu.put(time.process_time() - began)


def time_loop(processes: int) -> float:
    """Return the CPU seconds of the loop per process, with this many processes at once."""
    context = multiprocessing.get_context("spawn")
    ready, go, cpu = context.Semaphore(0), context.Event(), context.Queue()
    started = [context.Process(target=spin, args=(ready, go, cpu)) for _ in range(processes)]
    for process in started:
        process.start()
    for _ in started:
        ready.acquire()
    go.set()
    spent = sum(cpu.get() for _ in started)
    for process in started:
        process.join()
    return spent / processes


def take(folder: Orders, name: str) -> list[dict[str, Any]]:
    while (found := folder.take(name)) is None:
        time.sleep(0.01)
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--orders", type=int, default=100, help="of eight rollouts, per round")
    options.add_argument("--rounds", type=int, default=4)
    given = options.parse_args()
    rounds: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    loops: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(given.rounds):
        for players, found in rounds.items():
            found.append(play_round(players, given.orders))
            loops[players].append(time_loop(players))
    speed = {n: max(each["turns_per_second"] for each in found) for n, found in rounds.items()}
    cost = {n: min(each["cpu_ms_per_turn"] for each in found) for n, found in rounds.items()}
    times, more_cpu = speed[2] / speed[1], cost[2] / cost[1]
    machine = min(loops[2]) / min(loops[1])
    shown = {
        "benchmark": "players",
        "turns_per_second": {n: round(value, 1) for n, value in speed.items()},
        "cpu_ms_per_turn": {n: round(value, 2) for n, value in cost.items()},
        "times": round(times, 2),
        "cpu_ratio": round(more_cpu, 2),
        "cpu_ratio_of_a_loop": round(machine, 2),
        "bar": {"times": TIMES_BAR, "cpu_ratio": CPU_BAR},
        "ok": times >= TIMES_BAR and more_cpu <= CPU_BAR * machine,
    }
    print(json.dumps(shown))
    return 0 if shown["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
