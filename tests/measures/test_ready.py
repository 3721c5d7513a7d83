import asyncio
import time
from typing import Any

import pytest

from sparring.contracts.errors import MeasureError
from sparring.contracts.rollouts import CallFailure, Ending, ToolCall
from sparring.contracts.verdicts import Outcome
from sparring.measures import MeasureSet, ready
from tests.rollouts import rollout


def ready_set(measure: Any) -> MeasureSet:
    return MeasureSet.of([measure], seconds=0.2)


PASSED, FAILED, UNSURE = Outcome.PASSED, Outcome.FAILED, Outcome.CANNOT_TELL


@pytest.mark.parametrize(
    ("measure", "played", "outcome"),
    [
        (ready.exact(), rollout(" Paris ", "paris"), PASSED),
        (ready.exact(ignore_case=False), rollout("paris", "Paris"), FAILED),
        (ready.exact(), rollout("x", None), UNSURE),
        (ready.exact(), rollout("paris", ["Rome", "Paris"]), PASSED),
        (ready.exact(), rollout("Oslo", ["Rome", "Paris"]), FAILED),
        (ready.exact(), rollout("Oslo", []), UNSURE),
        (ready.contains(), rollout("It is Paris.", "paris"), PASSED),
        (ready.contains(), rollout("It is Paris.", ("Lutetia", "Paris")), PASSED),
        (ready.numeric(), rollout("about 41", [40, 41]), PASSED),
        (ready.numeric(), rollout("about 41", ["many", 40]), UNSURE),
        (ready.contains("Rome"), rollout("It is Paris."), FAILED),
        (ready.numeric(), rollout("12 + 30 = 42.", 42), PASSED),
        (ready.numeric(), rollout("it is 1,234.50", "1234.5"), PASSED),
        (ready.numeric(), rollout("−3", -3), PASSED),
        (ready.numeric(), rollout("about 41", 42), FAILED),
        (ready.numeric(tolerance=0.1), rollout("about 41", 42), PASSED),
        (ready.numeric(), rollout("no idea", 42), FAILED),
        (ready.numeric(), rollout("42", "many"), UNSURE),
        (ready.numeric(), rollout("9" * 5000, 42), FAILED),
        (ready.regex(r"\b4\d\b"), rollout("It is 42"), PASSED),
        (ready.regex(), rollout("abc", r"^\d+$"), FAILED),
        (ready.json_schema({"type": "object"}), rollout('{"a": 1}'), PASSED),
        (ready.json_schema({"type": "object"}), rollout("[1]"), FAILED),
        (ready.json_schema({"type": "object"}), rollout("nope"), FAILED),
        (ready.json_schema(), rollout("{}", "no schema"), UNSURE),
        (ready.tool_called("add"), rollout(tools=["add"]), PASSED),
        (ready.tool_called("add"), rollout(tools=["sub"]), FAILED),
        (ready.tool_called(), rollout(), FAILED),
        (
            ready.tool_called(),
            rollout(tools=[ToolCall("1", "made_up", "{}", failure=CallFailure.UNKNOWN_TOOL)]),
            FAILED,
        ),
        (ready.no_tool_failed(), rollout(tools=["add"]), PASSED),
        (
            ready.no_tool_failed(),
            rollout(tools=[ToolCall("1", "add", "{}", "boom", CallFailure.RAISED)]),
            FAILED,
        ),
        (ready.no_tool_failed(), rollout(ending=Ending.UNPARSABLE_CALL), FAILED),
        (ready.length(words=3), rollout("one two three"), PASSED),
        (ready.length(words=2), rollout("one two three"), FAILED),
        (ready.length(), rollout("  "), FAILED),
    ],
)
def test_a_ready_measure_judges_and_says_why(measure, played, outcome):
    verdict = measure(played)
    assert verdict.outcome is outcome
    assert verdict.reason


def test_a_pattern_or_schema_that_cannot_be_used_is_refused_at_once():
    with pytest.raises(MeasureError, match="no regular expression"):
        ready.regex("(")
    with pytest.raises(MeasureError, match="no JSON schema"):
        ready.json_schema({"type": "nope"})


def test_every_ready_measure_can_be_had_by_its_name():
    for name, factory in ready.READY.items():
        assert factory().name == name


def test_a_search_that_would_take_for_ever_leaves_the_loop_free():
    """Python's own engine would hold every thread meanwhile."""

    async def judged() -> tuple[float, Any]:
        measures = ready_set(ready.regex(r"(a|aa)+$"))
        judging = asyncio.create_task(measures.judge(rollout("a" * 64 + "b")))
        longest = last = 0.0
        clock = time.perf_counter
        while not judging.done():
            last = clock()
            await asyncio.sleep(0.01)
            longest = max(longest, clock() - last)
        return longest, await judging

    longest, found = asyncio.run(judged())
    assert found.reward is None
    assert "no verdict within" in found.judgements[0].cause
    assert longest < 1
