"""Judges null players and repeats judgements, to collect the data for an audit of measures."""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sparring.contracts.cases import Case
from sparring.contracts.errors import InfrastructureError
from sparring.contracts.rollouts import Rollout
from sparring.contracts.verdicts import Judgement, cannot_tell
from sparring.measures import Measure, MeasureSet
from sparring.measures.judging import blend
from sparring.player.player import ContextFactory, as_case_factory
from sparring.player.worlds import end_world, world_tools
from sparring.proofs.audit import Observation
from sparring.proofs.null_players import PLAYERS, answer_of, null_rollout
from sparring.run_folder import RunFolder
from sparring.run_folder.layout import NULL_PLAYERS
from sparring.run_folder.rollout_log import RolloutWriter
from sparring.suites import Suite
from sparring.tracebacks import error_with_line

AUDITED_CASES = 8
_MAX_TIMEOUTS = 2  # per measure
_TIME_LIMIT_SECONDS = 240.0


async def audit_null_players(
    folder: RunFolder, auditor: Auditor, suite: Suite, count: int = AUDITED_CASES
) -> None:
    """Play null players on up to `count` training cases, and log their rollouts."""
    log = folder.rollouts_of(NULL_PLAYERS)
    if log.exists():  # written by an earlier attempt
        shutil.rmtree(log)
    with RolloutWriter(log) as writer:
        await auditor.play_null(suite.spread(count), writer)


@dataclass(frozen=True, slots=True)
class _TimedJudgement:
    judgement: Judgement
    seconds: float


@dataclass(frozen=True, slots=True)
class _NullPlay:
    """A null player's rollout, and what each measure said of it."""

    rollout: Rollout
    observations: list[Observation] = field(default_factory=list)

    def judged_rollout(self) -> Rollout:
        judged = tuple(observation.judgement for observation in self.observations)
        return replace(self.rollout, judgements=judged, reward=blend(judged))


