"""What follows from base and trained on the same cases."""

from __future__ import annotations

from dataclasses import replace

from sparring.contracts.summaries import Standing
from sparring.contracts.verdicts import Judgement, scored
from sparring.proofs.proof import PlayedSides, prove
from tests.proofs.made import answered

CASES = [f"case {n}" for n in range(40)]


def side(reward: float, **more):
    return [answered(case, reward, index, **more) for case in CASES for index in range(2)]


def mixed(share: float):
    return [answered(case, float(n < share * len(CASES))) for n, case in enumerate(CASES)]


def test_a_clear_gain_is_better() -> None:
    proof = prove(PlayedSides(mixed(0.1), mixed(0.8)))
    assert proof.verdict is Standing.BETTER
    assert proof.reward is not None
    assert proof.reward.mcnemar is not None
    assert len(proof.flips) == 28


def test_a_proof_without_a_difference_states_the_effect_it_would_have_shown() -> None:
    proof = prove(PlayedSides(mixed(0.5), mixed(0.5)))
    assert proof.verdict is Standing.NOT_SHOWN
    assert "no case came out differently" in proof.sentence
    wavering = [answered(case, float(n % 2)) for n, case in enumerate(CASES)]
    assert "would have been shown" in prove(PlayedSides(mixed(0.5), wavering)).sentence


def test_a_measure_that_nobody_trained_on_and_that_got_worse_makes_it_worse() -> None:
    before = side(0.1, guards={"polite": 1.0})
    after = side(0.9, guards={"polite": 0.0})
    proof = prove(PlayedSides(before, after))
    assert proof.verdict is Standing.WORSE
    assert proof.regressed == ("polite",)
    assert "polite got worse" in proof.sentence
    assert prove(PlayedSides(before, side(0.9, guards={"polite": 1.0}))).verdict is Standing.BETTER


def test_scores_are_compared_as_scores_where_no_threshold_says_what_passes() -> None:
    before, after = side(0.2, guards={"polite": 0.95}), side(0.85, guards={"polite": 0.2})
    proof = prove(PlayedSides(before, after))
    assert proof.regressed == ("polite",)
    assert "right 20% → 85%" in proof.sentence
    assert proof.unmoved == ()


def test_with_a_threshold_what_passes_is_compared() -> None:
    def judged(score: float):
        return [
            replace(each, judgements=tuple(replace(one, threshold=0.7) for one in each.judgements))
            for each in side(score)
        ]

    assert "right 0% → 100%" in prove(PlayedSides(judged(0.6), judged(0.8))).sentence


def test_rounding_is_no_change() -> None:
    def case(rewards: tuple[float, ...]):
        return [answered("a", reward, index) for index, reward in enumerate(rewards)]

    proof = prove(PlayedSides(case((0.0, 0.3, 0.3, 0.7)), case((0.7, 0.3, 0.3, 0.0))))
    assert proof.flips == ()
    assert proof.reward is not None
    assert proof.reward.differing == 0


def test_a_second_suite_that_got_worse_makes_it_worse() -> None:
    gained = PlayedSides(mixed(0.1), mixed(0.8))
    proof = prove(gained, also=PlayedSides(mixed(0.9), mixed(0.2)))
    assert proof.verdict is Standing.WORSE
    assert proof.regressed == ("the second suite",)
    assert prove(gained, also=PlayedSides(mixed(0.5), mixed(0.5))).verdict is Standing.BETTER


def test_unscored_cases_of_a_proof_are_left_out_and_counted() -> None:
    base = [*mixed(0.2), answered("silent", None)]
    trained = [*mixed(0.9), answered("silent", 1.0)]
    proof = prove(PlayedSides(base, trained))
    assert proof.reward is not None
    assert proof.reward.cases == len(CASES)
    assert proof.unscored == {"base": 1, "trained": 0}
    nothing = prove(PlayedSides([answered("a", None)], [answered("a", None)]))
    assert nothing.verdict is Standing.NOT_SHOWN


def test_a_gain_that_luck_explains_is_not_shown_among_many_candidates() -> None:
    base, trained = mixed(0.25), mixed(0.475)
    assert prove(PlayedSides(base, trained)).verdict is Standing.BETTER
    assert prove(PlayedSides(base, trained), chances=200).verdict is Standing.NOT_SHOWN


def test_flips_come_with_the_rollouts_that_show_them() -> None:
    base = [answered("a", 0.0, 0), answered("a", 1.0, 1), answered("b", 1.0, 0)]
    trained = [answered("a", 1.0, 0), answered("a", 1.0, 1), answered("b", 0.0, 0)]
    first, second = prove(PlayedSides(base, trained)).flips
    assert (first.case, first.base, first.trained) == ("b", "b.0.0", "b.0.0")
    assert (second.case, second.base, second.trained) == ("a", "a.0.0", "a.0.0")


def test_cases_that_were_lost_leave_it_open() -> None:
    trained = [answered(each.case.id, None if n < 8 else 1.0) for n, each in enumerate(mixed(0.1))]
    proof = prove(PlayedSides(mixed(0.1), trained))
    assert proof.verdict is Standing.NOT_SHOWN
    assert "8 of 40 cases could not be scored on both sides" in proof.sentence


def test_a_guard_that_fell_silent_leaves_it_open() -> None:
    proof = prove(PlayedSides(side(0.1, guards={"polite": 1.0}), side(0.9)))
    assert proof.verdict is Standing.NOT_SHOWN
    assert "polite could not be judged on both sides" in proof.sentence


def test_a_handful_of_flips_is_never_enough() -> None:
    base = [answered(case, 0.0) for case in CASES]
    trained = [answered(case, float(n < 5)) for n, case in enumerate(CASES)]
    assert prove(PlayedSides(base, trained)).verdict is Standing.NOT_SHOWN
    few = [answered(case, 1.0) for case in CASES[:3]]
    assert prove(PlayedSides(base[:3], few)).verdict is Standing.NOT_SHOWN


def test_a_rewarded_measure_that_got_worse_is_named_and_the_proof_is_not_good() -> None:
    def judged(right: float, polite: float):
        reward = 0.8 * right + 0.2 * polite
        measures = {"right": (right, 4.0), "polite": (polite, 1.0)}
        judgements = tuple(
            Judgement(name, scored(score, "so"), weight)
            for name, (score, weight) in measures.items()
        )
        return [replace(each, judgements=judgements, reward=reward) for each in side(reward)]

    proof = prove(PlayedSides(judged(0.1, 0.9), judged(1.0, 0.5)))
    assert (proof.verdict, proof.is_good, proof.unmoved) == (Standing.BETTER, False, ("polite",))
    assert "polite got worse (90% → 50%)" in proof.sentence
    assert prove(PlayedSides(judged(0.1, 0.9), judged(1.0, 0.9))).is_good
