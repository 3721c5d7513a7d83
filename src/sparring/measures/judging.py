"""Running measures on a rollout, each with a deadline, and blending their verdicts.

A measure that raises, times out or returns nonsense leaves the rollout unscored, with the
cause. Counting it as zero would teach the model that a broken judge is its own mistake.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sparring.contracts.errors import MeasureError
from sparring.contracts.rollouts import Rollout
from sparring.contracts.verdicts import (
    Judgement,
    Outcome,
    Verdict,
    cannot_tell,
    failed,
    passed,
    scored,
)
from sparring.measures.declaration import Judge, Measure
from sparring.measures.naming import resolve
from sparring.measures.ready import READY
from sparring.measures.reward_functions import Batch, RewardFunction
from sparring.threads import DaemonThreads

_THREADS = 64


@dataclass(frozen=True, slots=True)
class MeasureSet:
    """The measures of a run with their weights. Weight 0: judged and shown, not rewarded."""

    measures: tuple[Measure, ...]
    weights: Mapping[str, float]
    seconds: float = 30.0
    reward_functions: tuple[RewardFunction, ...] = ()
    threads: DaemonThreads = field(default_factory=lambda: DaemonThreads(_THREADS), compare=False)

    @classmethod
    def of(
        cls,
        measures: Sequence[Measure | str | Judge],
        weights: Mapping[str, float] | None = None,
        *,
        seconds: float = 30.0,
        reward_functions: Sequence[Batch] = (),
    ) -> MeasureSet:
        resolved = tuple(resolve(wanted) for wanted in measures)
        functions = tuple(RewardFunction.of(each, weights or {}) for each in reward_functions)
        if not resolved and not functions:
            raise MeasureError("nothing would be judged: give at least one measure")
        names = [each.name for each in resolved] + [each.name for each in functions]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise MeasureError(
                f"two measures are called {', '.join(twice)}; give one of them another `name`"
            )
        given = dict(weights or {})
        if unknown := sorted(set(given) - set(names)):
            raise MeasureError(
                f"weights name {', '.join(unknown)}, but the measures are {', '.join(names)}"
            )
        if not all(math.isfinite(weight) and weight >= 0 for weight in given.values()):
            raise MeasureError(f"weights must be numbers from 0 upwards: {given}")
        return cls(resolved, {name: given.get(name, 1.0) for name in names}, seconds, functions)

    async def judge(self, rollout: Rollout) -> Rollout:
        """The rollout with its verdicts and its reward."""
        if not rollout.ending.is_models_doing:
            return rollout
        judged = await asyncio.gather(
            *(self.judge_with(each, rollout) for each in self.applying_to(rollout))
        )
        return replace(rollout, judgements=tuple(judged), reward=blend(judged))

    async def judge_together(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Rollouts that measures have judged, with the word of the reward functions as well."""
        if not self.reward_functions:
            return list(rollouts)
        judged = list(rollouts)
        places = [n for n, rollout in enumerate(judged) if rollout.ending.is_models_doing]
        batch = [judged[n] for n in places]
        for each in self.reward_functions:
            if not batch:
                break
            judgements = await each.judge(batch, self.seconds, self.threads)
            for place, judgement in zip(places, judgements, strict=True):
                given = (*judged[place].judgements, judgement)
                judged[place] = replace(judged[place], judgements=given, reward=blend(given))
        return judged

    def applying_to(self, rollout: Rollout) -> list[Measure]:
        """The run's measures, and those that only this case names."""
        known = {each.name for each in self.measures}
        extra = [_from_data(name) for name in rollout.case.measures if name not in known]
        return [*self.measures, *extra]

    async def judge_with(self, each: Measure, rollout: Rollout) -> Judgement:
        weight = self.weights.get(each.name, 0.0)
        seconds = each.seconds or self.seconds
        cause = None
        try:
            async with asyncio.timeout(seconds) as deadline:
                verdict = _on_unit_scale(each, await self._call(each, rollout))
        except TimeoutError:
            cause = f"no verdict within {seconds:g} s" if deadline.expired() else "TimeoutError"
        except (
            Exception,
            SystemExit,
        ) as error:  # a measure is user code: whatever it raises is its cause
            cause = f"{type(error).__name__}: {error}{_place(error)}"
        if cause is not None:
            verdict = cannot_tell(f"the measure broke: {cause}")
        return Judgement(each.name, verdict, weight, each.threshold, cause)

    async def _call(self, each: Measure, rollout: Rollout) -> object:
        """Plain measures run on threads of their own: one that hangs must not take a tool's."""
        if inspect.iscoroutinefunction(each.judge):
            return await each.judge(rollout)
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self.threads, each.judge, rollout)
        return await result if inspect.isawaitable(result) else result


def _from_data(name: str) -> Measure:
    """A measure that a case names. Data may name ready ones only: nothing is imported for it."""
    if name in READY:
        return READY[name]()

    def judge(_: Rollout) -> Verdict:
        raise MeasureError(
            f"the case names a measure {name!r}; add it to the environment's measures, or name "
            f"one of {', '.join(sorted(READY))}"
        )

    return Measure(name, judge)


def blend(judgements: Sequence[Judgement]) -> float | None:
    """One reward from many verdicts: their weighted mean; none if a rewarded one is missing."""
    rewarded = [judgement for judgement in judgements if judgement.weight > 0]
    if not rewarded:
        return None
    total = sum(judgement.weight for judgement in rewarded)
    reward = 0.0
    for judgement in rewarded:
        if judgement.verdict.score is None:
            return None
        reward += judgement.weight / total * judgement.verdict.score
    return reward


def _place(error: BaseException) -> str:
    """The last line of code that was reached, for an error that a measure raised."""
    if isinstance(error, MeasureError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _verdict_of(each: Measure, returned: object) -> Verdict:
    """True, False and numbers stand for verdicts whose reason is that they were returned."""
    if isinstance(returned, Verdict):
        return returned
    if isinstance(returned, bool):
        return (passed if returned else failed)(f"{each.name} returned {returned}")
    if isinstance(returned, int | float):
        return scored(returned, f"{each.name} returned {returned:g}")
    raise MeasureError(
        f"{each.name} returned {returned!r}; return passed(reason), failed(reason), "
        "scored(score, reason) or cannot_tell(reason)"
    )


def _on_unit_scale(each: Measure, returned: object) -> Verdict:
    verdict = _verdict_of(each, returned)
    if verdict.outcome is not Outcome.SCORED or verdict.score is None:
        return verdict
    if not each.low <= verdict.score <= each.high:
        raise MeasureError(
            f"{each.name} scored {verdict.score:g}, outside of its range "
            f"{each.low:g}…{each.high:g}; declare it with @measure(range=(low, high))"
        )
    return replace(verdict, score=(verdict.score - each.low) / (each.high - each.low))
