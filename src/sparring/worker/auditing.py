"""Judging null players, and rollouts a second time, for the audit of measures."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import MachineryFailure
from sparring.contracts.rollouts import Rollout
from sparring.contracts.verdicts import Judgement
from sparring.measures import Measure, MeasureSet
from sparring.measures.judging import blend
from sparring.player.player import ContextFactory, taking_a_case
from sparring.player.worlds import end_world
from sparring.proofs.audit import Sight
from sparring.proofs.null_players import PLAYERS, null_rollout
from sparring.run_folder import RunFolder
from sparring.run_folder.layout import NULL_PLAYERS
from sparring.run_folder.rollout_log import RolloutWriter
from sparring.suites import Suite

AUDITED_CASES = 8


async def audit_null_players(
    folder: RunFolder, auditor: Auditor, suite: Suite, count: int = AUDITED_CASES
) -> None:
    """Null players on some training cases, from all over the suite, into a log of their own."""
    place = folder.rollouts_of(NULL_PLAYERS)
    if place.exists():  # of an attempt before this one
        shutil.rmtree(place)
    with RolloutWriter(place) as writer:
        await auditor.play_null(spread(suite, count), writer)


def spread(suite: Suite, wanted: int) -> list[Case]:
    """So many training cases from all over: files are often sorted."""
    size = suite.size(Split.TRAINING)
    if size <= wanted:
        return list(suite.cases(Split.TRAINING))
    places = {round(number * (size - 1) / max(1, wanted - 1)) for number in range(wanted)}
    return [case for n, case in enumerate(suite.cases(Split.TRAINING)) if n in places]


@dataclass(frozen=True, slots=True)
class _Judged:
    judgement: Judgement
    seconds: float


class Auditor:
    """Asks measures, one at a time, and keeps what they said."""

    def __init__(self, measures: MeasureSet, context: ContextFactory | None = None) -> None:
        self._measures = measures
        self._world = taking_a_case(context)
        self.sights: list[Sight] = []
        self.judged = 0

    async def look_again(self, rollout: Rollout, log: str) -> None:
        """A rollout that was judged already, while its world is still there."""
        for each in self._measures.applying_to(rollout):
            first = next((one for one in rollout.judgements if one.measure == each.name), None)
            if first is None:
                continue
            again = await self._judge(each, rollout)
            self.sights.append(
                Sight(
                    first,
                    f"{log}/{rollout.id}",
                    rollout.case.id,
                    seconds=again.seconds,
                    at_once=again.judgement.verdict.score,
                    was_repeated=True,
                    is_side_condition=each.is_side_condition,
                )
            )

    async def play_null(self, cases: Sequence[Case], writer: RolloutWriter | None = None) -> None:
        """Every null player on every case; each rollout judged twice, and once more in
        another order."""
        rollouts = [
            null_rollout(number, case, answer, await self._made(case))
            for case in cases
            for number, player in enumerate(PLAYERS)
            if (answer := player.answer(case, cases)) is not None
        ]
        try:
            seen = [await self._seen(rollout) for rollout in rollouts]
            anew = list(zip(rollouts, seen, strict=True))
            random.Random(0).shuffle(anew)  # noqa: S311 - any order, but always the same
            for rollout, sights in anew:
                for number, each in enumerate(self._measures.applying_to(rollout)):
                    later = await self._judge(each, rollout)
                    sights[number] = replace(sights[number], later=later.judgement.verdict.score)
        finally:
            for rollout in rollouts:
                await end_world(rollout.world)
        for rollout, sights in zip(rollouts, seen, strict=True):
            self.sights += sights
            if writer is not None:
                judged = tuple(sight.judgement for sight in sights)
                writer.append(replace(rollout, judgements=judged, reward=blend(judged)), 0.0)

    async def _made(self, case: Case) -> Any:
        try:
            return await self._world(case)
        except Exception as error:  # the user's code
            told = f"making the world of case {case.id} failed: {type(error).__name__}: {error}"
            raise MachineryFailure(told) from error

    async def _seen(self, rollout: Rollout) -> list[Sight]:
        sights = []
        for each in self._measures.applying_to(rollout):
            first = await self._judge(each, rollout)
            again = await self._judge(each, rollout)
            sights.append(
                Sight(
                    first.judgement,
                    f"{NULL_PLAYERS}/{rollout.id}",
                    rollout.case.id,
                    player=PLAYERS[rollout.key.step].name,
                    seconds=first.seconds,
                    at_once=again.judgement.verdict.score,
                    was_repeated=True,
                    is_side_condition=each.is_side_condition,
                )
            )
        return sights

    async def _judge(self, each: Measure, rollout: Rollout) -> _Judged:
        started = time.monotonic()
        self.judged += 1
        judgement = await self._measures.judge_with(each, rollout)
        return _Judged(judgement, time.monotonic() - started)
