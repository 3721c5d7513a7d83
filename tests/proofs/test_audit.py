"""The audit finds what is wrong with measures, and nothing where nothing is."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey, ToolCall
from sparring.contracts.summaries import AuditFinding, Fault
from sparring.contracts.verdicts import Judgement, Verdict, cannot_tell, failed, passed, scored
from sparring.jobs.audit.auditor import Auditor
from sparring.measures import Measure, MeasureSet, measure
from sparring.measures.builtin import BUILTIN, exact, length, no_tool_failed, numeric
from sparring.proofs.audit import Observation, audit

CITIES = ("Paris", "Rome", "Oslo", "Lima", "Cairo", "Quito", "Seoul", "Dakar")
CASES = [Case(f"c{n}", f"Which city is number {n}?", city) for n, city in enumerate(CITIES)]


def audited(
    measures: Sequence[Any],
    cases: Sequence[Case] = CASES,
    played: Sequence[Rollout] = (),
    weights: dict[str, float] | None = None,
) -> list[AuditFinding]:
    kept = MeasureSet.of(measures, weights)

    async def look() -> list[AuditFinding]:
        auditor = Auditor(kept)
        await auditor.play_null(cases)
        for rollout in played:
            await auditor.judge_again(await kept.judge(rollout), "learner")
        return audit(auditor.observations)

    return asyncio.run(look())


def answers(case: Case, text: str, index: int = 0, **more: Any) -> Rollout:
    key = RolloutKey(0, 0, case.id, index)
    return Rollout(key, case, Ending.ANSWERED, text, **more)


def right_and_wrong(cases: Sequence[Case] = CASES, index: int = 0) -> list[Rollout]:
    """Half of what a model would say."""
    return [
        answers(case, str(case.expected) if n % 2 else "Atlantis", index + n % 2)
        for n, case in enumerate(cases)
    ]


def judged_by(judge: Callable[[Rollout], Verdict], **options: Any) -> Measure:
    return Measure("planted", judge, **options)


def _when(is_right: Callable[[Rollout], bool]) -> Measure:
    return judged_by(lambda r: passed("right") if is_right(r) else failed(f"wrong: {r.answer}"))


def _is_exact(rollout: Rollout) -> bool:
    return rollout.answer.strip() == str(rollout.expected)


def _alternating() -> Measure:
    """Passes every other rollout; the same one twice in a row is one."""
    last, turn = [""], [0]

    def judge(rollout: Rollout) -> Verdict:
        if last[0] != rollout.id:
            last[0] = rollout.id
            turn[0] += 1
        return passed("even") if turn[0] % 2 else failed("odd")

    return judged_by(judge)


def _slow(rollout: Rollout) -> Verdict:
    time.sleep(0.02)
    return passed("right") if _is_exact(rollout) else failed("wrong")


PLANTED: dict[str, tuple[Measure, Fault]] = {
    "always passes": (judged_by(lambda _: passed("fine")), Fault.CONSTANT),
    "always half": (judged_by(lambda _: scored(0.5, "so so")), Fault.CONSTANT),
    "passes an empty answer": (
        _when(lambda r: not r.answer or _is_exact(r)),
        Fault.PASSED_BY_NOTHING,
    ),
    "passes the question repeated": (
        _when(lambda r: r.answer in str(r.case.input) + str(r.expected) and r.answer != ""),
        Fault.PASSED_BY_NOTHING,
    ),
    "passes any words": (_when(lambda r: len(r.answer) > 0), Fault.PASSED_BY_NOTHING),
    "passes who does not know": (
        _when(lambda r: "know" in r.answer or _is_exact(r)),
        Fault.PASSED_BY_NOTHING,
    ),
    "passes the right answer to anything": (
        _when(lambda r: r.answer in CITIES),
        Fault.PASSED_BY_NOTHING,
    ),
    "passes a part of a word": (
        _when(lambda r: str(r.expected) in r.answer),
        Fault.PASSED_BY_NOTHING,
    ),
    "throws dice": (
        judged_by(lambda _: passed("lucky") if random.random() < 0.5 else failed("unlucky")),
        Fault.FLAKY,
    ),
    "remembers": (_alternating(), Fault.ORDER_DEPENDENT),
    "breaks on an empty answer": (
        _when(lambda r: r.answer.split()[0] == str(r.expected)),
        Fault.BREAKS,
    ),
    "leaves its range": (
        judged_by(lambda r: scored(float(len(r.answer)), "length")),
        Fault.BREAKS,
    ),
    "returns no verdict": (judged_by(lambda r: f"right: {r.answer}"), Fault.BREAKS),  # type: ignore[arg-type,return-value]
    "cannot tell": (
        judged_by(lambda r: passed("right") if _is_exact(r) else cannot_tell("who knows")),
        Fault.CANNOT_TELL,
    ),
    "is slow": (judged_by(_slow), Fault.SLOW),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judge, fault = PLANTED[planted]
    if fault is Fault.SLOW:
        monkeypatch.setattr("sparring.proofs.audit._SLOW_SECONDS", 0.01)
    found = audited([judge], CASES)
    assert fault in {each.fault for each in found}, found
    assert all(each.rollout and each.message for each in found)


def test_a_format_without_content_is_found() -> None:
    cases = [
        Case(f"c{n}", f"Who is number {n}?", json.dumps({"name": city, "age": n}))
        for n, city in enumerate(CITIES)
    ]

    @measure
    def has_the_keys(rollout: Rollout) -> Verdict:
        try:
            keys = set(json.loads(rollout.answer))
        except (ValueError, TypeError):
            return failed("no JSON")
        return passed("all keys") if keys == {"name", "age"} else failed(f"keys {keys}")

    (found,) = audited([has_the_keys], cases)
    assert found.fault is Fault.PASSED_BY_NOTHING
    # Another case's answer has the same keys, too.
    assert "8 of 8 cases" in found.message


def test_a_duplicate_is_found() -> None:
    (found,) = audited([exact(), exact(name="exact_again")])
    assert (found.fault, found.measure) == (Fault.DUPLICATE, "exact")
    assert "exact_again" in found.message
    assert not found.is_grave


def test_a_measure_that_every_rollout_passes_is_saturated() -> None:
    played = [answers(case, str(case.expected), index) for case in CASES for index in range(4)]
    (found,) = audited([exact()], played=played)
    assert found.fault is Fault.SATURATED


def test_a_measure_that_not_even_the_expected_answer_passes_is_reported_so() -> None:
    (found,) = audited([_when(lambda _: False)], played=right_and_wrong())
    assert found.fault is Fault.NEVER_PASSED
    assert "nor the expected answer" in found.message


def test_side_conditions_alone_can_be_met_by_saying_nothing() -> None:
    (found,) = audited([length(), no_tool_failed()])
    assert found.fault is Fault.PASSED_BY_NOTHING
    assert "and so does every other rewarded measure" in found.message
    assert audited([length(), no_tool_failed(), exact()]) == []


def test_a_measure_that_is_shown_only_does_not_count_as_reward() -> None:
    found = audited([length(), exact()], weights={"exact": 0.0})
    assert [each.fault for each in found] == [Fault.PASSED_BY_NOTHING]


def test_nothing_is_found_in_the_ready_made_measures() -> None:
    numbers = [Case(f"n{n}", f"What is {n} times 37?", 37 * n) for n in range(3, 11)]
    patterns = [replace(case, expected=rf"\b{case.expected}\b") for case in CASES]
    schema = {"type": "object", "required": ["city"]}
    schemas = [replace(case, expected=schema) for case in CASES]
    called = [ToolCall("1", "look", "{}", "fine")]
    with_calls = [replace(each, tool_calls=tuple(called)) for each in right_and_wrong()[::2]]
    own = {
        "numeric": (numbers, [numeric()]),
        "regex": (patterns, [BUILTIN["regex"]()]),
        "json_schema": (schemas, [BUILTIN["json_schema"](), BUILTIN["tool_called"]()]),
        "length": (CASES, [length(), exact()]),
        "no_tool_failed": (CASES, [no_tool_failed(), exact()]),
    }
    for name, make in BUILTIN.items():
        cases, measures = own.get(name, (CASES, [make()]))
        played = [*right_and_wrong(cases), *with_calls] if cases is CASES else []
        assert audited(measures, cases, played) == [], name


def test_a_single_changed_judgement_among_many_is_not_grave() -> None:
    def sight(number: int) -> Observation:
        later = 1.0 if number == 0 else 0.0
        return Observation(
            Judgement("right", failed("no"), 1.0), f"r{number}", "c",
            at_once=0.0, later=later, was_repeated=True, was_reordered=True,
        )  # fmt: skip

    def found(count: int) -> AuditFinding:
        sights = audit([sight(number) for number in range(count)])
        return next(each for each in sights if each.fault is Fault.ORDER_DEPENDENT)

    assert not found(40).is_grave
    assert found(40).message.startswith("depends on what it judged before: 1 of 40 rollouts")
    assert found(4).is_grave


def test_a_measure_that_an_empty_answer_passes_is_reported_beside_lesser_faults() -> None:
    played = [answers(case, str(case.expected), index) for case in CASES for index in range(4)]
    found = {each.fault for each in audited([length()], played=played)}
    assert found == {Fault.PASSED_BY_NOTHING, Fault.SATURATED}
