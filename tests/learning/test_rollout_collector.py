"""Rollouts: judged as they end, in this process or in player processes, and logged."""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparring import failed, measure, passed
from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import PublishedWeights
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey, Span, TokenKind, TokenRow
from sparring.contracts.training import TrainSettings
from sparring.learning import rollout_collector
from sparring.learning.engine import Launched
from sparring.learning.groups import Group, StepRollouts
from sparring.learning.rollout_collector import (
    OrderedPlay,
    RolloutCollector,
    TrainingCases,
    play_and_judge,
)
from sparring.learning.rows import RowRules
from sparring.measures import MeasureSet
from sparring.player import Play, Played
from sparring.run_folder import RunFolder
from sparring.run_folder.orders import Orders
from sparring.run_folder.records import from_record, to_record
from sparring.run_folder.rollout_log import RolloutLog
from tests.rollouts import rollout

PLAYS = [Play(RolloutKey(0, 0, f"case-{n}", 0), Case(f"case-{n}", "?")) for n in range(4)]


class World:
    """Notes when it ends."""

    def __init__(self, notes: list[str], name: str) -> None:
        self.notes, self.name = notes, name

    def after_rollout(self) -> None:
        self.notes.append(f"ended {self.name}")


class Backwards:
    """Ends its rollouts in the reverse order, and notes what happens."""

    def __init__(self, notes: list[str], fails_after: int | None = None) -> None:
        self.notes = notes
        self.fails_after = fails_after

    async def play(self, plays: Iterable[Play]) -> AsyncGenerator[Played]:
        try:
            for number, play in enumerate(reversed(list(plays))):
                if number == self.fails_after:
                    raise ConnectionError("the server is gone")
                self.notes.append(f"played {play.case.id}")
                made = replace(
                    rollout("yes", id=play.case.id), world=World(self.notes, play.case.id)
                )
                yield Played(replace(made, key=play.key, case=play.case), float(number))
                await asyncio.sleep(0)  # judging may begin now
                await asyncio.sleep(0)
        finally:
            self.notes.append("closed")


def judging(notes: list[str]) -> MeasureSet:
    @measure
    async def noted(rollout: Any) -> Any:
        notes.append(f"judged {rollout.case.id}")
        return passed("yes")

    return MeasureSet.of([noted])


def test_rollouts_keep_the_order_of_their_plays_and_their_own_seconds() -> None:
    notes: list[str] = []
    judged = asyncio.run(play_and_judge(Backwards(notes), judging(notes), PLAYS))
    assert [each.rollout.key for each in judged] == [play.key for play in PLAYS]
    assert [each.seconds for each in judged] == [3.0, 2.0, 1.0, 0.0]
    assert [each.rollout.reward for each in judged] == [1.0] * 4


def test_a_rollout_is_judged_before_the_last_one_has_ended() -> None:
    notes: list[str] = []
    asyncio.run(play_and_judge(Backwards(notes), judging(notes), PLAYS))
    assert notes.index("judged case-3") < notes.index("played case-0")


def ended_worlds(notes: list[str]) -> list[str]:
    return sorted(note for note in notes if note.startswith("ended"))


ALL_ENDED = [f"ended case-{n}" for n in range(4)]


def test_a_world_ends_when_its_rollout_was_judged() -> None:
    notes: list[str] = []
    asyncio.run(play_and_judge(Backwards(notes), judging(notes), PLAYS))
    assert ended_worlds(notes) == ALL_ENDED
    for n in range(4):
        assert notes.index(f"judged case-{n}") < notes.index(f"ended case-{n}")
    assert notes.index("ended case-3") < len(notes) - 1


def judging_together(notes: list[str]) -> MeasureSet:
    def one_each(completions: list[Any], **_: Any) -> list[float]:
        notes.append("judged together")
        return [1.0] * len(completions)

    return MeasureSet.of([], reward_functions=[one_each])


def test_worlds_end_after_the_reward_functions_have_judged() -> None:
    notes: list[str] = []
    asyncio.run(play_and_judge(Backwards(notes), judging_together(notes), PLAYS))
    assert ended_worlds(notes) == ALL_ENDED
    assert min(map(notes.index, ALL_ENDED)) > notes.index("judged together")


def test_worlds_end_if_the_player_fails() -> None:
    for measures in (judging, judging_together):
        notes: list[str] = []
        with pytest.raises(ConnectionError):
            asyncio.run(play_and_judge(Backwards(notes, 2), measures(notes), PLAYS))
        assert ended_worlds(notes) == ALL_ENDED[2:]


class SlowWorld(World):
    """Takes a moment to end, as a container does."""

    async def after_rollout(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0.05)
        self.notes.append(f"ended {self.name}")


def test_a_world_that_is_ending_when_the_player_fails_still_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(globals(), "World", SlowWorld)
    notes: list[str] = []
    with pytest.raises(ConnectionError):
        asyncio.run(play_and_judge(Backwards(notes, 2), judging(notes), PLAYS))
    assert "judged case-3" in notes
    assert ended_worlds(notes) == ALL_ENDED[2:]


