"""The rollouts of one rank: groups that are judged, a log that is cut, its share of validation."""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparring import failed, measure, passed
from sparring.contracts.cases import Case, Split
from sparring.contracts.rollouts import Ending, Rollout, Span, TokenKind, TokenRow
from sparring.contracts.training import TrainSettings
from sparring.learning.ranks import Launched
from sparring.learning.rollout_collector import RolloutCollector, TrainingCases
from sparring.learning.rows import RowRules
from sparring.learning.step_rollouts import StepRollouts
from sparring.measures import MeasureSet
from sparring.player import Play, Played
from sparring.run_folder import RunFolder
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutLog

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
    return passed("said yes") if rollout.answer == "yes" else failed("said no")


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


def logged(folder: Path, rank: int = 0) -> list[Rollout]:
    log = RolloutLog(RunFolder(folder).rollouts(rank))
    return [from_record(record) for record in log.records()]


def test_each_case_gets_a_group_of_judged_rollouts(collector: RolloutCollector) -> None:
    groups = collector.play_groups(["b", "a"], 3, None)
    assert [group.case_id for group in groups] == ["b", "a"]
    assert [[each.reward for each in group.learned] for group in groups] == [[1.0, 0.0]] * 2
    assert {each.rollout.key.step for group in groups for each in group.played} == {3}


def test_a_step_is_logged_with_its_advantages(collector: RolloutCollector, tmp_path: Path) -> None:
    collector.resume_at(0)
    rollouts = StepRollouts(collector.play_groups(["a"], 0, None), lambda _: True)
    counts = collector.log_step(rollouts, [0.5, -0.5])
    assert [each.advantage for each in logged(tmp_path)] == [0.5, -0.5]
    assert counts.metrics()["reward"] == 0.5


def test_a_resumed_run_cuts_the_steps_that_it_repeats(tmp_path: Path) -> None:
    first = made(tmp_path)
    first.resume_at(0)
    for step in (0, 1):
        played = StepRollouts(first.play_groups(["a"], step, None), lambda _: True)
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
