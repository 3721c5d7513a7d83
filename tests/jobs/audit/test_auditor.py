"""An auditor judges every null answer three times, ends every world and says what it left out."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.cases import Case
from sparring.contracts.errors import InfrastructureError
from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import Fault
from sparring.contracts.verdicts import Judgement, Verdict, failed, passed
from sparring.jobs.audit import auditor as auditor_module
from sparring.jobs.audit.auditor import Auditor, audit_null_players
from sparring.measures import Measure, MeasureSet
from sparring.measures.builtin import exact, length
from sparring.player.worlds import tool
from sparring.proofs.audit import audit
from sparring.proofs.null_players import PLAYERS
from sparring.run_folder import RunFolder
from sparring.run_folder.layout import NULL_PLAYERS
from sparring.run_folder.rollout_log import RolloutLog
from sparring.suites import Suite
from tests.rollouts import rollout

_ANSWERING = len(PLAYERS) - 2  # the cases have no worked examples

CASES = [
    Case(f"c{n}", f"Which city is number {n}?", city) for n, city in enumerate(("Rome", "Bonn"))
]


def training(count: int) -> Suite:
    rows = [
        {"input": f"question {n}", "expected": f"{n}", "split": "training"} for n in range(count)
    ]
    return Suite.from_records(rows, minimum_cases=1)


def test_each_answer_is_judged_twice_at_once_and_once_more_in_another_order() -> None:
    judged: list[str] = []

    def judge(each: Rollout) -> Verdict:
        judged.append(each.id)
        return passed("right") if each.answer == each.expected else failed("wrong")

    auditor = Auditor(MeasureSet.of([Measure("right", judge)]))
    asyncio.run(auditor.play_null(CASES))
    answers = len(auditor.observations)
    assert answers == _ANSWERING * len(CASES)
    assert auditor.judged == len(judged) == 3 * answers
    first = judged[: 2 * answers]
    assert first[::2] == first[1::2]
    assert sorted(judged[2 * answers :]) == sorted(first[::2])
    assert judged[2 * answers :] != first[::2]
    for each in auditor.observations:
        assert each.was_repeated
        assert each.was_reordered
        assert each.at_once == each.later == float(each.player == "expected")


def test_a_measure_that_changes_its_mind_is_observed_with_both_scores() -> None:
    turn = iter(range(1000))
    flips = Measure("flips", lambda _: passed("even") if next(turn) % 2 == 0 else failed("odd"))
    auditor = Auditor(MeasureSet.of([flips]))
    asyncio.run(auditor.play_null(CASES))
    assert {(each.score, each.at_once) for each in auditor.observations} == {(1.0, 0.0)}


class World:
    """Counts how many were made and ended."""

    def __init__(self, ended: list[World]) -> None:
        self._ended = ended

    @tool
    def look(self) -> str:
        """Look."""
        return "nothing"

    def after_rollout(self) -> None:
        self._ended.append(self)


def test_each_answer_has_a_world_of_its_own_and_all_of_them_end() -> None:
    made: list[World] = []
    ended: list[World] = []

    def make(_: Case) -> World:
        made.append(World(ended))
        return made[-1]

    auditor = Auditor(MeasureSet.of([exact()]), make)
    asyncio.run(auditor.play_null(CASES))
    assert len(made) == len(auditor.observations)
    assert {id(each) for each in ended} == {id(each) for each in made}
    assert auditor.has_world_tools


def test_a_case_whose_world_fails_is_left_out_and_the_others_are_judged() -> None:
    def make(case: Case) -> None:
        if case.id == "c0":
            raise OSError("no disk")

    auditor = Auditor(MeasureSet.of([exact()]), make)
    asyncio.run(auditor.play_null(CASES))
    (left_out,) = auditor.left_out
    assert left_out.startswith(
        "making the world of case c0 failed: OSError: no disk (test_auditor.py:"
    )
    assert {each.case for each in auditor.observations} == {"c1"}
    assert not auditor.has_world_tools


def test_where_no_world_can_be_made_the_audit_fails_with_the_reason() -> None:
    def make(_: Case) -> None:
        raise OSError("no disk")

    with pytest.raises(InfrastructureError, match="case c0 failed: OSError: no disk"):
        asyncio.run(Auditor(MeasureSet.of([exact()]), make).play_null(CASES))


def test_a_measure_that_hangs_is_tried_twice_and_not_again() -> None:
    calls: list[str] = []
    never = threading.Event()

    def hang(each: Rollout) -> Verdict:
        calls.append(each.id)
        never.wait(10)
        return passed("late")

    auditor = Auditor(MeasureSet.of([Measure("hangs", hang)], seconds=0.02))
    try:
        asyncio.run(auditor.play_null(CASES))
    finally:
        never.set()
    assert len(calls) == 2
    last = auditor.observations[-1].judgement
    assert last.cause == "no verdict in time, 2 times; not tried again"
    assert last.verdict.score is None


def test_answers_that_time_does_not_allow_are_counted_as_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auditor_module, "_TIME_LIMIT_SECONDS", -1.0)
    auditor = Auditor(MeasureSet.of([exact()]))
    asyncio.run(auditor.play_null(CASES))
    assert auditor.observations == []
    (message,) = auditor.left_out
    assert message.startswith(f"0 of {_ANSWERING * len(CASES)} answers were judged")


def test_a_judged_rollout_is_judged_again_by_the_measures_that_judged_it() -> None:
    judged = asyncio.run(MeasureSet.of([exact()]).judge(rollout("Rome", "Rome")))
    auditor = Auditor(MeasureSet.of([exact(), length()]))
    asyncio.run(auditor.judge_again(judged, "learner"))
    (seen,) = auditor.observations
    assert (seen.judgement.measure, seen.score, seen.at_once) == ("exact", 1.0, 1.0)
    assert (seen.rollout, seen.player) == ("learner/c.0.0", "")


def logged(folder: RunFolder) -> list[dict[str, Any]]:
    return list(RolloutLog(folder.rollouts_of(NULL_PLAYERS)).records())


def test_null_rollouts_are_logged_with_their_rewards_once_per_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "audit")
    folder.create({"format": 1, "kind": "audit"})
    for _ in range(2):  # the second attempt replaces what the first has logged
        auditor = Auditor(MeasureSet.of([exact()]))
        asyncio.run(audit_null_players(folder, auditor, training(9), 3))
    records = logged(folder)
    assert len(records) == len(auditor.observations) == 3 * _ANSWERING
    log = RolloutLog(folder.rollouts_of(NULL_PLAYERS))
    ids = {each.rollout.removeprefix(f"{NULL_PLAYERS}/") for each in auditor.observations}
    assert all(log.position(each) is not None for each in ids)  # as `rollout show` looks them up
    rewarded = {each["answer"] for each in records if each["reward"] == 1.0}
    assert rewarded == {"0", "4", "8"}


def test_a_repeat_that_fails_is_no_other_opinion() -> None:
    calls: list[str] = []

    def judge(each: Rollout) -> Verdict:
        calls.append(each.id)
        if len(calls) % 5 == 0:
            raise ConnectionError("the judge is away")
        return failed("wrong")

    auditor = Auditor(MeasureSet.of([Measure("judge", judge)]))
    asyncio.run(auditor.play_null(CASES))
    faults = {each.fault for each in audit(auditor.observations)}
    assert Fault.BREAKS in faults
    assert not faults & {Fault.FLAKY, Fault.ORDER_DEPENDENT}


def test_measures_that_cases_name_carry_reward_too() -> None:
    auditor = Auditor(MeasureSet.of([exact(), length()], {"length": 0.0}))
    assert auditor.rewarded([]) == {"exact"}
    judged = rollout("x", judgements=(Judgement("polite", failed("no"), 1.0),))
    assert auditor.rewarded([judged]) == {"exact", "polite"}


def test_an_answer_of_a_worked_example_that_passes_many_cases_is_found_with_its_rollout() -> None:
    """Always to refuse is right for every other case; a refund would need a tool."""
    refusal = "I cannot refund order 3005."
    shown = [
        {"role": "user", "content": "Refund order 3005."},
        {"role": "assistant", "content": refusal},
    ]
    cases = [
        Case(f"c{n}", [*shown, {"role": "user", "content": f"Refund order {n}."}], bool(n % 2))
        for n in range(8)
    ]

    def judge(rollout: Rollout) -> Verdict:
        is_right = "cannot refund" in rollout.answer and rollout.expected
        return (passed if is_right else failed)("refused or not")

    auditor = Auditor(MeasureSet.of([Measure("right_refund", judge)]))
    asyncio.run(auditor.play_null(cases))
    found = [each for each in audit(auditor.observations) if "worked example" in each.message]
    assert [(each.measure, each.fault) for each in found] == [
        ("right_refund", Fault.PASSED_BY_NOTHING)
    ]
    assert "4 of 8 cases" in found[0].message
    assert found[0].rollout
