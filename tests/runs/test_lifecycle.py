"""The table of moves: what ends, ends for good or begins again from the queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import IllegalMove
from sparring.runs.lifecycle import ACTIVE, ENDED, HELD, NEXT, RunState, advance, may_become

STATES = st.sampled_from(list(RunState))


@given(STATES, STATES)
def test_a_move_is_made_exactly_if_the_table_allows_it(current: RunState, wanted: RunState) -> None:
    if may_become(current, wanted):
        assert advance(current, wanted) is wanted
    else:
        with pytest.raises(IllegalMove, match=f"a {current.value} run cannot become {wanted}"):
            advance(current, wanted)


def test_every_state_has_its_moves_and_never_itself() -> None:
    assert set(NEXT) == set(RunState)
    assert not any(may_become(state, state) for state in RunState)


def test_every_active_run_can_fail_and_can_be_brought_to_a_stop() -> None:
    for state in ACTIVE:
        assert may_become(state, RunState.FAILED)
        stops = {RunState.STOPPING, RunState.STOPPED}
        assert NEXT[state] & stops


def test_an_ended_run_only_begins_again_and_a_completed_one_never_does() -> None:
    assert NEXT[RunState.COMPLETED] == frozenset()
    for state in ENDED - {RunState.COMPLETED}:
        assert NEXT[state] == {RunState.QUEUED}


def test_a_state_is_active_or_ended_and_the_queue_holds_no_processes() -> None:
    assert frozenset(RunState) == ACTIVE | ENDED
    assert not ACTIVE & ENDED
    assert {RunState.QUEUED} == ACTIVE - HELD
    assert {state for state in RunState if state.has_ended} == ENDED
