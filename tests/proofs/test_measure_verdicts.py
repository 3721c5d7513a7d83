"""Each measure with a weight is judged by itself; the weakest is the headline."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey
from sparring.contracts.summaries import MeasureVerdict, Movement
from sparring.contracts.verdicts import Judgement, cannot_tell, scored
from sparring.proofs.measure_verdicts import describe, judge_measures

Score = Callable[[int], float | None]


def played(*, cut: bool = False, **measures: Score) -> list[Rollout]:
    """Eight rollouts of each of four cases; each measure scores by the number of the rollout."""
    rollouts = []
    for number in range(32):
        case = f"case {number // 8}"
        judgements = []
        for name, score in measures.items():
            value = score(number)
            reason = "nearly" if value and value >= 0.5 else "far off"
            verdict = cannot_tell("no idea") if value is None else scored(value, reason)
            judgements.append(Judgement(name, verdict, 0.0 if name == "guard" else 1.0))
        ending = Ending.TOKEN_BUDGET if cut else Ending.ANSWERED
        key = RolloutKey(0, 0, case, number % 8)
        rollouts.append(Rollout(key, Case(case, case), ending, "", judgements=tuple(judgements)))
    return rollouts


def judged(rollouts: list[Rollout], *, masks_truncated: bool = False) -> list[MeasureVerdict]:
    return judge_measures(rollouts, group_size=4, masks_truncated=masks_truncated)


def half(number: int) -> float:
    return float(number % 2)


KNOWN: dict[str, tuple[Score, Movement, str]] = {
    "differs": (half, Movement.CAN_BE_LEARNED, "m passes 16 of 32 rollouts"),
    "never": (lambda _: 0.0, Movement.NEVER_PASSES, "m never passes"),
    "passes one case only": (
        lambda n: float(n == 3),
        Movement.CAN_BE_LEARNED,
        "m passes 1 of 32 rollouts",
    ),
    "always": (lambda _: 1.0, Movement.ALREADY_PASSED, "m already passes (32 of 32 rollouts)"),
    "the same score": (
        lambda _: 0.5,
        Movement.CONSTANT,
        "m gives every rollout the same score",
    ),
    "mostly silent": (
        lambda n: 1.0 if n < 8 else None,
        Movement.CANNOT_TELL,
        "m could judge only 8 rollouts",
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_measure_has_its_verdict_and_its_sentence(name: str) -> None:
    score, movement, sentence = KNOWN[name]
    (found,) = judged(played(m=score))
    assert (found.movement, describe(found)) == (movement, sentence)


def test_a_measure_that_passes_in_hardly_any_group_hardly_ever_passes() -> None:
    verdict = MeasureVerdict("m", Movement.NEVER_PASSES, 200, 1, 0.02)
    assert describe(verdict) == "m hardly ever passes (1 of 200 rollouts)"


@pytest.mark.parametrize("movement", [Movement.NEVER_PASSES, Movement.ALREADY_PASSED])
def test_a_measure_that_depends_on_the_case_alone_is_described_so(movement: Movement) -> None:
    verdict = MeasureVerdict("m", movement, 200, 90, 0.02)
    assert describe(verdict) == (
        "m passes 90 of 200 rollouts, but hardly any case both passes and fails"
    )


def test_the_weakest_measure_comes_first_and_guards_are_left_out() -> None:
    found = judged(played(moves=half, guard=lambda _: 0.0, done=lambda _: 1.0, dead=lambda _: 0.0))
    assert [each.name for each in found] == ["dead", "done", "moves"]
    order = [list(Movement).index(each.movement) for each in found]
    assert order == sorted(order)


def test_the_most_frequent_reason_for_failing_says_why() -> None:
    (found,) = judged(played(m=lambda n: 1.0 if n % 2 else (0.25 if n % 8 else 0.5)))
    assert found.why == "far off"
    (passes,) = judged(played(m=lambda _: 1.0))
    assert passes.why == ""


def test_truncated_rollouts_carry_no_gradient_where_they_are_masked() -> None:
    cut = played(cut=True, m=half)
    (counted,), (masked,) = judged(cut), judged(cut, masks_truncated=True)
    assert counted.live > 0.5
    assert masked.live == 0.0
    assert masked.movement is not Movement.CAN_BE_LEARNED


def test_without_rollouts_there_is_nothing_to_judge() -> None:
    assert judged([]) == []
