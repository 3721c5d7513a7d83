"""Invalid arguments are described so that a model can correct them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from sparring.player.arguments import argument_problems

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
LIST = {"type": "object", "properties": {"xs": {"type": "array", "items": {"type": "integer"}}}}


def test_arguments_that_fit_have_no_problems() -> None:
    assert argument_problems('{"a": 1, "b": 2}', ADD) == ""


def test_a_problem_names_the_argument_at_fault() -> None:
    assert argument_problems('{"a": 1, "b": "two"}', ADD) == "b: 'two' is not of type 'integer'"


def test_a_problem_inside_an_argument_names_its_place() -> None:
    assert argument_problems('{"xs": [1, "two"]}', LIST).startswith("xs[1]: 'two'")


def test_a_problem_of_the_whole_is_one_of_the_arguments() -> None:
    assert argument_problems("[]", ADD) == "arguments: [] is not of type 'object'"
    assert argument_problems('{"a": 1}', ADD) == "arguments: 'b' is a required property"


@given(st.lists(st.text(max_size=300), max_size=12))
def test_at_most_three_short_problems_are_described(values: list[str]) -> None:
    problems = argument_problems(json.dumps({"xs": ["bad;" + value for value in values]}), LIST)
    assert problems.count("xs[") == min(3, len(values))
    assert len(problems) < 3 * 140
