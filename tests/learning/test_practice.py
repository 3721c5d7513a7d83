"""Playing a step: which groups are replaced, what is logged of them, what is remembered."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest

from sparring import failed, measure, passed
from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending, Rollout, Span, TokenKind, TokenRow
from sparring.contracts.training import TrainSettings
from sparring.learning.practice import Practice, Training, Vocabulary
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
def practice(tmp_path):
    made = []

    def make(cases, **settings):
        player = Scripted()
        practice = Practice(
            RunFolder(tmp_path / "run"),
            player,
            MeasureSet.of([right]),
            TrainSettings(num_generations=GROUP, **settings),
            vocabulary=Vocabulary(9, 0),
            training=Training(cases, lambda case_id: Case(case_id, "?")),
        )
        practice.resume_at(0)
        made.append(practice)
        return practice, player

    yield make
    for each in made:
        each.close()


def logged(tmp_path):
    log = RolloutLog(RunFolder(tmp_path / "run").rollouts(0))
    return [from_record(record) for record in log.records(0, len(log))]


EASY = [f"easy-{n}" for n in range(3)]
FAIR = [f"fair-{n}" for n in range(9)]


def test_a_dead_group_is_replaced_by_one_that_teaches(practice):
    made, player = practice(EASY[:1] + FAIR)
    rows = made.rows([[*EASY[:1], FAIR[0]]], 0)
    assert [row.reward for row in rows] == [1, 0, 1, 0] * 2
    assert player.played["easy-0"] == GROUP
    assert sum(player.played.values()) == 3 * GROUP


def test_what_was_replaced_is_logged_with_its_cause(practice, tmp_path):
    made, _ = practice(EASY[:1] + FAIR)
    made.rows([[*EASY[:1], FAIR[0]]], 0)
    made.note_advantages([0.5] * 8)
    easy = [each for each in logged(tmp_path) if each.case.id == "easy-0"]
    assert [each.advantage for each in easy] == [None] * GROUP
    assert {each.dropped for each in easy} == {"all 4 of its group passed; replaced"}
    figures = made.take_counts().metrics()
    assert figures["replaced/solved"] == figures["replaced_groups"] == 1
    assert figures["live_groups"] == 1
    assert figures["rollouts"] == 12


def test_the_budget_is_kept_and_groups_that_cannot_be_replaced_stay(practice, tmp_path):
    hard = [f"hard-{n}" for n in range(9)]
    made, player = practice(EASY[:2] + hard, replacement_groups=3)
    rows = made.rows([EASY[:2]], 0)
    assert sum(player.played.values()) == (2 + 3) * GROUP
    assert [row.reward for row in rows] == [1] * 8
    made.note_advantages([0.0] * 8)
    figures = made.take_counts().metrics()
    assert figures["dead/solved"] == 2
    assert figures["in_vain/failed"] == 3
    assert figures["replaced_groups"] == 0
    assert figures["live_groups"] == 0
    told = {each.case.id.split("-")[0]: each.dropped for each in logged(tmp_path)}
    assert told["easy"] == "all 4 of its group passed"
    assert told["hard"] == "all 4 of its group failed; played in place of another, in vain"


def test_nothing_is_replaced_without_a_budget(practice):
    made, player = practice(EASY + FAIR, replacement_groups=0)
    made.rows([EASY], 0)
    assert sum(player.played.values()) == 3 * GROUP


def test_with_a_world_model_failed_groups_stay_and_count_as_teaching(practice):
    made, player = practice(["hard-0", *FAIR], world_model_coefficient=0.05)
    made.rows([["hard-0"]], 0)
    assert set(player.played) == {"hard-0"}
    assert made.seen()[0].taught
    made.note_advantages([0.0] * GROUP)
    figures = made.take_counts().metrics()
    assert (figures["live_groups"], figures["teaching_groups"]) == (0, 1)


def test_a_case_that_taught_nothing_is_drawn_less_later(practice):
    made, player = practice(EASY + FAIR, replacement_groups=0)
    for step in range(12):
        made.rows([EASY], step)
        made.difficulty.remember(made.seen(), step)
        made.note_advantages([0.0] * 3 * GROUP)
    easy = sum(count for case, count in player.played.items() if case in EASY)
    assert easy < sum(player.played.values()) / 2


def test_the_same_step_plays_the_same_whoever_asks_again(practice):
    drawn = []
    for _ in range(2):
        made, player = practice(EASY + FAIR)
        made.rows([EASY], 3)
        drawn.append(player.played)
    assert drawn[0] == drawn[1]
