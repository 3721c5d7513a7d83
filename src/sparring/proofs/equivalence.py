"""Tests whether an artefact plays as well as its checkpoint.

A non-inferiority test: the artefact is equal if the interval of its paired difference excludes a
loss of the margin, or if all its answers and calls are the checkpoint's. With few cases the
interval is wide, and the verdict is usually `cannot tell`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparring.contracts.progress import counted
from sparring.contracts.rollouts import Ending, Rollout
from sparring.contracts.summaries import Difference, Equivalence, Likeness, Standing
from sparring.proofs.paired import paired_difference
from sparring.proofs.proof import missing_cases, rewards

MARGIN = 0.05


def compare(
    checkpoint: Sequence[Rollout], artefact: Sequence[Rollout], *, margin: float = MARGIN
) -> Equivalence:
    """Compare the rollouts of an artefact with those of its checkpoint on the same cases."""
    difference = paired_difference(rewards(checkpoint), rewards(artefact))
    missing = missing_cases((*checkpoint, *artefact), difference)
    expected = {each.id: _content(each) for each in checkpoint}
    same = sum(expected.get(each.id) == _content(each) for each in artefact)
    likeness = _likeness(difference, margin, is_identical=0 < same == len(artefact))
    sentence = _sentence(likeness, difference, margin, same, len(artefact))
    if missing and likeness is Likeness.EQUAL:
        likeness, sentence = Likeness.CANNOT_TELL, f"{missing}; on the others, {sentence}"
    return Equivalence(
        likeness=likeness,
        sentence=sentence,
        difference=difference,
        margin=margin,
        rollouts=len(artefact),
        same_answers=same,
        parse_rate=parse_rate(artefact),
        missing=missing,
    )


def parse_rate(rollouts: Sequence[Rollout]) -> float:
    """Return the share of rollouts whose tool calls could be parsed, or 1 if there are none."""
    unreadable = sum(each.ending is Ending.UNPARSABLE_CALL for each in rollouts)
    return 1 - unreadable / len(rollouts) if rollouts else 1.0


def improvement(
    base: Sequence[Rollout], artefact: Sequence[Rollout], *, chances: int = 1
) -> Difference | None:
    """Return the difference between the base model and the artefact, or None if more than a tenth
    of the cases could not be scored on both sides."""
    difference = paired_difference(rewards(base), rewards(artefact), chances=chances)
    return None if missing_cases((*base, *artefact), difference) else difference


def _likeness(difference: Difference | None, margin: float, *, is_identical: bool) -> Likeness:
    if difference is None:
        return Likeness.CANNOT_TELL
    if is_identical or difference.low > -margin:
        return Likeness.EQUAL
    if difference.standing is Standing.WORSE:
        return Likeness.WORSE
    return Likeness.CANNOT_TELL


def _content(rollout: Rollout) -> tuple[object, ...]:
    calls = tuple((call.tool, call.arguments) for call in rollout.tool_calls)
    return rollout.answer.strip(), calls, rollout.ending


def _sentence(
    likeness: Likeness, difference: Difference | None, margin: float, same: int, played: int
) -> str:
    if difference is None:
        return "no case could be scored on both sides"
    reward = f"reward {difference.before:.3f} → {difference.after:.3f}"
    cases = counted(difference.cases, "case")
    if likeness is Likeness.EQUAL and 0 < same == played:
        return f"the same answers and calls in every rollout: {reward} on {cases}"
    figures = (
        f"{reward} ({difference.low:+.3f} … {difference.high:+.3f}) on {cases}; "
        f"{same} of {played} rollouts gave the same answer and calls"
    )
    if likeness is Likeness.EQUAL:
        return f"a loss of {margin:.2f} or more is excluded: {figures}"
    if likeness is Likeness.WORSE:
        return f"worse by {-difference.value:.3f}: {figures}"
    if needed := deciding_cases(difference, margin):
        return f"{figures}; about {needed} cases would exclude a loss of {margin:.2f}"
    return f"{figures}; a loss of {margin:.2f} is not excluded"


def deciding_cases(difference: Difference, margin: float) -> int:
    """Return about how many cases would exclude a loss of the margin if they had the same mean
    difference: the interval narrows with the square root of their number. 0 if no number would."""
    if difference.value <= -margin:
        return 0
    ratio = (difference.value - difference.low) / (difference.value + margin)
    needed = difference.cases * ratio**2
    return 10 * math.ceil(needed / 10)
