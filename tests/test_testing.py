"""Rollouts that are built by hand look to a measure like played ones."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sparring import failed, measure, passed
from sparring.contracts.rollouts import Ending
from sparring.measures import MeasureSet
from sparring.testing import rollout, tool_call

VALUES = st.none() | st.integers() | st.text(max_size=5) | st.lists(st.booleans(), max_size=3)


@measure
def exact(rollout: Any) -> Any:
    is_right = rollout.answer == rollout.expected
    return passed("the same") if is_right else failed(f"not {rollout.expected}")


def test_a_measure_judges_it_as_it_would_a_played_one() -> None:
    measures = MeasureSet.of([exact])
    right, wrong = (rollout(answer, expected="4", input="2 + 2") for answer in ("4", "5"))
    judged = [asyncio.run(measures.judge(each)) for each in (right, wrong)]
    assert [each.reward for each in judged] == [1.0, 0.0]
    assert judged[1].judgements[0].verdict.reason == "not 4"


def test_the_transcript_is_the_question_and_the_answer() -> None:
    made = rollout("four", input="2 + 2")
    assert made.ending is Ending.ANSWERED
    assert [(each.role, each.content) for each in made.messages] == [
        ("user", "2 + 2"), ("assistant", "four"),
    ]  # fmt: skip


def test_tool_calls_take_a_turn_before_the_answer() -> None:
    assert rollout("4").turns == 1
    assert rollout("4", tool_calls=[tool_call("add", "4"), tool_call("add", "4")]).turns == 2


def test_the_case_keeps_a_copy_of_its_fields() -> None:
    fields = {"level": 1}
    made = rollout(fields=fields, world=fields)
    fields["level"] = 2
    assert made.case.fields == {"level": 1}
    assert made.world is fields


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES))
def test_arguments_of_a_tool_call_are_the_json_that_a_model_writes(
    arguments: dict[str, Any],
) -> None:
    made = tool_call("find", "found it", **arguments)
    assert json.loads(made.arguments) == arguments
    assert (made.tool, made.result, made.failure) == ("find", "found it", None)
