"""Plays the rollouts of a rank in player processes, through files in the run's folder."""

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
_LOST_SECONDS = 20.0  # a player loses its orders after this time without a heartbeat


class OrderedPlay:
    """Posts orders, each a file that requests up to `size` plays, and waits for their results.

    The results do not depend on which player plays an order, or how often it is played. Several
    threads may call `play` at the same time; players claim the orders of the earliest step first.
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
        orders.clear(f"rank{rank}")  # left by an earlier attempt

    def play(self, plays: Sequence[Play], weights: PublishedWeights) -> list[Played]:
        """Order `plays` with `weights`, and return the judged rollouts in the order of `plays`."""
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
        """Make every call of `play` that waits for results raise InfrastructureError."""
        self._is_closed = True

    def _collect(self, names: Sequence[str]) -> dict[str, list[Played]]:
        results: dict[str, list[Played]] = {}
        looked_at = time.monotonic()
        while len(results) < len(names):
            if self._is_closed:
                raise InfrastructureError("the run ended before its players finished their orders")
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
        """Reopen the orders of players whose heartbeat has stopped."""
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
    rollout, seconds = from_record(line["rollout"]), float(line["seconds"])
    return Played(rollout, seconds, bool(line.get("offers_tools")))
