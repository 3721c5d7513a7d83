"""Summarises an evaluation, one rollout at a time, with confidence intervals of pass rates."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from sparring.contracts.rollouts import CallFailure, Ending, Rollout, TokenUse
from sparring.contracts.specs import FORMAT
from sparring.contracts.summaries import Figures, MeasureFigures, Reason, Share

_Z95 = 1.959963984540054
_MIN_VARIANCE = 1e-12  # less is rounding
_REASONS_SHOWN = 5
_REASONS_TRACKED = 2000
_VARIABLE = re.compile(r"\b[0-9a-f]{12,}(?:~\d+)?\b|(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|[-+]?\d[\d.,]*")


def share_of_cases(shares: list[float], *, rollouts: int | None = None) -> Share | None:
    """Return the mean of shares, one per case (the share of its rollouts that passed).

    The interval treats the case as the unit: rollouts of one case are correlated, so counting each
    as independent evidence would make it too narrow. It is never narrower than that of `rollouts`
    independent rollouts. With one rollout per case, it is Wilson's interval. Returns None without
    cases.
    """
    count = len(shares)
    if count == 0:
        return None
    mean = sum(shares) / count
    # The variance of shares is at most a Bernoulli variable's, and smaller with several rollouts
    # per case. The effective count is the number of Bernoulli trials whose mean has the same
    # variance as the mean of the shares.
    variance = sum((share - mean) ** 2 for share in shares) / max(count - 1, 1)
    bernoulli = mean * (1 - mean) * count / max(count - 1, 1)
    can_estimate = variance > _MIN_VARIANCE and bernoulli > 0
    effective = count * bernoulli / variance if can_estimate else float(count)
    return _wilson(mean, effective if rollouts is None else min(effective, rollouts), count)


def _wilson(mean: float, effective: float, count: int) -> Share:
    square = _Z95**2
    middle = (mean + square / (2 * effective)) / (1 + square / effective)
    spread = (
        _Z95
        / (1 + square / effective)
        * math.sqrt(mean * (1 - mean) / effective + square / (4 * effective**2))
    )
    return Share(mean, max(0.0, middle - spread), min(1.0, middle + spread), count)


class Reasons:
    """Counts reasons by shape, and keeps one example of each. Numbers, long ids and quoted text are
    not part of the shape: "expected 12, got 13" and "expected 7, got 9" are the same reason."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def add(self, reason: str) -> None:
        """Count one reason."""
        shape = _VARIABLE.sub("…", reason[:300])
        self._counts[shape] += 1
        self._examples.setdefault(shape, reason[:300])
        if len(self._counts) > _REASONS_TRACKED:  # bounds memory if few shapes repeat
            for rare, _ in self._counts.most_common()[_REASONS_TRACKED // 2 :]:
                del self._counts[rare], self._examples[rare]

    def most_common(self) -> tuple[Reason, ...]:
        """Return the five most frequent reasons, each with its count, an example and its shape.
        Counts are lower bounds if there were more than 2,000 shapes."""
        return tuple(
            Reason(count, self._examples[shape], shape)
            for shape, count in self._counts.most_common(_REASONS_SHOWN)
        )


@dataclass(slots=True)
class _MeasureTally:
    """The counts of one measure; `judged` and `correct` count rollouts by case."""

    weight: float = 0.0
    judged: Counter[str] = field(default_factory=Counter)
    correct: Counter[str] = field(default_factory=Counter)
    scores: float = 0.0
    cannot_tell: int = 0
    broken: int = 0
    reasons: Reasons = field(default_factory=Reasons)


class EvalTally:
    """Running totals of an evaluation. Memory grows with cases, never with rollouts."""

    def __init__(self) -> None:
        self._measures: dict[str, _MeasureTally] = defaultdict(_MeasureTally)
        self._endings: Counter[str] = Counter()
        self._details = Reasons()
        self._tools: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()
        self._reward_sum = 0.0

    def add(self, rollout: Rollout) -> None:
        """Count one rollout and its judgements."""
        self._endings[rollout.ending.value] += 1
        if rollout.ending is not Ending.ANSWERED:
            self._details.add(f"{rollout.ending.value}: {rollout.detail}")
        self._totals.update(
            rollouts=1,
            turns=rollout.turns,
            prompt_tokens=rollout.tokens.prompt,
            sampled_tokens=rollout.tokens.sampled,
            truncated=int(rollout.is_truncated),
            parsed=int(rollout.ending is not Ending.UNPARSABLE_CALL),
            with_a_call=int(bool(rollout.tool_calls)),
            unscored=int(rollout.reward is None),
        )
        if rollout.reward is not None:
            self._reward_sum += rollout.reward
        for call in rollout.tool_calls:
            self._tools[call.tool if call.failure != CallFailure.UNKNOWN_TOOL else "(unknown)"] += 1
            if call.failure is not None:
                self._failures[call.failure.value] += 1
        self._add_judgements(rollout)

    def figures(self) -> Figures:
        """Return the figures of all rollouts so far."""
        rollouts = self._totals["rollouts"]
        scored = rollouts - self._totals["unscored"]
        return Figures(
            format=FORMAT,
            rollouts=rollouts,
            unscored=self._totals["unscored"],
            reward=self._reward_sum / scored if scored else None,
            measures={name: _measure_figures(tally) for name, tally in self._measures.items()},
            endings=dict(self._endings.most_common()),
            causes=self._details.most_common(),
            parse_rate=_rate(self._totals["parsed"], rollouts),
            truncated=_rate(self._totals["truncated"], rollouts),
            called_a_tool=_rate(self._totals["with_a_call"], rollouts),
            tool_calls=dict(self._tools.most_common()),
            tool_failures=dict(self._failures.most_common()),
            turns=self._totals["turns"],
            tokens=TokenUse(self._totals["prompt_tokens"], self._totals["sampled_tokens"]),
        )

    def _add_judgements(self, rollout: Rollout) -> None:
        for judgement in rollout.judgements:
            tally = self._measures[judgement.measure]
            tally.weight = max(tally.weight, judgement.weight)
            is_correct = judgement.is_correct
            if is_correct is None:
                tally.cannot_tell += 1
                tally.broken += judgement.cause is not None
                tally.reasons.add(judgement.verdict.reason)
                continue
            tally.judged[rollout.case.id] += 1
            tally.scores += judgement.verdict.score or 0.0
            if is_correct:
                tally.correct[rollout.case.id] += 1
            else:
                tally.reasons.add(judgement.verdict.reason)


def _measure_figures(tally: _MeasureTally) -> MeasureFigures:
    judged = sum(tally.judged.values())
    shares = [tally.correct[case] / count for case, count in tally.judged.items()]
    return MeasureFigures(
        weight=tally.weight,
        judged=judged,
        cannot_tell=tally.cannot_tell,
        broken=tally.broken,
        pass_rate=share_of_cases(shares, rollouts=judged),
        mean_score=tally.scores / judged if judged else None,
        reasons_for_failing=tally.reasons.most_common(),
    )


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None
