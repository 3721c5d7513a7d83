"""Ordering plays from player processes: in order, again where a player is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import InfrastructureError
from sparring.contracts.rollouts import RolloutKey
from sparring.learning import ordered_play
from sparring.learning.ordered_play import OrderedPlay
from sparring.player import Play
from sparring.policies.vllm_server import PublishedWeights
from sparring.run_folder.orders import Orders
from sparring.run_folder.records import to_record
from sparring.testing import rollout

WEIGHTS = PublishedWeights(3, "run-v3", Path("/p"))


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "orders")


def plays(count: int) -> list[Play]:
    return [
        Play(
            RolloutKey(0, 0, f"case-{n // 2}", n % 2),
            Case(id=f"case-{n // 2}", input="x", split=Split.TRAINING),
        )
        for n in range(count)
    ]


@contextmanager
def player(orders: Orders, name: str = "player-0", *, error: str = "") -> Iterator[list[str]]:
    """Answers every order with what was asked, in a thread."""
    over, seen = threading.Event(), []

    def work() -> None:
        while not over.wait(0.005):
            order = orders.claim(name)
            if order is None:
                continue
            assert PublishedWeights.from_dict(order.body["weights"]) == WEIGHTS
            seen.append(order.name)
            answers = [
                {
                    "rollout": to_record(rollout(f"{case} {index}")),
                    "seconds": 0.5,
                    "offers_tools": index == 1,
                }
                for _, _, case, index, _ in order.body["plays"]
            ]
            orders.finish(name, order.name, [{"error": error}] if error else answers)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_results_come_back_in_the_order_of_the_plays(orders: Orders) -> None:
    with player(orders) as seen:
        played = OrderedPlay(orders, 0, 2).play(plays(6), WEIGHTS)
    assert len(seen) == 3
    answers = [each.rollout.answer for each in played]
    assert answers == [f"case-{n // 2} {n % 2}" for n in range(6)]
    assert {each.seconds for each in played} == {0.5}
    assert [each.offers_tools for each in played] == [False, True] * 3


def test_orders_of_a_player_without_a_heartbeat_go_to_another(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered_play, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(ordered_play, "_LOST_SECONDS", 0.05)
    ordering = OrderedPlay(orders, 0, 2)
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(len(ordering.play(plays(4), WEIGHTS))))
    thread.start()
    while orders.claim("player-1") is None:  # it takes an order, and is never heard of again
        pass
    with player(orders):
        thread.join(20)
    assert results == [4]
    assert ordering.reordered == 1


def test_a_player_that_cannot_play_fails_the_step_with_the_cause(orders: Orders) -> None:
    with player(orders, error="ValueError: no such case"):
        ordering = OrderedPlay(orders, 0, 2)
        with pytest.raises(InfrastructureError, match="no such case"):
            ordering.play(plays(2), WEIGHTS)
