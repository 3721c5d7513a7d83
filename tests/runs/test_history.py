"""Histories are folds: of any events in any order, they stay within the table of moves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import IllegalMove
from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line
from sparring.runs.history import History, HistoryRead, RankResult, fold_events, read_history
from sparring.runs.lifecycle import ENDED, NEXT, RunState, advance

EPOCHS = st.integers(0, 4)
STATES = st.fixed_dictionaries(
    {"event": st.just("state"), "state": st.sampled_from([each.value for each in RunState])},
    optional={"epoch": EPOCHS, "author": st.sampled_from(["ada", "supervisor"])},
)
FACTS = st.fixed_dictionaries(
    {"event": st.sampled_from(["started", "completed", "stopped", "failed"])},
    optional={"attempt": st.integers(1, 3), "message": st.text(max_size=5)},
)
OTHERS = st.one_of(
    st.fixed_dictionaries({"event": st.just("claimed"), "epoch": EPOCHS}),
    st.fixed_dictionaries(
        {"event": st.just("attempt"), "epoch": EPOCHS, "attempt": st.integers(1, 3)}
    ),
    st.fixed_dictionaries({"event": st.just("restart"), "epoch": EPOCHS}),
    st.fixed_dictionaries({"event": st.just("stop_requested"), "author": st.just("ada")}),
    st.fixed_dictionaries({"event": st.just("checkpoint"), "step": st.integers(0, 9)}),
    st.fixed_dictionaries({"event": st.text(max_size=8)}),
)
SUPERVISED = st.lists(st.one_of(STATES, OTHERS), max_size=30)
ANY = st.lists(st.one_of(STATES, FACTS, OTHERS), max_size=30)


def state(name: RunState, **besides: Any) -> dict[str, Any]:
    return {"event": "state", "state": name.value, **besides}


BEGUN = [
    state(RunState.QUEUED),
    state(RunState.STARTING, epoch=1),
    state(RunState.RUNNING, epoch=1),
]


@given(SUPERVISED)
def test_no_events_make_a_move_that_the_table_forbids(events):
    history = History()
    for event in events:
        later = history.after(event)
        moved = later.state is not history.state
        assert not moved or later.state in NEXT[history.state]
        assert later.epoch >= history.epoch
        history = later


@given(ANY, st.integers(0, 30))
def test_a_history_that_is_stored_at_any_event_folds_to_the_same_result(events, place):
    whole = fold_events(events)
    begun = History.from_dict(fold_events(events[:place]).to_dict())
    assert fold_events(events[place:], begun) == whole


@given(SUPERVISED, SUPERVISED)
def test_events_of_a_replaced_supervisor_change_nothing(events, late):
    """But for what anybody may say: wishes, facts, a new life."""
    history = fold_events([*BEGUN, *events, {"event": "claimed", "epoch": 9}])
    words = [
        {**event, "epoch": 8}
        for event in late
        if event["event"] in ("state", "attempt", "restart", "claimed")
        and event.get("state") != "queued"
    ]
    assert fold_events(words, history) == history


def test_a_run_that_waits_is_stopped_by_whoever_asks_and_one_that_starts_by_its_supervisor():
    request = {"event": "stop_requested", "author": "ada"}
    waiting = fold_events([state(RunState.QUEUED), request, state(RunState.STOPPED)])
    assert waiting.state is RunState.STOPPED
    overtaken = fold_events(
        [
            state(RunState.QUEUED),
            request,
            state(RunState.STARTING, epoch=1),
            state(RunState.STOPPED),
        ]
    )
    assert overtaken.state is RunState.STARTING
    assert overtaken.is_stop_requested


def test_a_new_life_forgets_why_the_last_one_ended():
    failed = state(RunState.FAILED, epoch=1, cause="killed", message="rank 1", exit_code=100)
    request = {"event": "stop_requested", "author": "ada"}
    history = fold_events([*BEGUN, request, failed])
    assert (history.cause, history.exit_code) == ("killed", 100)
    again = fold_events([state(RunState.QUEUED, author="ben", accept_changes=True)], history)
    assert (again.state, again.life, again.cause, again.is_stop_requested) == (
        RunState.QUEUED,
        2,
        "",
        False,
    )
    assert again.accept_changes


def test_restarts_are_counted_until_the_run_comes_further():
    restart = {"event": "restart", "epoch": 1, "attempt": 1, "cause": "killed"}
    history = fold_events([*BEGUN, restart, restart])
    assert history.restarts == 2
    assert fold_events([{"event": "checkpoint", "step": 4}], history).restarts == 0


def test_the_first_rank_of_a_worker_group_to_fail_has_the_cause():
    attempt = {"event": "attempt", "epoch": 1, "attempt": 1}
    first = {"event": "failed", "attempt": 1, "message": "rank 1 broke", "kind": "ValueError"}
    second = {"event": "failed", "attempt": 1, "message": "connection reset"}
    history = fold_events([*BEGUN, attempt, first, second])
    assert history.state is RunState.RUNNING
    assert history.attempt.failure == RankResult("failed", "rank 1 broke", "ValueError")


def test_a_worker_of_an_earlier_attempt_is_not_listened_to():
    events = [*BEGUN, {"event": "attempt", "epoch": 1, "attempt": 2}]
    assert fold_events([*events, {"event": "completed", "attempt": 1}]).attempt.result is None
    assert fold_events([*events, {"event": "completed", "attempt": 2}]).attempt.has_completed


def test_without_a_supervisor_the_facts_are_the_state():
    history = fold_events([{"event": "started", "pid": 1}])
    assert history.state is RunState.RUNNING
    failed = fold_events([{"event": "failed", "message": "no", "kind": "ValueError"}], history)
    assert (failed.state, failed.message, failed.exit_code) == (RunState.FAILED, "no", 100)
    again = fold_events([{"event": "started", "pid": 2}], failed)
    assert (again.state, again.exit_code, again.error) == (RunState.RUNNING, 0, "")


def test_a_line_that_is_half_written_is_read_when_it_is_whole(tmp_path):
    folder = RunFolder(tmp_path)
    append_line(folder.events, state(RunState.QUEUED))
    with folder.events.open("ab") as file:
        file.write(b'{"event":"state","state":"star')
    first = read_history(folder)
    assert first.history.state is RunState.QUEUED
    with folder.events.open("ab") as file:
        file.write(b'ting","epoch":1}\n')
    assert read_history(folder, first).history.state is RunState.STARTING
    assert read_history(folder, HistoryRead()) == read_history(folder, first)


def test_an_ended_run_never_moves_but_to_a_new_life():
    for ended in ENDED:
        assert NEXT[ended] <= {RunState.QUEUED}
    with pytest.raises(IllegalMove, match="a completed run cannot become running"):
        advance(RunState.COMPLETED, RunState.RUNNING)


def test_a_history_knows_whether_the_current_attempt_has_saved() -> None:
    begun = [{"event": "attempt", "attempt": 1}, {"event": "checkpoint", "step": 4}]
    history = fold_events(begun)
    assert history.has_saved
    again = fold_events([{"event": "attempt", "attempt": 2}], history)
    assert not again.has_saved
    resumed = fold_events(
        [{"event": "resumed", "step": 2}, {"event": "checkpoint", "step": 4}], again
    )
    assert resumed.has_saved
