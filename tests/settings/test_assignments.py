"""What is typed as NAME=VALUE becomes settings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import (
    InvalidInput,
)
from sparring.settings.assignments import assigned

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(json_values)
def test_a_value_written_as_json_is_read_as_json(value: Any) -> None:
    assert assigned([f"engine.x={json.dumps(value)}"], {}) == {"engine": {"x": value}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("tiny", "tiny"),
        (" tiny ", "tiny"),
        ("", ""),
        ("HOST:29500", "HOST:29500"),
        ("a=b", "a=b"),
        ("[1, 2", "[1, 2"),
        ("[" * 5000, "[" * 5000),
        ('"8"', "8"),
        ("true", True),
    ],
)
def test_a_value_that_is_not_json_is_a_string(text: str, value: Any) -> None:
    assert assigned([f"model={text}"], {}) == {"model": value}


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "sampling=2",
            "sampling.wait_seconds=60",
            "guards.truncated=warn",
            "guards.truncated.limit=1",
        ],
        [
            "sampling.wait_seconds=60",
            "sampling=2",
            "guards.truncated.limit=1",
            "guards.truncated=warn",
        ],
    ],
)
def test_a_short_form_and_fields_of_its_table_go_together(arguments: list[str]) -> None:
    assert assigned(arguments, {}) == {
        "sampling": {"servers": 2, "wait_seconds": 60},
        "guards": {"truncated": {"action": "warn", "limit": 1}},
    }


def test_a_table_replaces_and_null_removes_what_was_set() -> None:
    assert assigned(["engine.a=1", 'engine={"b": 2}'], {}) == {"engine": {"b": 2}}
    assert assigned(["sampling.wait_seconds=60", "sampling=null"], {}) == {"sampling": None}
    given = {"sampling": "http://a:1,http://b:2"}
    assert assigned(["sampling.wait_seconds=60"], given) == {
        "sampling": {"servers": "http://a:1,http://b:2", "wait_seconds": 60}
    }


def test_dots_separate_the_names_of_tables() -> None:
    arguments = ["lora.r=8", "guards.entropy.limit=0.1", "lora.bias=none"]
    assert assigned(arguments, {}) == {
        "lora": {"r": 8, "bias": "none"},
        "guards": {"entropy": {"limit": 0.1}},
    }


def test_the_last_assignment_to_a_name_wins() -> None:
    assert assigned(["beta=1", "beta=2"], {}) == {"beta": 2}
    assert assigned(["lora=true", "lora.r=8"], {}) == {"lora": {"r": 8}}
    assert assigned(["lora.r=8", "lora=false"], {}) == {"lora": False}


def test_assignments_are_added_to_the_values_there_are() -> None:
    lora = {"r": 4, "bias": "none"}
    values = {"seed": 3, "lora": lora}
    assert assigned(["lora.r=8"], values) is values
    assert values == {"seed": 3, "lora": {"r": 8, "bias": "none"}}
    assert lora == {"r": 4, "bias": "none"}, "the caller's own table was changed"


@pytest.mark.parametrize(
    "assignment",
    ["beta", "", "=1", " =1", "lora.=1", ".r=1", "a..b=1", ".".join("abcdefghi") + "=1"],
)
def test_an_assignment_without_a_plain_name_is_refused_with_an_example(assignment: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        assigned([assignment], {})
    assert str(refused.value) == (f"--set needs NAME=VALUE, as in lora.r=8; got {assignment!r}")


def test_a_long_assignment_is_quoted_in_part() -> None:
    with pytest.raises(InvalidInput) as refused:
        assigned(["x" * 10_000], {})
    assert len(str(refused.value)) < 200
