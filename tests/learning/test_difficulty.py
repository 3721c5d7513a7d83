from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from sparring.learning.difficulty import Difficulty, Seen

CASES = ["a", "b", "c"]


def chance(difficulty, case, step=0):
    return difficulty.chances(step)[difficulty.place_of(case)]


def test_a_case_never_played_has_the_full_chance():
    assert list(Difficulty(CASES).chances(10)) == [1, 1, 1]


def test_a_case_that_teaches_nothing_loses_its_chance_and_one_that_does_keeps_it():
    difficulty = Difficulty(CASES)
    for step in range(4):
        difficulty.remember([Seen("a", False, 1.0), Seen("b", True, 0.5)], step)
    assert chance(difficulty, "a", 4) < 0.3
    assert chance(difficulty, "b", 4) == 1


def test_what_was_seen_fades_for_the_model_moves_on():
    difficulty = Difficulty(CASES)
    difficulty.remember([Seen("a", False, 0.0)] * 3, 0)
    chances = [chance(difficulty, "a", step) for step in (0, 50, 500)]
    assert chances == sorted(chances)
    assert chances[-1] > 0.99


events = st.lists(
    st.tuples(st.sampled_from(CASES), st.booleans(), st.one_of(st.none(), st.floats(0, 1))),
    max_size=30,
)


@given(events)
def test_what_a_checkpoint_recalls_is_what_was_known_to_the_bit(told):
    difficulty = Difficulty(CASES)
    for step, each in enumerate(told):
        difficulty.remember([Seen(*each)], step)
    recalled = Difficulty(CASES)
    recalled.restore(json.loads(json.dumps(difficulty.to_dict())))
    assert list(recalled.chances(40)) == list(difficulty.chances(40))
    assert recalled.to_dict() == difficulty.to_dict()


def test_a_case_that_has_gone_from_the_suite_is_forgotten():
    difficulty = Difficulty(["gone", "a"])
    difficulty.remember([Seen("gone", False, 0.0), Seen("a", False, 0.0)], 0)
    now = Difficulty(CASES)
    now.restore(difficulty.to_dict())
    assert list(now.to_dict()["cases"]) == ["a"]
