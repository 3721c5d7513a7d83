"""Finds measures by name, runs them on a rollout, each with a deadline, and blends their verdicts.

A name is that of a built-in measure, of an entry point in the group `sparring.measures`, or
`module:name`. If a measure raises, times out or returns an invalid value, its verdict is "cannot
tell" with the cause. The rollout then has no reward if the measure has a weight: a reward of zero
would train the model on the measure's bug.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparring.contracts.errors import MeasureError, SparringError, error_text
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
from sparring.installed import load_plugin, plugin_names
from sparring.measures.builtin import BUILTIN
from sparring.measures.declaration import Judge, Measure, measure
from sparring.measures.reward_functions import Batch, RewardFunction
from sparring.threads import DaemonThreads
from sparring.tracebacks import line_that_raised, place_of

GROUP = "sparring.measures"
_THREADS = 64


def resolve(reference: Measure | str | Judge) -> Measure:
    """Return the measure for a measure, a function, or the name of a measure."""
    if isinstance(reference, Measure):
        return reference
    if callable(reference):
        return measure(reference)
    if isinstance(reference, str):
        return _by_name(reference)
    raise MeasureError(f"{reference!r} is not a measure; pass a @measure function or a name")


def _by_name(name: str) -> Measure:
    if name in BUILTIN:
        return BUILTIN[name]()
    if ":" not in name and (plugin := load_plugin(GROUP, name)) is not None:
        return resolve(plugin)
    module, _, attribute = name.partition(":")
    if not attribute:
        known = ", ".join(sorted([*BUILTIN, *plugin_names(GROUP)]))
        raise MeasureError(
            f"there is no built-in measure {name!r}; use one of {known}, or name your own as "
            "`module:name`"
        )
    try:
        return resolve(getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise MeasureError(f"measure {name!r} cannot be loaded: {error}") from error


@dataclass(frozen=True, slots=True)
class MeasureSet:
    """The measures of a run with their weights. A measure with weight 0 is reported only."""

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
        """Resolve the measures and validate their names and weights."""
        resolved = tuple(resolve(item) for item in measures)
        functions = tuple(RewardFunction.of(item, weights or {}) for item in reward_functions)
        if not resolved and not functions:
            raise MeasureError(
                "nothing would be judged: give at least one measure or reward function"
            )
        names = [item.name for item in resolved] + [item.name for item in functions]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise MeasureError(
                f"two measures are called {', '.join(duplicates)}; give one of them another `name`"
            )
        custom_weights = dict(weights or {})
        if unknown := sorted(set(custom_weights) - set(names)):
            raise MeasureError(
                f"weights name {', '.join(unknown)}, but the measures are {', '.join(names)}"
            )
        if not all(math.isfinite(weight) and weight >= 0 for weight in custom_weights.values()):
            raise MeasureError(
                f"weights must be finite numbers of at least 0, got {custom_weights}"
            )
        return cls(
            resolved, {name: custom_weights.get(name, 1.0) for name in names}, seconds, functions
        )

    async def judge(self, rollout: Rollout) -> Rollout:
        """Return the rollout with its verdicts and reward. A rollout whose ending is not judged
        (`Ending.is_judged`) is returned unchanged."""
        if not rollout.ending.is_judged:
            return rollout
        judged = await asyncio.gather(
            *(self.judge_with(measure, rollout) for measure in self.measures_for(rollout))
        )
        return replace(rollout, judgements=tuple(judged), reward=blend(judged))

    async def judge_together(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Add the verdicts of the reward functions to rollouts that measures have judged."""
        if not self.reward_functions:
            return list(rollouts)
        judged = list(rollouts)
        indices = [n for n, rollout in enumerate(judged) if rollout.ending.is_judged]
        batch = [judged[index] for index in indices]
        for function in self.reward_functions:
            if not batch:
                break
            judgements = await function.judge(batch, self.seconds, self.threads)
            for index, judgement in zip(indices, judgements, strict=True):
                combined = (*judged[index].judgements, judgement)
                judged[index] = replace(judged[index], judgements=combined, reward=blend(combined))
        return judged

    def measures_for(self, rollout: Rollout) -> list[Measure]:
        """Return the run's measures and the additional measures that the case names."""
        known = {measure.name for measure in self.measures}
        extra = [_from_data(name) for name in rollout.case.measures if name not in known]
        return [*self.measures, *extra]

    async def judge_with(self, measure: Measure, rollout: Rollout) -> Judgement:
        """Return one measure's judgement; if it fails, "cannot tell" with the cause."""
        weight = self.weights.get(measure.name, 1.0)  # additional measures of a case have weight 1
        seconds = measure.seconds or self.seconds
        cause, has_timed_out = None, False
        try:
            async with asyncio.timeout(seconds) as deadline:
                verdict = _on_unit_scale(measure, await self._call(measure, rollout))
        except TimeoutError:
            has_timed_out = deadline.expired()
            cause = f"no verdict within {seconds:g} s" if has_timed_out else "TimeoutError"
        except (Exception, SystemExit) as error:  # a measure is user code and may raise anything
            cause = f"{error_text(error)}{_location(error)}"
        if cause is not None:
            verdict = cannot_tell(f"the measure broke: {cause}")
        return Judgement(measure.name, verdict, weight, measure.threshold, cause, has_timed_out)

    async def _call(self, measure: Measure, rollout: Rollout) -> object:
        """Call a measure. Synchronous measures have their own threads, because they may hang."""
        if inspect.iscoroutinefunction(measure.judge):
            return await measure.judge(rollout)
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self.threads, measure.judge, rollout)
        return await result if inspect.isawaitable(result) else result


def _from_data(name: str) -> Measure:
    """Return the built-in measure that a case names. Case data never causes an import."""
    if name in BUILTIN:
        return BUILTIN[name]()

    def judge(_: Rollout) -> Verdict:
        raise MeasureError(
            f"the case names an unknown measure {name!r}; add it to the environment's measures, "
            f"or name one of {', '.join(sorted(BUILTIN))}"
        )

    return Measure(name, judge)


def blend(judgements: Sequence[Judgement]) -> float | None:
    """Return the weighted mean of the scores, or None if no measure has a weight, or a measure with
    a weight could not give a score."""
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


def _location(error: BaseException) -> str:
    """Return the user's line where a measure raised; empty for an error of Sparring's."""
    line = "" if isinstance(error, SparringError) else line_that_raised(error)
    return f" ({line})" if line else ""


def _verdict_of(measure: Measure, returned: object) -> Verdict:
    """Return the verdict of a measure; a bool or number gets a generic reason."""
    if isinstance(returned, Verdict):
        return returned
    if isinstance(returned, bool):
        return (passed if returned else failed)(f"{measure.name} returned {returned}")
    if isinstance(returned, int | float):
        return scored(returned, f"{measure.name} returned {returned:g}")
    place = place_of(measure.judge)
    raise MeasureError(
        f"{measure.name}{f' ({place})' if place else ''} returned {returned!r}; return "
        "passed(reason), failed(reason), scored(score, reason) or cannot_tell(reason)"
    )


def _on_unit_scale(measure: Measure, returned: object) -> Verdict:
    verdict = _verdict_of(measure, returned)
    if verdict.outcome is not Outcome.SCORED or verdict.score is None:
        return verdict
    if not measure.low <= verdict.score <= measure.high:
        raise MeasureError(
            f"{measure.name} scored {verdict.score:g}, outside its range "
            f"{measure.low:g}…{measure.high:g}; declare it with @measure(range=(low, high))"
        )
    return replace(verdict, score=(verdict.score - measure.low) / (measure.high - measure.low))
