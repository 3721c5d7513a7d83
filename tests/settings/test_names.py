"""Dotted names stand for values in nested tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.settings.names import OPEN_TABLES, covers, flatten, nested, touches

parts = st.sampled_from(["a", "ab", "b"])
names = st.lists(parts, min_size=1, max_size=4).map(".".join)
tables: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    parts,
    st.recursive(st.integers(), lambda inner: st.dictionaries(parts, inner), max_leaves=6),
)


def test_every_value_has_a_dotted_name_and_an_empty_table_is_a_value() -> None:
    table = {"seed": 1, "guards": {"entropy": {"limit": 0.1}, "truncated": {}}}
    assert list(flatten(table)) == [
        ("seed", 1),
        ("guards.entropy.limit", 0.1),
        ("guards.truncated", {}),
    ]


@pytest.mark.parametrize("name", sorted(OPEN_TABLES))
def test_a_table_in_a_table_of_others_is_one_value(name: str) -> None:
    pattern = {"model.layers.0": 4}
    flat = dict(flatten({name: {"rank_pattern": pattern, "r": 8}}))
    assert flat == {f"{name}.rank_pattern": pattern, f"{name}.r": 8}
    assert nested(flat) == {name: {"rank_pattern": pattern, "r": 8}}


@given(tables)
def test_nesting_undoes_flattening(table: dict[str, Any]) -> None:
    assert nested(dict(flatten(table))) == table


def test_a_table_replaces_a_plain_value_of_its_name() -> None:
    assert nested({"lora": True, "lora.r": 8}) == {"lora": {"r": 8}}
    assert nested({"lora.r": 8, "lora": False}) == {"lora": False}


@given(names, names)
def test_a_name_covers_itself_and_what_lies_in_its_table(name: str, other: str) -> None:
    one, two = name.split("."), other.split(".")
    assert covers(name, other) == (two[: len(one)] == one)


@given(names, names)
def test_setting_a_name_changes_what_it_covers_and_what_covers_it(name: str, other: str) -> None:
    assert touches(name, other) == touches(other, name)
    assert touches(name, other) == (covers(name, other) or covers(other, name))
    assert touches(name, f"{name}.{other}")