class Auditor:
    """Runs measures one at a time and collects their judgements in `observations`. Each message in
    `left_out` describes cases or answers that were not judged. `shown` are the answers of the
    agent's worked examples, which a null player repeats."""

    def __init__(
        self,
        measures: MeasureSet,
        context: ContextFactory | None = None,
        shown: Sequence[str] = (),
    ) -> None:
        self._measures = measures
        self._shown = shown
        self._world = as_case_factory(context)
        self.observations: list[Observation] = []
        self.judged = 0
        self.left_out: list[str] = []
        self.has_world_tools = False
        self._timeouts: Counter[str] = Counter()

    def add(self, rollout: Rollout, log: str) -> None:
        """Take the judgements of a logged rollout, whose world has ended, as they are."""
        by_measure = {each.measure: each for each in rollout.judgements}
        self.observations += [
            Observation(
                by_measure[each.name],
                f"{log}/{rollout.id}",
                rollout.case.id,
                is_side_condition=each.is_side_condition,
            )
            for each in self._measures.measures_for(rollout)
            if each.name in by_measure
        ]

    def rewarded(self, rollouts: Sequence[Rollout]) -> frozenset[str]:
        """Return the measures that carry reward, also those that only some cases name."""
        seen = [each.judgement for each in self.observations]
        seen += [each for rollout in rollouts for each in rollout.judgements]
        named = {name for name, weight in self._measures.weights.items() if weight > 0}
        return frozenset(named | {each.measure for each in seen if each.weight > 0})

    async def judge_again(self, rollout: Rollout, log: str) -> None:
        """Judge a judged rollout once more; its world must not have ended."""
        for each in self._measures.measures_for(rollout):
            first = next((item for item in rollout.judgements if item.measure == each.name), None)
            if first is None:
                continue
            again = await self._judge(each, rollout)
            self.observations.append(
                Observation(
                    first,
                    f"{log}/{rollout.id}",
                    rollout.case.id,
                    seconds=again.seconds,
                    at_once=again.judgement.verdict.score,
                    was_repeated=not again.judgement.cause,
                    is_side_condition=each.is_side_condition,
                )
            )

    async def play_null(self, cases: Sequence[Case], writer: RolloutWriter | None = None) -> None:
        """Play every null player on every case. Judge each rollout twice in a row, and all of them
        once more in another order. Judgements that do not start within 240 s are left out."""
        plays: list[_NullPlay] = []
        started = time.monotonic()
        try:
            for case in cases:
                plays += await self._play_case(case, cases)
            if not plays and self.left_out:
                raise InfrastructureError(self.left_out[0])
            judged = await self._judge_twice(plays, started)
            await self._judge_in_another_order(judged, started)
        finally:
            for play in plays:
                with contextlib.suppress(Exception):  # the user's code
                    await end_world(play.rollout.world)
        for play in judged:
            self.observations += play.observations
        if writer is not None:  # player by player: in a log, steps never decrease
            for play in sorted(judged, key=lambda each: each.rollout.key.step):
                writer.append(play.judged_rollout(), 0.0)

    async def _play_case(self, case: Case, cases: Sequence[Case]) -> list[_NullPlay]:
        """Return the answer of each null player to the case, each with its own world."""
        plays: list[_NullPlay] = []
        try:
            for number, player in enumerate(PLAYERS):
                if (answer := answer_of(player, case, cases, self._shown)) is not None:
                    world = await self._world(case)
                    self.has_world_tools = self.has_world_tools or bool(world_tools(world))
                    plays.append(_NullPlay(null_rollout(number, case, answer, world)))
        except Exception as error:  # the user's code
            self.left_out.append(
                f"making the world of case {case.id} failed: {error_with_line(error)}"
            )
        return plays

    async def _judge_twice(self, plays: list[_NullPlay], started: float) -> list[_NullPlay]:
        """Judge each rollout twice in a row; return those that were judged."""
        for place, play in enumerate(plays):
            if time.monotonic() - started > _TIME_LIMIT_SECONDS:
                self.left_out.append(
                    f"{place} of {len(plays)} answers were judged in "
                    f"{_TIME_LIMIT_SECONDS:g} s; the others were left out"
                )
                return plays[:place]
            for measure in self._measures.measures_for(play.rollout):
                first = await self._judge(measure, play.rollout)
                again = await self._judge(measure, play.rollout)
                play.observations.append(
                    Observation(
                        first.judgement,
                        f"{NULL_PLAYERS}/{play.rollout.id}",
                        play.rollout.case.id,
                        player=PLAYERS[play.rollout.key.step].name,
                        seconds=first.seconds,
                        at_once=again.judgement.verdict.score,
                        was_repeated=not again.judgement.cause,
                        is_side_condition=measure.is_side_condition,
                    )
                )
        return plays

    async def _judge_in_another_order(self, plays: list[_NullPlay], started: float) -> None:
        reordered = list(plays)
        random.Random(0).shuffle(reordered)  # noqa: S311 - a reproducible order
        for place, play in enumerate(reordered):
            if time.monotonic() - started > _TIME_LIMIT_SECONDS:
                self.left_out.append(
                    f"{place} of {len(reordered)} answers were judged again in another order "
                    f"within {_TIME_LIMIT_SECONDS:g} s"
                )
                return
            for number, measure in enumerate(self._measures.measures_for(play.rollout)):
                later = (await self._judge(measure, play.rollout)).judgement
                play.observations[number] = replace(
                    play.observations[number],
                    later=later.verdict.score,
                    was_reordered=not later.cause,
                )

    async def _judge(self, measure: Measure, rollout: Rollout) -> _TimedJudgement:
        started = time.monotonic()
        self.judged += 1
        if self._timeouts[measure.name] >= _MAX_TIMEOUTS:  # a call may leave a hung thread
            cause = f"no verdict in time, {_MAX_TIMEOUTS} times; not tried again"
            return _TimedJudgement(
                Judgement(measure.name, cannot_tell(cause), 0.0, cause=cause), 0.0
            )
        judgement = await self._measures.judge_with(measure, rollout)
        self._timeouts[measure.name] += judgement.has_timed_out
        return _TimedJudgement(judgement, time.monotonic() - started)
