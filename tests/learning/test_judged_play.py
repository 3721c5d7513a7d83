"""Rollouts are judged as they end, and come back in the order in which they were requested."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from typing import Any

import pytest

from sparring import measure, passed
from sparring.contracts.cases import Case
from sparring.contracts.rollouts import RolloutKey
from sparring.learning import judged_play
from sparring.learning.judged_play import play_and_judge
from sparring.measures import MeasureSet
from sparring.player import Play, Played
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

    monkeypatch.setattr(judged_play, "end_world", count)
    monkeypatch.setattr(judged_play, "_WORLDS_AT_ONCE", 2)
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