def test_worlds_that_end_together_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, most = 0, 0

    async def count(_: Any) -> None:
        nonlocal at_once, most
        at_once, most = at_once + 1, max(most, at_once + 1)
        await asyncio.sleep(0)
        at_once -= 1

    monkeypatch.setattr(rollout_collector, "end_world", count)
    monkeypatch.setattr(rollout_collector, "_WORLDS_AT_ONCE", 2)
    asyncio.run(play_and_judge(Backwards([]), judging_together([]), PLAYS))
    assert most == 2


def test_nothing_to_play_is_nothing_to_judge() -> None:
    notes: list[str] = []
    assert asyncio.run(play_and_judge(Backwards(notes), judging(notes), [])) == []


def test_a_player_that_fails_is_closed_and_leaves_no_judging_behind() -> None:
    notes: list[str] = []

    @measure
    async def endless(rollout: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            notes.append("judging ended")

    async def play() -> int:
        with pytest.raises(ConnectionError, match="the server is gone"):
            await play_and_judge(Backwards(notes, 2), MeasureSet.of([endless]), PLAYS)
        for _ in range(5):
            await asyncio.sleep(0)
        return len(asyncio.all_tasks()) - 1

    assert asyncio.run(play()) == 0
    assert "closed" in notes
    assert "judging ended" in notes


WEIGHTS = PublishedWeights(3, "run-v3", "/p")


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
    """Answers every order with what it orders, in a thread."""
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
    monkeypatch.setattr(rollout_collector, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(rollout_collector, "_LOST_SECONDS", 0.05)
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


VALIDATION = [Case(f"v{n}", "?", split=Split.VALIDATION) for n in range(5)]
SPANS = (Span(TokenKind.PROMPT, 2), Span(TokenKind.SAMPLED, 1))


class EveryOther:
    """Answers yes in every other rollout of a case."""

    async def play(self, plays: Iterable[Play]) -> AsyncGenerator[Played]:
        for play in plays:
            row = TokenRow("", array("i", [1, 2, 3]), array("f", [-0.5]), SPANS)
            answer = "no" if play.key.index % 2 else "yes"
            yield Played(Rollout(play.key, play.case, Ending.ANSWERED, answer, rows=(row,)), 0.0)


@measure
def right(rollout: Any) -> Any:
    return passed("it is yes") if rollout.answer == "yes" else failed("it is not")


def made(folder: Path, launched: Launched | None = None) -> RolloutCollector:
    return RolloutCollector(
        RunFolder(folder),
        EveryOther(),
        MeasureSet.of([right]),
        TrainSettings(num_generations=2),
        rules=RowRules(end_of_turn=0, vocabulary=9),
        training=TrainingCases(["a", "b"], lambda case_id: Case(case_id, "?")),
        validation=VALIDATION,
        launched=launched,
    )


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[RolloutCollector]:
    collector = made(tmp_path)
    yield collector
    collector.close()


def play_groups(collector: RolloutCollector, case_ids: list[str], step: int) -> list[Group]:
    cases = [collector.find_case(each) for each in case_ids]
    return collector.grouped(collector.play(cases, 2, step, None), None)


def logged(folder: Path, rank: int = 0) -> list[Rollout]:
    log = RolloutLog(RunFolder(folder).rollouts(rank))
    return [from_record(record) for record in log.records()]


def test_each_case_gets_a_group_of_judged_rollouts(collector: RolloutCollector) -> None:
    groups = play_groups(collector, ["b", "a"], 3)
    assert [group.case_id for group in groups] == ["b", "a"]
    assert [[each.reward for each in group.learned] for group in groups] == [[1.0, 0.0]] * 2
    assert {each.rollout.key.step for group in groups for each in group.played} == {3}


def test_a_step_is_logged_with_its_advantages(collector: RolloutCollector, tmp_path: Path) -> None:
    collector.resume_at(0)
    rollouts = StepRollouts(play_groups(collector, ["a"], 0), lambda _: True)
    counts = collector.log_step(rollouts, [0.5, -0.5])
    assert [each.advantage for each in logged(tmp_path)] == [0.5, -0.5]
    assert counts.metrics()["reward"] == 0.5


def test_a_resumed_run_cuts_the_steps_that_it_repeats(tmp_path: Path) -> None:
    first = made(tmp_path)
    first.resume_at(0)
    for step in (0, 1):
        played = StepRollouts(play_groups(first, ["a"], step), lambda _: True)
        first.log_step(played, [0.0, 0.0])
    first.close()
    again = made(tmp_path)
    again.resume_at(
        1, {"format": 1, "cases": {"a": {"taught": 0.0, "idle": 9.0, "step": 0, "reward": 0.5}}}
    )
    again.close()
    assert {each.key.step for each in logged(tmp_path)} == {0}
    chances = again.difficulty.chances(1)
    assert chances[0] < chances[1] == 1.0


def test_ranks_share_the_validation_cases(tmp_path: Path) -> None:
    played = []
    for rank in (0, 1):
        collector = made(tmp_path, Launched(rank, 2))
        counts = collector.validate(4)
        collector.close()
        log = RolloutLog(RunFolder(tmp_path).validation_rollouts(rank))
        played.append([from_record(record).case.id for record in log.records()])
        assert counts.sums["rollouts"] == len(played[-1])
        assert counts.score() == 1.0, "the first rollout of a case is right"
    assert played == [["v0", "v2", "v4"], ["v1", "v3"]]


def test_without_servers_there_are_no_published_weights(collector: RolloutCollector) -> None:
    assert collector.weights is None
