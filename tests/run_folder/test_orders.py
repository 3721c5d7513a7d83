"""Orders: one player each, results all at once, and nothing lost with a player."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sparring.run_folder.orders import Orders


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "orders")


def test_an_order_is_claimed_by_one_player_only(orders: Orders) -> None:
    for number in range(200):
        orders.post(f"rank0-{number:03d}", {"n": number})
    claimed: dict[str, list[int]] = {"a": [], "b": [], "c": []}

    def work(player: str) -> None:
        while (order := orders.claim(player)) is not None:
            claimed[player].append(order.body["n"])

    threads = [threading.Thread(target=work, args=(player,)) for player in claimed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(n for each in claimed.values() for n in each) == list(range(200))


def test_results_are_taken_once_and_all_at_once(orders: Orders) -> None:
    orders.post("rank0-1", {"n": 1})
    assert orders.claim("a") is not None
    assert orders.take("rank0-1") is None
    orders.finish("a", "rank0-1", [{"x": 1}, {"x": 2}])
    assert orders.take("rank0-1") == [{"x": 1}, {"x": 2}]
    assert orders.take("rank0-1") is None
    assert orders.claim("a") is None


def test_the_orders_of_a_lost_player_are_offered_again(orders: Orders) -> None:
    orders.post("rank0-1", {"n": 1})
    orders.claim("a")
    assert orders.claim("b") is None
    assert orders.release("a") == 1
    order = orders.claim("b")
    assert order is not None
    assert order.body == {"n": 1}


def test_a_player_that_was_thought_lost_does_no_harm(orders: Orders) -> None:
    """It and its successor hand in the same results."""
    orders.post("rank0-1", {})
    orders.claim("a")
    orders.release("a")
    orders.claim("b")
    orders.finish("a", "rank0-1", [{"x": 1}])
    assert orders.take("rank0-1") == [{"x": 1}]
    orders.finish("b", "rank0-1", [{"x": 1}])
    assert orders.claim("c") is None


def test_only_players_that_hold_orders_are_watched(orders: Orders) -> None:
    orders.beat("a", 7)
    orders.beat("b", 8)
    orders.post("rank0-1", {})
    orders.claim("a")
    assert orders.beats() == {"a": {"beats": 7}}


def test_orders_of_an_earlier_attempt_are_removed(orders: Orders) -> None:
    for name in ("00000007-rank0-x-1", "00000008-rank0-x-2", "00000007-rank1-x-1"):
        orders.post(name, {})
    orders.claim("a")
    orders.finish("a", "00000006-rank0-x-0", [{}])
    orders.clear("rank0")
    assert orders.take("00000006-rank0-x-0") is None
    order = orders.claim("b")
    assert order is not None
    assert order.name == "00000007-rank1-x-1"
    assert orders.release("a") == 0
