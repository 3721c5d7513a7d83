"""A step with an engine that only takes notes: its order, its streams, its ends, its groups."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest

from sparring import failed, measure, passed
from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import ParityError
from sparring.contracts.rollouts import Ending, Rollout, Span, TokenKind, TokenRow
from sparring.contracts.training import TrainSettings
from sparring.learning.batches import resolve_batches
from sparring.learning.guards import GuardMonitor
from sparring.learning.reporting import Hooks
from sparring.learning.rollout_collector import RolloutCollector, TrainingCases
from sparring.learning.rows import RowRules
from sparring.learning.step import Steps
from sparring.measures import MeasureSet
from sparring.player import Played
from sparring.run_folder import RunFolder
from sparring.run_folder.records import from_record
from sparring.run_folder.rollout_log import RolloutLog
from tests.learning.notebook_engine import NotebookEngine

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
    return passed("it is yes") if rollout.answer == "yes" else failed("it is not")


class Training:
    """Steps of a training whose engine only takes notes."""

    def __init__(self, folder, cases, proposed=(), *, hooks=None, plan=None, **settings):
        self.player = Scripted()
        self.engine = NotebookEngine(proposed)
        self.settings = TrainSettings(**{"num_generations": GROUP, "max_steps": 20, **settings})
        self.collector = RolloutCollector(
            RunFolder(folder),
            self.player,
            MeasureSet.of([right]),
            self.settings,
            rules=RowRules(end_of_turn=0, vocabulary=9),
            training=TrainingCases(cases, lambda case_id: Case(case_id, "?")),
            validation=[Case("fair-v", "?", split=Split.VALIDATION)],
        )
        self.collector.resume_at(0)
        self.engine.plan = plan or resolve_batches(self.settings, training_cases=len(cases))
        self.engine.steps_per_batch = self.engine.plan.boundary
        hooks = hooks or Hooks()
        guards = GuardMonitor(self.settings.guards, warn=hooks.on_warning)
        self.steps = Steps(self.engine, self.collector, self.settings, hooks, guards)

    def take(self):
        """Take one step, and return the batch that the engine learned from."""
        self.steps.take()
        return self.engine.batches[-1]


@pytest.fixture
def training(tmp_path):
    made = []

    def make(cases, proposed=(), **options):
        made.append(Training(tmp_path / "run", cases, proposed, **options))
        return made[-1]

    yield make
    for each in made:
        each.collector.close()


def logged(tmp_path):
    log = RolloutLog(RunFolder(tmp_path / "run").rollouts(0))
    return [from_record(record) for record in log.records(0, len(log))]


EASY = [f"easy-{n}" for n in range(3)]
FAIR = [f"fair-{n}" for n in range(9)]


# ------------------------------------------------------------------ one step


def test_a_step_calls_the_verbs_of_the_engine_in_the_order_of_the_page(training):
    made = training(FAIR, FAIR[:2])
    made.take()
    assert made.engine.noted == ["sample", "propose", "score", "update", "figures", "publish"]


def test_every_token_has_the_advantage_of_its_rollout(training):
    batch = training(FAIR, FAIR[:2]).take()
    assert [stream.rollout for stream in batch.streams] == list(range(2 * GROUP))
    signs = [[value > 0 for value in stream.advantages] for stream in batch.streams]
    assert signs == [[True], [False]] * GROUP
    assert batch.case_ids == (FAIR[0],) * GROUP + (FAIR[1],) * GROUP


def test_a_dead_group_that_stays_has_no_advantage(training):
    batch = training(EASY, EASY[:1], replacement_groups=0).take()
    assert {value for stream in batch.streams for value in stream.advantages} == {0.0}


def test_a_gap_that_is_too_large_is_refused_before_the_update(training):
    seen = []
    made = training(FAIR, FAIR[:2], hooks=Hooks(on_parity=seen.append))
    made.engine.gap = 0.5
    with pytest.raises(ParityError, match=r"differ by 5\.0e-01 at most.*The notebook was torn\."):
        made.take()
    assert "update" not in made.engine.noted
    assert [each.largest for each in seen] == [0.5]


def test_parity_in_this_process_is_compared_once(training):
    seen = []
    made = training(FAIR, FAIR[:2], hooks=Hooks(on_parity=seen.append))
    made.take()
    made.take()
    assert len(seen) == 1


def test_gaps_are_logged_with_the_tokens(training, tmp_path):
    made = training(FAIR, FAIR[:1])
    made.engine.gap = 2**-12
    made.take()
    assert {tuple(row.gaps) for each in logged(tmp_path) for row in each.rows} == {(2**-12,)}


# ------------------------------------------------------------------ many steps


def run(made):
    made.steps.run()
    return made


def test_a_training_is_validated_before_its_first_step_and_when_it_saves(training):
    scores = []
    hooks = Hooks(on_validation=lambda step, figures: scores.append((step, figures["reward"])))
    made = run(training(FAIR, FAIR[:2], hooks=hooks, max_steps=3, save_steps=2))
    assert scores == [(0, 1.0), (2, 1.0), (3, 1.0)]
    assert made.engine.start_score == 1.0
    assert [each.score for each in made.engine.saved] == [1.0, 1.0]


def test_weights_are_published_before_anything_samples_with_them(training):
    made = run(training(FAIR, FAIR[:2], max_steps=3))
    assert made.engine.published == [0, 1, 2, 3]
    assert made.engine.noted[:2] == ["publish", "sample"]


def test_a_stop_ends_the_training_after_its_step_with_a_report_and_a_checkpoint(training):
    reported = []
    hooks = Hooks(on_step=lambda step, _: reported.append(step), should_stop=lambda: True)
    made = run(training(FAIR, FAIR[:2], hooks=hooks, max_steps=9, logging_steps=5))
    assert made.steps.stopped
    assert reported == [1]
    assert len(made.engine.saved) == made.engine.step == 1


def test_a_stop_after_the_last_step_comes_too_late(training):
    made = run(training(FAIR, FAIR[:2], hooks=Hooks(should_stop=lambda: True), max_steps=1))
    assert not made.steps.stopped
    assert len(made.engine.saved) == 1


def test_steps_are_reported_when_they_are_due_and_the_last_one_always(training):
    reported = []
    hooks = Hooks(on_step=lambda step, _: reported.append(step))
    run(training(FAIR, FAIR[:2], hooks=hooks, max_steps=5, logging_steps=2))
    assert reported == [2, 4, 5]


def test_a_guard_ends_the_training_with_a_checkpoint_of_its_step(training):
    hard = [f"hard-{n}" for n in range(4)]
    guards = {"dead_groups": {"action": "stop", "steps": 2}}
    made = run(training(hard, hard[:2], max_steps=9, guards=guards, replacement_groups=0))
    assert "guard dead_groups" in str(made.steps.guard_stop)
    assert made.engine.step == 2
    assert len(made.engine.saved) == 1
    assert not made.steps.stopped, "there was no request"


def test_a_generation_may_take_several_optimizer_steps(training):
    reported = []
    hooks = Hooks(on_step=lambda step, _: reported.append(step))
    settings = TrainSettings(num_generations=GROUP, max_steps=4, save_steps=2)
    plan = resolve_batches(settings, training_cases=len(FAIR), num_iterations=2)
    made = run(training(FAIR, FAIR[:2], hooks=hooks, plan=plan, max_steps=4, save_steps=2))
    assert reported == [1, 2, 3, 4]
    assert made.engine.published == [0, 2, 4]
    assert len(made.engine.batches) == len(made.engine.saved) == 2


# ------------------------------------------------------------------ dead groups


def figures_of(made):
    """The metrics of one step, and the rewards of the rollouts in its batch."""
    rows = []
    made.steps._reports._hooks = Hooks(on_step=lambda _, row: rows.append(row))
    made.take()
    return rows[-1]


def test_a_dead_group_is_replaced_by_one_that_teaches(training):
    made = training(EASY[:1] + FAIR, [*EASY[:1], FAIR[0]])
    batch = made.take()
    assert "easy-0" not in batch.case_ids
    assert made.player.played["easy-0"] == GROUP
    assert sum(made.player.played.values()) == 3 * GROUP


def test_a_replaced_group_is_logged_with_the_cause(training, tmp_path):
    made = training(EASY[:1] + FAIR, [*EASY[:1], FAIR[0]])
    figures = figures_of(made)
    easy = [each for each in logged(tmp_path) if each.case.id == "easy-0"]
    assert [each.advantage for each in easy] == [None] * GROUP
    assert {each.dropped for each in easy} == {
        "all 4 usable rollouts of its group passed; replaced"
    }
    assert figures["replaced/solved"] == figures["replaced_groups"] == 1
    assert figures["live_groups"] == 1
    assert figures["rollouts"] == 12


def test_the_budget_is_kept_and_groups_that_cannot_be_replaced_stay(training, tmp_path):
    hard = [f"hard-{n}" for n in range(9)]
    made = training(EASY[:2] + hard, EASY[:2], replacement_groups=3)
    figures = figures_of(made)
    assert sum(made.player.played.values()) == (2 + 3) * GROUP
    assert made.engine.batches[-1].case_ids == ("easy-0",) * GROUP + ("easy-1",) * GROUP
    assert figures["dead/solved"] == 2
    assert figures["failed_replacements/failed"] == 3
    assert figures["replaced_groups"] == 0
    assert figures["live_groups"] == 0
    dropped = {each.case.id.split("-")[0]: each.dropped for each in logged(tmp_path)}
    assert dropped["easy"] == "all 4 usable rollouts of its group passed"
    assert dropped["hard"].startswith("all 4 usable rollouts of its group failed")
    assert dropped["hard"].endswith("; a replacement, also without a gradient")


def test_nothing_is_replaced_without_a_budget(training):
    made = training(EASY + FAIR, EASY, replacement_groups=0)
    made.take()
    assert sum(made.player.played.values()) == 3 * GROUP


def test_with_a_world_model_failed_groups_stay_and_count_as_teaching(training):
    made = training(["hard-0", *FAIR], ["hard-0"], echo_coefficient=0.05)
    figures = figures_of(made)
    assert set(made.player.played) == {"hard-0"}
    assert (figures["live_groups"], figures["teaching_groups"]) == (0, 1)


def test_a_case_that_taught_nothing_is_drawn_less_later(training):
    made = training(EASY + FAIR, EASY, replacement_groups=0)
    for _ in range(12):
        made.take()
    easy = sum(count for case, count in made.player.played.items() if case in EASY)
    assert easy < sum(made.player.played.values()) / 2


def test_a_step_draws_the_same_cases_when_it_is_repeated(training):
    drawn = []
    for _ in range(2):
        made = training(EASY + FAIR, EASY)
        made.engine.step = 3
        made.take()
        drawn.append(made.player.played)
    assert drawn[0] == drawn[1]
