"""The difficulty of cases, and the cases that a step draws by it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from sparring.learning.drawing import Difficulty, Seen, draw

THREE = ["a", "b", "c"]


def chance(difficulty, case, step=0):
    return difficulty.chances(step)[difficulty.place_of(case)]


def test_a_case_never_played_has_the_full_chance():
    assert list(Difficulty(THREE).chances(10)) == [1, 1, 1]


def test_a_case_that_teaches_nothing_loses_its_chance_and_one_that_does_keeps_it():
    difficulty = Difficulty(THREE)
    for step in range(4):
        difficulty.remember([Seen("a", False, 1.0), Seen("b", True, 0.5)], step)
    assert chance(difficulty, "a", 4) < 0.3
    assert chance(difficulty, "b", 4) == 1


def test_the_chance_of_an_easy_case_grows_back_over_time():
    difficulty = Difficulty(THREE)
    difficulty.remember([Seen("a", False, 0.0)] * 3, 0)
    chances = [chance(difficulty, "a", step) for step in (0, 50, 500)]
    assert chances == sorted(chances)
    assert chances[-1] > 0.99


events = st.lists(
    st.tuples(st.sampled_from(THREE), st.booleans(), st.one_of(st.none(), st.floats(0, 1))),
    max_size=30,
)


@given(events)
def test_a_restored_difficulty_equals_the_saved_one_to_the_bit(results):
    difficulty = Difficulty(THREE)
    for step, each in enumerate(results):
        difficulty.remember([Seen(*each)], step)
    recalled = Difficulty(THREE)
    recalled.restore(json.loads(json.dumps(difficulty.to_dict())))
    assert list(recalled.chances(40)) == list(difficulty.chances(40))
    assert recalled.to_dict() == difficulty.to_dict()


def test_a_case_that_has_gone_from_the_suite_is_forgotten():
    difficulty = Difficulty(["gone", "a"])
    difficulty.remember([Seen("gone", False, 0.0), Seen("a", False, 0.0)], 0)
    now = Difficulty(THREE)
    now.restore(difficulty.to_dict())
    assert list(now.to_dict()["cases"]) == ["a"]


CASES = [f"case-{number}" for number in range(24)]


def known(dead=(), times=6):
    difficulty = Difficulty(CASES)
    for _ in range(times):
        difficulty.remember([Seen(case, False, 1.0) for case in dead], 0)
    return difficulty


@st.composite
def proposals(draw_from):
    """Different cases for one to three ranks, as many for each."""
    ranks, each = draw_from(st.integers(1, 3)), draw_from(st.integers(1, 4))
    picked = draw_from(st.permutations(CASES))[: ranks * each]
    return [picked[rank * each : (rank + 1) * each] for rank in range(ranks)]


@given(proposals(), st.sets(st.sampled_from(CASES)), st.integers(0, 9), st.integers(0, 5))
def test_ranks_draw_from_one_lot_and_always_the_same(proposed, dead, step, spares):
    def drawn(rank):
        return draw(proposed, known(dead), seed=1, step=step, rank=rank, spares=spares)

    ranks = [drawn(rank) for rank in range(len(proposed))]
    assert ranks == [drawn(rank) for rank in range(len(proposed))]
    everything = [case for each in ranks for case in (*each.cases, *each.spares)]
    assert len(set(everything)) == len(everything), "no case twice in a step"
    for rank, each in enumerate(ranks):
        assert len(each.cases) == len(proposed[rank])
        assert len(each.spares) <= spares
        assert not set(each.skipped) & set(everything)
        kept = [case for case in proposed[rank] if case not in each.skipped]
        assert [case for case in each.cases if case in proposed[rank]] == kept


def test_nothing_is_passed_over_before_anything_is_known():
    drawn = draw([CASES[:4]], Difficulty(CASES), seed=0, step=0, spares=2)
    assert drawn.cases == tuple(CASES[:4])
    assert len(drawn.spares) == 2


def test_cases_that_teach_nothing_are_drawn_less():
    dead = set(CASES[:12])
    difficulty = known(dead)
    played = [
        case
        for step in range(40)
        for case in draw([CASES[:4]], difficulty, seed=0, step=step).cases
    ]
    share = sum(case in dead for case in played) / len(played)
    assert 0 < share < 0.4, "seldom, and not never"


def test_spares_are_those_that_are_likely_to_teach():
    dead = set(CASES[8:])
    spares = [
        draw([CASES[:4]], known(dead), seed=0, step=step, spares=1).spares[0] for step in range(100)
    ]
    assert sum(case in dead for case in spares) < 60  # 16 of the 20 others


def test_without_memory_all_proposals_are_played():
    drawn = draw([CASES[:4]], known(CASES), seed=0, step=0, by_difficulty=False)
    assert drawn.cases == tuple(CASES[:4])


def test_a_suite_without_other_cases_plays_what_was_proposed():
    difficulty = Difficulty(CASES[:2])
    for _ in range(9):
        difficulty.remember([Seen(case, False, 0.0) for case in CASES[:2]], 0)
    drawn = draw([CASES[:2]], difficulty, seed=0, step=0, spares=3)
    assert drawn.cases == tuple(CASES[:2])
    assert drawn.spares == ()
