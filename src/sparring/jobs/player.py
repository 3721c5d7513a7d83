"""`python -m sparring.jobs.player RUN_FOLDER NUMBER`: plays and judges rollouts that ranks order.

A player process opens the environment with its measures and worlds, and samples from the run's
servers. It loads no weights.
"""

from __future__ import annotations

import asyncio
import math
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import CasesBroken, SettingError, SparringError
from sparring.contracts.policies import PublishedWeights
from sparring.contracts.rollouts import RolloutKey
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.environments.task import Task
from sparring.jobs.case_loader import RunCases
from sparring.jobs.environment_opening import opened
from sparring.learning.rollout_collector import Plays, play_and_judge
from sparring.measures import MeasureSet
from sparring.player import Play
from sparring.policies.loading import family_of
from sparring.policies.pretrained import load_tokenizer
from sparring.policies.server_policy import ServerPolicy
from sparring.run_folder import RunFolder
from sparring.run_folder.orders import Order, Orders
from sparring.run_folder.records import to_record
from sparring.run_folder.server_list import server_addresses

_POLL_SECONDS = 0.02
_BEAT_SECONDS = 0.5

FindCase = Callable[[Split, str], Case]


class OrderPlayer:
    """Claims orders, plays up to `at_once` of them concurrently, and writes their results."""

    def __init__(
        self,
        orders: Orders,
        name: str,
        *,
        player: Plays,
        measures: MeasureSet,
        policy: ServerPolicy,
        find_case: FindCase,
        at_once: int,
    ) -> None:
        self._orders = orders
        self._name = name
        self._player = player
        self._measures = measures
        self._policy = policy
        self._find_case = find_case
        self._at_once = at_once
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Claim and play orders until `should_stop()` is true. Orders that this player had claimed
        before a restart are first released, so that any player can claim them."""
        self._orders.release(self._name)
        beats, loop = 0, asyncio.get_running_loop()
        beat_at = loop.time()
        while not should_stop():
            if loop.time() >= beat_at:
                beats += 1
                self._orders.beat(self._name, beats)
                beat_at = loop.time() + _BEAT_SECONDS
            while len(self._running) < self._at_once and (order := self._orders.claim(self._name)):
                task = asyncio.create_task(self._play(order))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            await asyncio.sleep(_POLL_SECONDS)
        for task in self._running:
            task.cancel()

    async def _play(self, order: Order) -> None:
        try:
            results = await self._results(order)
        except Exception as error:
            traceback.print_exc()
            results = [{"error": f"{type(error).__name__}: {error}"}]
        self._orders.finish(self._name, order.name, results)

    async def _results(self, order: Order) -> list[dict[str, Any]]:
        weights = PublishedWeights.from_dict(order.body["weights"])
        plays = [
            Play(RolloutKey(seed, step, case_id, index), self._find_case(Split(split), case_id))
            for seed, step, case_id, index, split in order.body["plays"]
        ]
        with self._policy.assigned(weights, [play.key for play in plays]):
            played = await play_and_judge(self._player, self._measures, plays)
        return [
            {
                "rollout": to_record(each.rollout),
                "seconds": each.seconds,
                "offers_tools": each.offers_tools,
            }
            for each in played
        ]


def orders_at_once(settings: TrainSettings) -> int:
    """Return how many orders one player plays concurrently: its share of the rollouts that may be
    in play, counted in groups. An order is one group."""
    groups = settings.rollouts_at_once / settings.num_generations
    return max(1, math.ceil(groups / max(1, settings.players)))


def main(path: str, number: int) -> None:
    """Play until the run's supervisor ends this process."""
    folder = RunFolder(Path(path))
    spec = TrainSpec.model_validate(folder.read_spec())
    settings = spec.settings
    if settings.sampling is None:
        raise SettingError("players need sampling servers: pass --sampling N")
    cases = RunCases(folder, spec)
    with opened(folder, spec, rank=number + 1) as environment:
        task = Task.of_environment(
            environment,
            suite=lambda: cases.suite(environment),
            measure_timeout=settings.measure_timeout,
        )
        model = spec.policy.model or task.agent.model
        if not isinstance(model, str):
            raise SettingError("the run must name its model for players: pass --model NAME")
        tokenizer = load_tokenizer(model)
        family = family_of(spec.policy, tokenizer, task.family)
        tokenizer.chat_template = family.template
        servers = server_addresses(folder, settings.sampling)
        policy = ServerPolicy(
            servers.read,
            tokenizer,
            family,
            name=model,
            key=servers.key,
            wait_seconds=settings.sampling.wait_seconds,
        )
        finders = {each: task.suite.finder(each) for each in (Split.TRAINING, Split.VALIDATION)}
        orders = OrderPlayer(
            Orders(folder.orders),
            f"player-{number}",
            player=task.player(policy, settings),
            measures=task.measures,
            policy=policy,
            find_case=lambda split, case_id: finders[split](case_id),
            at_once=orders_at_once(settings),
        )
        asyncio.run(orders.run())


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except SparringError as error:
        message = str(error)
        if isinstance(error, CasesBroken):
            message = message.splitlines()[0]  # operators can read the log
        print(message, file=sys.stderr)
        sys.exit(1)
