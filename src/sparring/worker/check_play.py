"""The playing of a check: the model to be trained, and others, each in its own time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sparring.contracts.cases import Case
from sparring.contracts.proof_specs import CheckSpec
from sparring.contracts.rollouts import Rollout, RolloutKey
from sparring.contracts.specs import PlaySettings
from sparring.engine.building import Built
from sparring.environments.environment import Parts
from sparring.learning.judged_play import play_and_judge
from sparring.measures import MeasureSet
from sparring.player import Play, Played
from sparring.policies.endpoint_policy import EndpointPolicy
from sparring.proofs.check_verdict import PlayedModel
from sparring.proofs.estimates import Measured
from sparring.proofs.learnability import is_passed
from sparring.run_folder import RunFolder
from sparring.worker.auditing import Auditor, spread
from sparring.worker.logged_play import LoggedPlay
from sparring.worker.model_log import ModelLog, log_name
from sparring.worker.playing import Beats, Progress
from sparring.worker.pulse import Pulse

LEARNER = "learner"
_LOOKED_AT_AGAIN = 64


@dataclass(slots=True)
class _Timed:
    """When each batch of rollouts was done: clock and CPU."""

    size: int
    seen: int = 0
    clock: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    last: tuple[float, float] = field(default_factory=lambda: _now())

    def note(self) -> None:
        self.seen += 1
        if self.seen % self.size == 0:
            now = _now()
            self.clock.append(now[0] - self.last[0])
            self.cpu.append(now[1] - self.last[1])
            self.last = now


class CheckPlay:
    """All models at the same time. `measured` is what a batch and a group took of the learner's,
    by the clock and by CPU."""

    def __init__(
        self,
        folder: RunFolder,
        spec: CheckSpec,
        parts: Parts,
        measures: MeasureSet,
        built: Built,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._parts = parts
        self._measures = measures
        self._built = built
        names = PlaySettings.model_fields
        own = {name: getattr(spec.settings, name) for name in names}
        self._play = PlaySettings(**{**own, "num_generations": spec.rollouts})
        self._cases = spread(parts.suite, spec.cases)
        self._few = spread(parts.suite, spec.other_cases)
        rollouts = spec.rollouts * (len(self._cases) + len(self._few) * len(spec.others))
        self._progress = Progress(rollouts)
        self.planned = spec.rollouts * len(self._cases)
        self.learner: list[Rollout] = []
        self.models: list[PlayedModel] = []
        self.measured: tuple[Measured, Measured] | None = None

    async def run(self, auditor: Auditor, pulse: Pulse) -> None:
        plan = self._built.plan
        rows = plan.cases_per_step * plan.rollouts_per_case
        timed = _Timed(min(rows, self._play.in_flight))
        learner = self._learner(timed.size, auditor)
        pulse.watch(lambda: self._progress.rollouts + learner.tokens_drawn())
        pulse.note("playing", step=0)
        beats = Beats(self._folder, self._progress, learner.tokens_drawn)
        beats.doing = "playing"
        log = ModelLog(self._folder, LEARNER, self._built.policy.name, self._spec.minutes)
        async with beats.beating():
            await asyncio.gather(
                self._played(LEARNER, learner, log, self.learner, timed),
                *(self._play_other(number) for number in range(len(self._spec.others))),
            )
            beats.doing = "timing"
            if timed.clock:
                self.measured = await self._time_a_group(timed)

    def _learner(self, block: int, auditor: Auditor) -> LoggedPlay:
        left = [_LOOKED_AT_AGAIN]

        async def look_again(rollout: Rollout) -> None:
            if left[0] > 0 and rollout.judgements:
                left[0] -= 1
                await auditor.look_again(rollout, LEARNER)

        return LoggedPlay(
            self._folder.rollouts_of(LEARNER),
            lambda: self._plan(self._cases),
            agent=self._parts.agent,
            policy=self._built.policy,
            measures=self._measures,
            play=self._play.model_copy(update={"in_flight": block}),
            context=self._parts.world,
            look_again=look_again,
        )

    async def _play_other(self, number: int) -> None:
        endpoint = self._spec.others[number]
        name = log_name(number, endpoint.model)
        seconds = 60.0 * self._spec.minutes
        logged = LoggedPlay(
            self._folder.rollouts_of(name),
            lambda: self._plan(self._few),
            agent=self._parts.agent,
            policy=EndpointPolicy([endpoint], retries=3, seconds=seconds),
            measures=self._measures,
            play=self._play.model_copy(update={"rollout_seconds": seconds}),
            context=self._parts.world,
        )
        log = ModelLog(self._folder, name, endpoint.model, self._spec.minutes)
        await self._played(name, logged, log, [])

    async def _played(
        self,
        name: str,
        logged: LoggedPlay,
        log: ModelLog,
        kept: list[Rollout],
        timed: _Timed | None = None,
    ) -> None:
        """Play until the end, or until the time is up; what there is then is judged."""
        kept += logged.earlier()
        for rollout in kept:
            self._progress.count(rollout)

        def note(played: Played) -> None:
            kept.append(played.rollout)
            self._progress.count(played.rollout)
            log.write(played)
            if timed is not None:
                timed.note()

        with log.telling(is_alone=timed is not None):
            async with asyncio.timeout(60 * self._spec.minutes):
                await logged.run(note)
        self.models.append(_figures_of(log, name, kept))

    async def _time_a_group(self, timed: _Timed) -> tuple[Measured, Measured]:
        """One group alone: what replacing a dead one costs."""
        size, case = self._built.plan.rollouts_per_case, self._cases[0]
        plays = [Play(RolloutKey(1, 0, case.id, index), case) for index in range(size)]
        began = _now()
        await play_and_judge(self._built.practice.player, self._measures, plays)
        ended = _now()
        # Where a step is more than may be in flight, it is played in several batches.
        plan = self._built.plan
        batches = plan.cases_per_step * plan.rollouts_per_case / timed.size
        return (
            Measured([batches * each for each in timed.clock], ended[0] - began[0], 0.0),
            Measured([batches * each for each in timed.cpu], ended[1] - began[1], 0.0),
        )

    def _plan(self, cases: Sequence[Case]) -> Iterator[Play]:
        """In groups, as in training, one of each case before the next: where time runs out, every
        case has been played about as often."""
        size, rollouts = self._spec.settings.num_generations, self._spec.rollouts
        for start in range(0, rollouts, size):
            for case in cases:
                for index in range(start, min(start + size, rollouts)):
                    yield Play(RolloutKey(self._play.seed, 0, case.id, index), case)


def _figures_of(log: ModelLog, name: str, rollouts: Sequence[Rollout]) -> PlayedModel:
    scored = [each for each in rollouts if each.reward is not None]
    correct = [each for each in scored if is_passed(each)]
    cases = {each.case.id for each in scored}
    return PlayedModel(
        name=log.model,
        log=name,
        cases=len(cases),
        rollouts=len(rollouts),
        unscored=len(rollouts) - len(scored),
        correct=len(correct),
        accuracy=len(correct) / len(scored) if scored else None,
        any_correct=len({each.case.id for each in correct}) / len(cases) if cases else None,
        reward=sum(each.reward or 0.0 for each in scored) / len(scored) if scored else None,
        seconds=round(log.seconds, 1),
        is_learner=name == LEARNER,
        message="; ".join(filter(None, (log.message, _unscored(rollouts)))),
    )


def _unscored(rollouts: Sequence[Rollout]) -> str:
    silent = [each for each in rollouts if each.reward is None]
    if not silent:
        return "" if rollouts else "it played nothing"
    return f"{len(silent)} of {len(rollouts)} rollouts unscored: {silent[0].detail}"


def _now() -> tuple[float, float]:
    return time.monotonic(), time.process_time()
