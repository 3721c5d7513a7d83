import asyncio
import time
from typing import Any

import pytest

from sparring.contracts.errors import MeasureError
from sparring.contracts.rollouts import CallFailure, Ending, ToolCall
from sparring.contracts.verdicts import Outcome
from sparring.measures import MeasureSet, builtin
from tests.rollouts import rollout


def ready_set(measure: Any) -> MeasureSet:
    return MeasureSet.of([measure], seconds=0.2)


PASSED, FAILED, UNSURE = Outcome.PASSED, Outcome.FAILED, Outcome.CANNOT_TELL


@pytest.mark.parametrize(
    ("measure", "played", "outcome"),
    [
        (builtin.exact(), rollout(" Paris ", "paris"), PASSED),
        (builtin.exact(ignore_case=False), rollout("paris", "Paris"), FAILED),
        (builtin.exact(), rollout("x", None), UNSURE),
        (builtin.exact(), rollout("paris", ["Rome", "Paris"]), PASSED),
        (builtin.exact(), rollout("Oslo", ["Rome", "Paris"]), FAILED),
        (builtin.exact(), rollout("Oslo", []), UNSURE),
        (builtin.contains(), rollout("It is Paris.", "paris"), PASSED),
        (builtin.contains(), rollout("It is Paris.", ("Lutetia", "Paris")), PASSED),
        (builtin.numeric(), rollout("about 41", [40, 41]), PASSED),
        (builtin.numeric(), rollout("about 41", ["many", 40]), UNSURE),
        (builtin.contains("Rome"), rollout("It is Paris."), FAILED),
        (builtin.contains(), rollout("It is Paris.", ""), UNSURE),
        (builtin.regex(), rollout("It is Paris.", ""), UNSURE),
        (builtin.numeric(), rollout("12 + 30 = 42.", 42), PASSED),
        (builtin.numeric(), rollout("it is 1,234.50", "1234.5"), PASSED),
        (builtin.numeric(), rollout("−3", -3), PASSED),
        (builtin.numeric(), rollout("It costs $.75", 0.75), PASSED),
        (builtin.numeric(), rollout("-.25", ".75"), FAILED),
        (builtin.numeric(), rollout("-.25", "-.25"), PASSED),
        (builtin.numeric(), rollout("0.25 is .25", 25), FAILED),
        (builtin.numeric(), rollout("the answer is...5", 5), PASSED),
        (builtin.numeric(), rollout("see step.5", 5), PASSED),
        (builtin.numeric(), rollout("pages 3-5", 5), PASSED),
        (builtin.numeric(), rollout("about 41", 42), FAILED),
        (builtin.numeric(tolerance=0.1), rollout("about 41", 42), PASSED),
        (builtin.numeric(), rollout("no idea", 42), FAILED),
        (builtin.numeric(), rollout("42", "many"), UNSURE),
        (builtin.numeric(), rollout("9" * 5000, 42), FAILED),
        (builtin.regex(r"\b4\d\b"), rollout("It is 42"), PASSED),
        (builtin.regex(), rollout("abc", r"^\d+$"), FAILED),
        (builtin.json_schema({"type": "object"}), rollout('{"a": 1}'), PASSED),
        (builtin.json_schema({"type": "object"}), rollout("[1]"), FAILED),
        (builtin.json_schema({"type": "object"}), rollout("nope"), FAILED),
        (builtin.json_schema(), rollout("{}", "no schema"), UNSURE),
        (builtin.tool_called("add"), rollout(tools=["add"]), PASSED),
        (builtin.tool_called("add"), rollout(tools=["sub"]), FAILED),
        (builtin.tool_called(), rollout(), FAILED),
        (
            builtin.tool_called(),
            rollout(tools=[ToolCall("1", "made_up", "{}", failure=CallFailure.UNKNOWN_TOOL)]),
            FAILED,
        ),
        (builtin.no_tool_failed(), rollout(tools=["add"]), PASSED),
        (
            builtin.no_tool_failed(),
            rollout(tools=[ToolCall("1", "add", "{}", "boom", CallFailure.RAISED)]),
            FAILED,
        ),
        (builtin.no_tool_failed(), rollout(ending=Ending.UNPARSABLE_CALL), FAILED),
        (builtin.length(words=3), rollout("one two three"), PASSED),
        (builtin.length(words=2), rollout("one two three"), FAILED),
        (builtin.length(), rollout("  "), FAILED),
    ],
)
def test_a_ready_measure_judges_and_says_why(measure, played, outcome):
    verdict = measure(played)
    assert verdict.outcome is outcome
    assert verdict.reason


def test_a_pattern_or_schema_that_cannot_be_used_is_refused_at_once():
    with pytest.raises(MeasureError, match="not a valid regular expression"):
        builtin.regex("(")
    with pytest.raises(MeasureError, match="invalid JSON schema"):
        builtin.json_schema({"type": "nope"})


def test_every_ready_measure_can_be_had_by_its_name():
    for name, factory in builtin.BUILTIN.items():
        assert factory().name == name


def test_a_search_that_would_take_for_ever_leaves_the_loop_free():
    """Python's own engine would hold every thread meanwhile."""

    async def judged() -> tuple[float, Any]:
        measures = ready_set(builtin.regex(r"(a|aa)+$"))
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
