"""Has player processes play the rollouts of a rank, through the run's folder."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Sequence
from typing import Any

from sparring.contracts.errors import InfrastructureError
from sparring.player import Play, Played
from sparring.policies.vllm_server import PublishedWeights
from sparring.run_folder.orders import Orders
from sparring.run_folder.records import from_record

_POLL_SECONDS = 0.02
_LOOK_SECONDS = 1.0
_LOST_SECONDS = 20.0  # a player without a heartbeat for so long has lost its orders


class OrderedPlay:
    """Orders plays, and waits for their results. One order holds `size` plays.

    The results do not depend on which player played them, or how often. Several threads may play
    at the same time; the orders of the earliest step are claimed first.
    """

    def __init__(self, orders: Orders, rank: int, size: int) -> None:
        self._orders = orders
        self._size = size
        self._name = f"rank{rank}-{secrets.token_hex(4)}"
        self._count = itertools.count()
        self._looking = threading.Lock()
        self._beats: dict[str, tuple[Any, float]] = {}
        self._is_closed = False
        self.reordered = 0
        orders.clear(f"rank{rank}")  # of an earlier attempt

    def play(self, plays: Sequence[Play], weights: PublishedWeights) -> list[Played]:
        """Have `plays` sampled with `weights`; return the judged rollouts in their order."""
        names = []
        for start in range(0, len(plays), self._size):
            keys = [(play.key, play.case.split.value) for play in plays[start : start + self._size]]
            body = {
                "format": 1,
                "weights": weights.to_dict(),
                "plays": [
                    [key.seed, key.step, key.case_id, key.index, split] for key, split in keys
                ],
            }
            names.append(f"{plays[start].key.step:08d}-{self._name}-{next(self._count):08d}")
            self._orders.post(names[-1], body)
        results = self._collect(names)
        return [played for name in names for played in results[name]]

    def close(self) -> None:
        """End the threads that wait for results."""
        self._is_closed = True

    def _collect(self, names: Sequence[str]) -> dict[str, list[Played]]:
        results: dict[str, list[Played]] = {}
        looked_at = time.monotonic()
        while len(results) < len(names):
            if self._is_closed:
                raise InfrastructureError("the run ended before its players did")
            before = len(results)
            for name in names:
                if name not in results and (lines := self._orders.take(name)) is not None:
                    results[name] = [_played(line) for line in lines]
            if time.monotonic() - looked_at > _LOOK_SECONDS:
                looked_at = time.monotonic()
                with self._looking:
                    self._release_lost()
            if len(results) == before:
                time.sleep(_POLL_SECONDS)
        return results

    def _release_lost(self) -> None:
        """Offer the orders of players again whose heartbeat has stopped."""
        now = time.monotonic()
        for player, beat in self._orders.beats().items():
            last, since = self._beats.get(player, (None, now))
            if beat != last:
                self._beats[player] = (beat, now)
            elif now - since > _LOST_SECONDS:
                self.reordered += self._orders.release(player)
                del self._beats[player]


def _played(line: dict[str, Any]) -> Played:
    if "error" in line:
        raise InfrastructureError(f"a player could not play an order: {line['error']}")
    return Played(from_record(line["rollout"]), float(line["seconds"]))
