"""The activity log is read by its owner, and a change of it is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import NotPermitted, SparringError
from sparring.operations.activity import (
    ShowActivity,
    VerifyActivity,
    show_activity,
    verify_activity,
)
from sparring.operations.activity_log import ActivityLog
from sparring.operations.operation import Caller
from sparring.operations.run_views import RunQuery
from sparring.operations.runs import show_run
from sparring.operations.training import StartTrain, start_train
from tests.operations.made import make_project, operator_of

TRAIN = StartTrain(environment="shop")


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner: Caller) -> Caller:
    return operator_of(owner)


def refuse(caller: Caller, *runs: str) -> None:
    for run in runs:
        with pytest.raises(SparringError):
            show_run(RunQuery(run=run), caller)


def test_of_many_entries_the_newest_are_shown_and_the_newest_is_last(
    owner: Caller, operator: Caller
) -> None:
    refuse(operator, "one", "two", "three")
    shown = show_activity(ShowActivity(count=2), owner).entries
    assert [each["request"]["run"] for each in shown] == ["two", "three"]


def test_an_entry_that_was_changed_is_found(owner: Caller, operator: Caller) -> None:
    refuse(operator, "one", "two")
    assert verify_activity(VerifyActivity(), owner).ok
    path = ActivityLog(owner.runs).path
    path.write_bytes(path.read_bytes().replace(b'"one"', b'"six"', 1))
    verified = verify_activity(VerifyActivity(), owner)
    assert not verified.ok
    assert verified.faults[0].startswith("entry 1: ")


def test_an_incomplete_last_line_is_reported_and_is_no_fault(
    owner: Caller, operator: Caller
) -> None:
    refuse(operator, "one")
    with ActivityLog(owner.runs).path.open("ab") as file:
        file.write(b'{"number": 2')
    verified = verify_activity(VerifyActivity(), owner)
    assert verified.ok
    assert "the last line is incomplete" in verified.unanswered[0]


def test_the_record_is_read_by_who_and_by_what_was_refused(owner: Caller, operator: Caller) -> None:
    start_train(TRAIN, owner)
    with pytest.raises(SparringError):
        show_run(RunQuery(run="nothing"), operator)
    shown = show_activity(ShowActivity(who="coach"), owner)
    assert [each["verb"] for each in shown.entries] == ["run.show"]
    assert len(show_activity(ShowActivity(refused=True), owner).entries) == 1
    with pytest.raises(NotPermitted):
        show_activity(ShowActivity(), operator)


def test_a_digest_kept_elsewhere_shows_a_record_that_was_made_anew(
    owner: Caller, operator: Caller
) -> None:
    start_train(TRAIN, operator)
    kept = verify_activity(VerifyActivity(), owner).digest
    start_train(TRAIN, operator)
    assert verify_activity(VerifyActivity(expect=kept), owner).ok
    ActivityLog(owner.runs).path.unlink()
    ActivityLog(owner.runs).path.with_suffix(".head.json").unlink()
    start_train(TRAIN, operator)
    assert verify_activity(VerifyActivity(), owner).ok
    assert "no longer contains" in verify_activity(VerifyActivity(expect=kept), owner).faults[0]


def test_an_interrupted_call_is_listed_as_unanswered(
    owner: Caller, operator: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparring.operations import starting

    def die(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(starting, "_create", die)
    with pytest.raises(KeyboardInterrupt):
        start_train(TRAIN, operator)
    checked = verify_activity(VerifyActivity(), owner)
    assert checked.ok
    assert checked.unanswered == ("coach: train.start (entry 1)",)
    assert ActivityLog(owner.runs).starts_today() == 1  # nobody knows, so it counts
