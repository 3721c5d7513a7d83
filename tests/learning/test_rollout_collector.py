"""Playing a step: which groups are replaced, what is logged of them, what is remembered."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest

from sparring import failed, measure, passed
from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending, Rollout, Span, TokenKind, TokenRow
from sparring.contracts.training import TrainSettings
from sparring.learning.rollout_collector import RolloutCollector, TrainingCases
from sparring.learning.rows import RowRules
from sparring.measures import MeasureSet
from sparring.player import Played
from sparring.run_folder import RunFolder
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutLog

GROUP = 4


class Scripted:
    """Cases are `easy-1`, `hard-1`, `fair-1`, …: solved, failed, or solved by every other."""

    def __init__(self):
        self.played = Counter()

    async def play(self, plays):
        for play in plays:
            kind = play.case.id.split("-")[0]
            right = kind == "easy" or (kind == "fair" and play.key.index % 2 == 0)
            self.played[play.case.id] += 1
            row = TokenRow(
                "",
                array("i", [1, 2, 3]),
                array("f", [-0.5]),
                (Span(TokenKind.PROMPT, 2), Span(TokenKind.SAMPLED, 1)),
            )
            answer = "yes" if right else "no"
            made = Rollout(play.key, play.case, Ending.ANSWERED, answer, rows=(row,))
            yield Played(made, 0.0)


@measure
def right(rollout):
    return passed("said yes") if rollout.answer == "yes" else failed("said no")


@pytest.fixture
def collector(tmp_path):
    made = []

    def make(cases, **settings):
        player = Scripted()
        collector = RolloutCollector(
            RunFolder(tmp_path / "run"),
            player,
            MeasureSet.of([right]),
            TrainSettings(num_generations=GROUP, **settings),
            rules=RowRules(end_of_turn=0, vocabulary=9),
            training=TrainingCases(cases, lambda case_id: Case(case_id, "?")),
        )
        collector.resume_at(0)
        made.append(collector)
        return collector, player

    yield make
    for each in made:
        each.close()


def play_step(collector, proposed, step):
    return collector.play(collector.draw(proposed, step), step, collector.weights())


def logged(tmp_path):
    log = RolloutLog(RunFolder(tmp_path / "run").rollouts(0))
    return [from_record(record) for record in log.records(0, len(log))]


EASY = [f"easy-{n}" for n in range(3)]
FAIR = [f"fair-{n}" for n in range(9)]


def test_a_dead_group_is_replaced_by_one_that_teaches(collector):
    made, player = collector(EASY[:1] + FAIR)
    learned = play_step(made, [[*EASY[:1], FAIR[0]]], 0).learned
    assert [each.reward for each in learned] == [1, 0, 1, 0] * 2
    assert player.played["easy-0"] == GROUP
    assert sum(player.played.values()) == 3 * GROUP


def test_what_was_replaced_is_logged_with_its_cause(collector, tmp_path):
    made, _ = collector(EASY[:1] + FAIR)
    played = play_step(made, [[*EASY[:1], FAIR[0]]], 0)
    counts = made.log_step(played, [0.5] * 8)
    easy = [each for each in logged(tmp_path) if each.case.id == "easy-0"]
    assert [each.advantage for each in easy] == [None] * GROUP
    assert {each.dropped for each in easy} == {
        "all 4 usable rollouts of its group passed; replaced"
    }
    figures = counts.metrics()
    assert figures["replaced/solved"] == figures["replaced_groups"] == 1
    assert figures["live_groups"] == 1
    assert figures["rollouts"] == 12


def test_the_budget_is_kept_and_groups_that_cannot_be_replaced_stay(collector, tmp_path):
    hard = [f"hard-{n}" for n in range(9)]
    made, player = collector(EASY[:2] + hard, replacement_groups=3)
    played = play_step(made, [EASY[:2]], 0)
    learned = played.learned
    assert sum(player.played.values()) == (2 + 3) * GROUP
    assert [each.reward for each in learned] == [1] * 8
    figures = made.log_step(played, [0.0] * 8).metrics()
    assert figures["dead/solved"] == 2
    assert figures["failed_replacements/failed"] == 3
    assert figures["replaced_groups"] == 0
    assert figures["live_groups"] == 0
    told = {each.case.id.split("-")[0]: each.dropped for each in logged(tmp_path)}
    assert told["easy"] == "all 4 usable rollouts of its group passed"
    assert told["hard"].startswith("all 4 usable rollouts of its group failed")
    assert told["hard"].endswith("; a replacement, also without a gradient")


def test_nothing_is_replaced_without_a_budget(collector):
    made, player = collector(EASY + FAIR, replacement_groups=0)
    play_step(made, [EASY], 0)
    assert sum(player.played.values()) == 3 * GROUP


def test_with_a_world_model_failed_groups_stay_and_count_as_teaching(collector):
    made, player = collector(["hard-0", *FAIR], world_model_coefficient=0.05)
    played = play_step(made, [["hard-0"]], 0)
    assert set(player.played) == {"hard-0"}
    assert played.results()[0].taught
    counts = made.log_step(played, [0.0] * GROUP)
    figures = counts.metrics()
    assert (figures["live_groups"], figures["teaching_groups"]) == (0, 1)


def test_a_case_that_taught_nothing_is_drawn_less_later(collector):
    made, player = collector(EASY + FAIR, replacement_groups=0)
    for step in range(12):
        played = play_step(made, [EASY], step)
        made.difficulty.remember(played.results(), step)
        made.log_step(played, [0.0] * 3 * GROUP)
    easy = sum(count for case, count in player.played.items() if case in EASY)
    assert easy < sum(player.played.values()) / 2


def test_the_same_step_plays_the_same_whoever_asks_again(collector):
    drawn = []
    for _ in range(2):
        made, player = collector(EASY + FAIR)
        play_step(made, [EASY], 3)
        drawn.append(player.played)
    assert drawn[0] == drawn[1]
