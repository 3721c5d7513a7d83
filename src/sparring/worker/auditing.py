"""Judging null players, and rollouts a second time, for the audit of measures."""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import MachineryFailure
from sparring.contracts.rollouts import Rollout
from sparring.contracts.verdicts import Judgement, cannot_tell
from sparring.measures import Measure, MeasureSet
from sparring.measures.judging import blend
from sparring.player.player import ContextFactory, taking_a_case
from sparring.player.worlds import end_world, world_tools
from sparring.proofs.audit import Sight
from sparring.proofs.null_players import PLAYERS, null_rollout, said
from sparring.run_folder import RunFolder
from sparring.run_folder.layout import NULL_PLAYERS
from sparring.run_folder.rollout_log import RolloutWriter
from sparring.suites import Suite

AUDITED_CASES = 8
_PATIENCE = 2
_SECONDS = 240.0


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
        self.left_out: list[str] = []
        self.has_world_tools = False
        self._late: Counter[str] = Counter()

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
        rollouts: list[Rollout] = []
        began = time.monotonic()
        try:
            for case in cases:
                rollouts += await self._of_case(case, cases)
            if not rollouts and self.left_out:
                raise MachineryFailure(self.left_out[0])
            seen: list[list[Sight]] = []
            for rollout in rollouts:
                if time.monotonic() - began > _SECONDS:
                    told = f"{len(seen)} of {len(rollouts)} answers were judged in {_SECONDS:g} s"
                    self.left_out.append(f"{told}; the others were left out")
                    break
                seen.append(await self._seen(rollout))
            anew = list(zip(rollouts, seen, strict=False))
            random.Random(0).shuffle(anew)  # noqa: S311 - any order, but always the same
            for rollout, sights in anew if time.monotonic() - began < _SECONDS else ():
                for number, each in enumerate(self._measures.applying_to(rollout)):
                    later = await self._judge(each, rollout)
                    score = later.judgement.verdict.score
                    sights[number] = replace(sights[number], later=score, was_reordered=True)
        finally:
            for rollout in rollouts:
                with contextlib.suppress(Exception):  # the user's code
                    await end_world(rollout.world)
        for rollout, sights in zip(rollouts, seen, strict=False):
            self.sights += sights
            if writer is not None:
                judged = tuple(sight.judgement for sight in sights)
                writer.append(replace(rollout, judgements=judged, reward=blend(judged)), 0.0)

    async def _of_case(self, case: Case, cases: Sequence[Case]) -> list[Rollout]:
        """What each player says to it, each in a world of its own."""
        made: list[Rollout] = []
        try:
            for number, player in enumerate(PLAYERS):
                if (answer := said(player, case, cases)) is not None:
                    world = await self._world(case)
                    self.has_world_tools = self.has_world_tools or bool(world_tools(world))
                    made.append(null_rollout(number, case, answer, world))
        except Exception as error:  # the user's code
            told = f"making the world of case {case.id} failed: {type(error).__name__}: {error}"
            self.left_out.append(told)
        return made

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
        if self._late[each.name] >= _PATIENCE:  # its threads are all taken by now
            cause = "no verdict in time, again and again"
            return _Judged(Judgement(each.name, cannot_tell(cause), 0.0, cause=cause), 0.0)
        judgement = await self._measures.judge_with(each, rollout)
        self._late[each.name] += "no verdict within" in (judgement.cause or "")
        return _Judged(judgement, time.monotonic() - started)
