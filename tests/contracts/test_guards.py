"""Guards as settings: what is written changes that much and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sparring.contracts.guards import Guard, Guards

NAMES = sorted(Guards.model_fields)
names = st.sampled_from(NAMES)
actions = st.sampled_from(["stop", "warn", "off"])
parts = st.fixed_dictionaries(
    {},
    optional={
        "limit": st.floats(-1e6, 1e6),
        "steps": st.integers(1, 1000),
        "action": actions,
    },
)


@settings(max_examples=25)
@given(names, actions)
def test_a_string_sets_the_action_and_keeps_limit_and_steps(name: str, action: str) -> None:
    before: Guard = getattr(Guards(), name)
    after: Guard = getattr(Guards.model_validate({name: action}), name)
    assert after == Guard.model_validate({**before.model_dump(), "action": action})


@settings(max_examples=25)
@given(names, parts)
def test_a_table_changes_what_it_names_and_no_other_guard(name: str, table: dict[str, Any]) -> None:
    before = Guards().model_dump()
    after = Guards.model_validate({name: table}).model_dump()
    assert after[name] == {**before[name], **table}
    assert {each: after[each] for each in NAMES if each != name} == {
        each: before[each] for each in NAMES if each != name
    }


@settings(max_examples=25)
@given(st.dictionaries(names, st.one_of(actions, parts)))
def test_guards_survive_being_written_and_read(table: dict[str, Any]) -> None:
    guards = Guards.model_validate(table)
    assert Guards.model_validate_json(guards.model_dump_json()) == guards


def test_a_guard_given_whole_is_taken_as_it_is() -> None:
    whole = Guard(limit=0.5, steps=3, action="warn")
    assert Guards(entropy=whole).entropy == whole


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"entropi": "off"}, "entropi\n  Extra inputs are not permitted"),
        ({"entropy": "ignore"}, "entropy.action\n  Input should be 'stop', 'warn' or 'off'"),
        ({"entropy": {"steps": 0}}, "entropy.steps\n  Input should be greater than or equal to 1"),
        ({"entropy": {"limt": 1}}, "entropy.limt\n  Extra inputs are not permitted"),
        ({"entropy": 3}, "entropy\n  Input should be a valid dictionary or instance of Guard"),
    ],
)
def test_what_is_no_guard_is_refused_by_its_name(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Guards.model_validate(table)
    assert problem in str(refused.value)


def test_every_guard_stops_by_default_and_says_what_it_looks_at() -> None:
    for name, field in Guards.model_fields.items():
        assert getattr(Guards(), name).action == "stop"
        assert field.description


def test_steps_that_are_discarded_have_the_guard_against_broken_numbers_only() -> None:
    guards = Guards.model_validate({"truncated": {"steps": 1}, "not_finite": {"steps": 3}})
    alone = guards.only_not_finite()
    assert alone.not_finite == guards.not_finite
    others = alone.model_dump(exclude={"not_finite"}).values()
    assert {each["action"] for each in others} == {"off"}
