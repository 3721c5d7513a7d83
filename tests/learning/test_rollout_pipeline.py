"""Pacing: every step is begun once, in order, with weights that depend on its number alone."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import PublishedWeights
from sparring.learning.drawing import Drawn
from sparring.learning.groups import StepRollouts
from sparring.learning.rollout_pipeline import Pace, RolloutPipeline


def proposed(step: int) -> list[list[str]]:
    return [[f"case-{step}"]]


class Collector:
    """Plays nothing, and notes what it should play. `newest` is the step of the weights."""

    def __init__(self) -> None:
        self.newest = 0
        self.begun: list[tuple[int, int, str]] = []
        self.ended: set[int] = set()

    @property
    def weights(self) -> PublishedWeights | None:
        return PublishedWeights(self.newest, f"v{self.newest}", "/policies")

    def draw(self, cases: Any, step: int) -> Drawn:
        assert cases == proposed(step)
        return Drawn((f"{cases[0][0]} drawn at {self.newest}",))

    def play(self, drawn: Drawn, step: int, weights: PublishedWeights | None) -> StepRollouts:
        assert weights is not None
        self.begun.append((step, weights.version, drawn.cases[0]))
        self.ended.add(step)
        return StepRollouts([], lambda _: True, version=weights.version)


def pipeline_of(collector: Collector, pace: Pace, **options: Any) -> RolloutPipeline:
    return RolloutPipeline(pace, proposed, collector.draw, collector.play, **options)


paces = st.builds(
    lambda generations, staleness, boundary: Pace(generations * boundary, staleness, boundary),
    st.integers(1, 9),
    st.integers(0, 4),
    st.integers(1, 3),
)


def learn(pipeline: RolloutPipeline, collector: Collector, steps: range) -> list[tuple[int, int]]:
    """Take these steps as a trainer does; return each with the version of its rollouts."""
    taken = []
    for step in steps:
        collector.newest = step
        each = pipeline.take(step, collector.weights)
        assert each.weights is not None
        assert each.result().version == each.weights.version
        taken.append((step, each.weights.version))
    return taken


@given(paces)
def test_each_step_is_played_once_with_the_newest_weights_that_the_pace_allows(pace: Pace) -> None:
    collector = Collector()
    steps = range(0, pace.steps, pace.boundary)
    taken = learn(pipeline_of(collector, pace), collector, steps)
    back = pace.max_staleness * pace.boundary
    assert taken == [(step, max(0, step - back)) for step in steps]
    assert sorted(step for step, _, _ in collector.begun) == list(steps)
    assert all(pace.allows(step, version) for step, version in taken)


@given(paces, st.data())
def test_a_run_that_resumes_plays_the_same_cases_with_the_same_weights(
    pace: Pace, data: st.DataObject
) -> None:
    steps = range(0, pace.steps, pace.boundary)
    stop = data.draw(st.sampled_from(steps))
    before, after = Collector(), Collector()
    whole = pipeline_of(before, pace)
    first = learn(whole, before, range(0, stop, pace.boundary))
    saved = json.loads(json.dumps(whole.to_dict()))
    resumed = pipeline_of(after, pace)
    resumed.restore(saved)
    rest = range(stop, pace.steps, pace.boundary)
    assert first + learn(resumed, after, rest) == first + learn(whole, before, rest)
    begun = {each for each in before.begun if each[0] >= stop}
    assert set(after.begun) == begun
    assert len(after.begun) == len(begun)


@given(paces, st.integers(0, 4))
def test_steps_that_a_smaller_staleness_forbids_are_dropped_on_resuming(
    pace: Pace, bound: int
) -> None:
    collector = Collector()
    pipeline = pipeline_of(collector, pace)
    learn(pipeline, collector, range(0, pace.steps, pace.boundary)[:3])
    smaller = Pace(pace.steps, min(bound, pace.max_staleness), pace.boundary)
    resumed = pipeline_of(Collector(), smaller)
    resumed.restore(pipeline.to_dict())
    for each in resumed.to_dict()["steps"]:
        assert smaller.allows(each["step"], each["weights"]["version"])


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_the_steps_ahead_are_in_play_while_the_trainer_updates(staleness: int) -> None:
    collector, pace = Collector(), Pace(9, staleness)
    pipeline = pipeline_of(collector, pace)
    learn(pipeline, collector, range(4))
    ahead = [each["step"] for each in pipeline.to_dict()["steps"]]
    assert ahead == list(range(4, 4 + staleness))
    names = {f"v{max(0, step - staleness)}" for step in ahead}
    assert {each.name for each in pipeline.versions_in_play()} == names


def test_a_step_that_is_not_ready_is_waited_for() -> None:
    gate, collector = threading.Event(), Collector()
    play = collector.play

    def slow(drawn: Drawn, step: int, weights: Any) -> StepRollouts:
        if step == 1:
            assert gate.wait(20)
        return play(drawn, step, weights)

    collector.play = slow  # type: ignore[method-assign]
    pipeline = pipeline_of(collector, Pace(3, 1))
    pipeline.take(0, collector.weights).result()
    assert 1 not in collector.ended
    threading.Timer(0.05, gate.set).start()
    assert pipeline.take(1, collector.weights).result().version == 0
    assert 1 in collector.ended


def test_a_failure_is_raised_by_the_step_it_belongs_to() -> None:
    collector = Collector()
    play = collector.play

    def fail(drawn: Drawn, step: int, weights: Any) -> StepRollouts:
        if step == 1:
            raise InfrastructureError("no server answered")
        return play(drawn, step, weights)

    collector.play = fail  # type: ignore[method-assign]
    pipeline = pipeline_of(collector, Pace(3, 2))
    pipeline.take(0, collector.weights).result()
    with pytest.raises(InfrastructureError, match="no server answered"):
        pipeline.take(1, collector.weights).result()


def test_a_checkpoint_with_other_cases_in_play_is_refused() -> None:
    collector = Collector()
    pipeline = pipeline_of(collector, Pace(3, 1))
    pipeline.take(0, collector.weights)
    other = RolloutPipeline(Pace(3, 1), lambda _: [["another"]], collector.draw, collector.play)
    with pytest.raises(InfrastructureError, match="step 1 in play, but the engine now proposes"):
        other.restore(pipeline.to_dict())


def test_idle_times_add_up() -> None:
    now = [0.0]
    collector = Collector()
    play = collector.play

    def takes_three(drawn: Drawn, step: int, weights: Any) -> StepRollouts:
        now[0] += 3
        return play(drawn, step, weights)

    collector.play = takes_three  # type: ignore[method-assign]
    pipeline = pipeline_of(collector, Pace(3), clock=lambda: now[0])

    def figures_of(step: int) -> dict[str, float]:
        taken = pipeline.take(step, collector.weights)
        taken.result()
        return pipeline.counts(step, taken.weights).plus(rollouts=1).metrics()

    first = figures_of(0)
    now[0] += 2  # the update
    second = figures_of(1)
    for figures, idle in ((first, 0), (second, 2)):
        assert figures["trainer_idle_seconds"] == 3
        assert figures["sampler_idle_seconds"] == idle
    assert pipeline.counts(1, None).sums == {}, "weights in this process wait for nobody"
