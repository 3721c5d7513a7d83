"""Settings are plain JSON of a reasonable size; everything else is refused with its name."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import SettingError
from sparring.settings.safe_values import refuse_unsafe_values

names = st.text(
    st.characters(exclude_characters=".\0", exclude_categories=["Cs"]), min_size=1
).filter(str.strip)
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(1 - 2**63, 2**63 - 1) | finite | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def deep(levels: int) -> Any:
    """A value below this number of tables."""
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@given(st.dictionaries(names, plain, max_size=4))
def test_plain_values_are_accepted(table: dict[str, Any]) -> None:
    refuse_unsafe_values(table, "the command")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (float("nan"), "float"),
        (float("inf"), "float"),
        (2**63, "int"),
        (-(2**63), "int"),
        ("a\0b", "str"),
        ("\ud800", "str"),
        ("x" * 100_001, "str"),
        (b"bytes", "bytes"),
        ({1, 2}, "set"),
        (datetime.date(2024, 1, 1), "date"),
        (object(), "object"),
    ],
)
@pytest.mark.parametrize("is_in_list", [False, True])
def test_a_value_that_no_file_can_keep_is_refused_by_name_and_type(
    value: Any, kind: str, is_in_list: bool
) -> None:
    table = {"engine": {"x": [1, value] if is_in_list else value}}
    with pytest.raises(SettingError) as refused:
        refuse_unsafe_values(table, "sparring.toml")
    assert str(refused.value) == f"sparring.toml: engine.x: this {kind} cannot be a setting"


@pytest.mark.parametrize("key", ["", "  ", "a.b"])
def test_a_name_in_the_outer_levels_is_not_empty_and_has_no_dot(key: str) -> None:
    for table in ({key: 1}, {"settings": {key: 1}}):
        with pytest.raises(SettingError, match="it is empty, or has a dot in it"):
            refuse_unsafe_values(table, "sparring.toml")
    refuse_unsafe_values({"settings": {"lora": {key: 1}}}, "sparring.toml")


@pytest.mark.parametrize("key", [1, None, True, "a\0b", "\udc00", "x" * 100_001])
def test_a_name_is_plain_text_at_every_level(key: Any) -> None:
    for table in ({key: 1}, {"settings": {"lora": {"x": [{key: 1}]}}}):
        with pytest.raises(SettingError, match="cannot be a name"):
            refuse_unsafe_values(table, "sparring.toml")


def test_twelve_levels_are_accepted_and_more_are_refused() -> None:
    refuse_unsafe_values(deep(12), "f")
    with pytest.raises(
        SettingError, match=r"^f: a\.a\..*too large for settings \(limits: 12 levels"
    ):
        refuse_unsafe_values(deep(13), "f")


def test_nesting_that_would_overflow_the_stack_is_refused_by_a_short_name() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    with pytest.raises(SettingError, match="too large for settings") as refused:
        refuse_unsafe_values({"x" * 1000: value}, "f")
    assert f"{'x' * 80}…" in str(refused.value)
    assert len(str(refused.value)) < 200


def test_the_number_of_values_is_limited() -> None:
    refuse_unsafe_values({"x": list(range(19_000))}, "f")
    with pytest.raises(SettingError, match=r"20,000 values"):
        refuse_unsafe_values({"x": list(range(20_000))}, "f")
