"""Layers and locks: whatever is written in whatever order, a locked value stays."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import InvalidInput, LockedConfig, LockedField, SettingError
from sparring.settings.fields import known_names
from sparring.settings.layers import (
    DEFAULT_LOCKS,
    OPEN_TABLES,
    UNSET,
    Layer,
    Lock,
    assigned,
    covers,
    default_locks,
    flatten,
    merge,
    nested,
    refuse_unsafe_values,
    touches,
)

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


def test_a_refusal_names_the_field_both_values_and_the_way_out() -> None:
    error = Lock("beta", "sparring.toml:3", 0.5).refusal("the command", "beta", 0.5, 1.0)
    assert type(error) is LockedField
    assert str(error) == (
        "the command: beta is locked to 0.5 by sparring.toml:3; you asked for 1.0. "
        "Drop it, or unlock it in sparring.toml:3."
    )


def test_a_refusal_names_the_author_and_the_reason_if_the_lock_has_them() -> None:
    lock = Lock("seed", "sparring.toml:9", 1, author="Kim", reason="results must repeat")
    message = str(lock.refusal("the command", "seed", 1, 2))
    assert "locked to 1 by Kim in sparring.toml:9 (results must repeat); you asked" in message


@pytest.mark.parametrize(
    ("field", "error"),
    [
        ("config", LockedConfig),
        ("config.size", LockedConfig),
        ("configuration", LockedField),
        ("lora.config", LockedField),
    ],
)
def test_a_field_of_the_environments_config_has_an_error_of_its_own(
    field: str, error: type[LockedField]
) -> None:
    assert type(Lock(field, "f").refusal("the command", field, 1, 2)) is error


def test_a_lock_binds_the_owner_unless_it_is_a_default_one() -> None:
    command = Layer("the command", {"beta": 1.0}, is_written=True, is_command=True)
    for is_operator in (False, True):
        with pytest.raises(LockedField, match=r"beta is locked to 0\.5 by f"):
            merge([command], [Lock("beta", "f", 0.5)], is_operator=is_operator)


def test_every_field_that_is_locked_by_default_is_a_setting() -> None:
    assert set(DEFAULT_LOCKS) <= set(known_names("train"))
    assert len(set(DEFAULT_LOCKS)) == len(DEFAULT_LOCKS)


def test_default_locks_fix_no_value_bind_no_owner_and_name_the_owners_way_out() -> None:
    for lock in default_locks(sensitive_config=["config.size"]):
        assert lock.value is UNSET
        assert not lock.binds_owner
        message = str(lock.refusal("the command", lock.field, 1, 2))
        assert message.endswith(
            f"Drop it, or have the owner add {lock.field!r} to [operators] may_set."
        )


@pytest.mark.parametrize(
    ("free", "unlocked"),
    [
        ([], set()),
        (["lora"], {"lora"}),
        (["lora.r"], set()),
        (["config.size"], {"config.size"}),
        (["config"], {"config.size", "config.path"}),
        (["model", "engine"], {"model", "engine"}),
    ],
)
def test_fields_that_operators_may_set_are_not_locked(free: list[str], unlocked: set[str]) -> None:
    config = ["config.size", "config.path"]
    fields = {lock.field for lock in default_locks(free, config)}
    assert {*DEFAULT_LOCKS, *config} - fields == unlocked


@pytest.mark.parametrize("change", [{"lora": {"r": 8}}, {"lora": False}, {"max_steps": 9}])
def test_default_locks_hold_an_operator_to_the_values_below_and_not_the_owner(
    change: dict[str, Any],
) -> None:
    layers = [
        Layer("defaults", {"lora": {"r": 4}, "max_steps": 5}),
        Layer("the command", change, is_written=True, is_command=True),
    ]
    with pytest.raises(LockedField, match="may_set"):
        merge(layers, default_locks(), is_operator=True)
    values = merge(layers, default_locks(), is_operator=False).values()
    assert values == {"lora": {"r": 4}, "max_steps": 5} | change


NAMES = ("a", "b", "t.x", "t.y", "t.u.v", "t", "t.u")
names_of_layers = st.sampled_from(NAMES)
values = st.one_of(st.integers(0, 3), st.booleans(), st.none(), st.sampled_from(["x", "y"]))
assignments = st.lists(st.tuples(names_of_layers, values), max_size=6)


def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table as a person could write it: no name is a value and a table at once."""
    flat: dict[str, Any] = {}
    for name, value in pairs:
        for other in [each for each in flat if covers(each, name) or covers(name, each)]:
            del flat[other]
        flat[name] = value
    return nested(flat)


layers = st.lists(
    st.tuples(assignments, st.sampled_from(["below", "written", "command"])), max_size=5
)
locks = st.lists(
    st.tuples(names_of_layers, values), max_size=3, unique_by=lambda lock: lock[0]
).filter(
    lambda given: (
        not any(one != other and covers(one, other) for one, _ in given for other, _ in given)
    )
)


def built(given: list[tuple[list[tuple[str, Any]], str]]) -> list[Layer]:
    return [
        Layer(
            f"layer {number}", table(pairs),
            is_written=kind != "below", is_command=kind == "command",
        )
        for number, (pairs, kind) in enumerate(given)
    ]  # fmt: skip


@given(layers, locks)
def test_no_order_of_overrides_changes_a_locked_value(given_layers, given_locks):
    held = [Lock(name, "the lock", value) for name, value in given_locks]
    try:
        resolved = merge(built(given_layers), held, is_operator=False)
    except LockedField:
        return
    for name, value in given_locks:
        setting = resolved.settings[name]
        assert setting.value == value
        assert isinstance(setting.value, bool) == isinstance(value, bool)
        assert setting.lock is not None


@given(layers, locks)
def test_every_resolved_value_has_a_source(given_layers, given_locks):
    held = [Lock(name, "the lock", value) for name, value in given_locks]
    try:
        resolved = merge(built(given_layers), held, is_operator=False)
    except LockedField:
        return
    sources = {f"layer {number}" for number in range(len(given_layers))} | {"the lock"}
    assert all(setting.source in sources for setting in resolved.settings.values())


@given(layers)
def test_what_is_shown_and_read_again_is_the_same(given_layers):
    resolved = merge(built(given_layers), [], is_operator=False)
    again = merge([Layer("shown", resolved.values())], [], is_operator=False)
    assert again.values() == resolved.values()


@given(layers, names_of_layers)
def test_an_operator_cannot_change_what_is_locked_by_default(given_layers, locked):
    held = [Lock(locked, "default", binds_owner=False)]
    below = [layer for layer in built(given_layers) if not layer.is_command]
    without = merge(below, [], is_operator=True)
    try:
        resolved = merge(built(given_layers), held, is_operator=True)
    except LockedField:
        return
    inside = {name: each.value for name, each in resolved.settings.items() if covers(locked, name)}
    assert inside == {
        name: each.value for name, each in without.settings.items() if covers(locked, name)
    }


@given(
    st.recursive(values, lambda inner: st.dictionaries(st.sampled_from("pqr"), inner), max_leaves=8)
)
def test_flattening_loses_nothing(value):
    given_table = {"root": value}
    assert nested(dict(flatten(given_table))) == given_table


def test_a_lock_in_the_file_binds_the_owner_and_says_by_whom_and_why():
    lock = Lock("t.x", "sparring.toml:7", 3, author="Kim", reason="shared machine")
    command = Layer("the command", {"t": {"x": 4}}, is_written=True, is_command=True)
    with pytest.raises(LockedField) as refused:
        merge([Layer("defaults", {"t": {"x": 1}}), command], [lock], is_operator=False)
    assert str(refused.value) == (
        "the command: t.x is locked to 3 by Kim in sparring.toml:7 (shared machine); you asked "
        "for 4. Drop it, or unlock it in sparring.toml:7."
    )


def test_asking_for_the_locked_value_is_fine():
    lock = Lock("a", "f", 3)
    command = Layer("the command", {"a": 3}, is_written=True, is_command=True)
    assert merge([command], [lock], is_operator=True).settings["a"].value == 3


def test_default_locks_leave_the_owner_free():
    command = Layer("the command", {"learning_rate": 1.0}, is_written=True, is_command=True)
    layers = [Layer("defaults", {"learning_rate": 0.1}), command]
    resolved = merge(layers, default_locks(), is_operator=False)
    assert resolved.settings["learning_rate"].value == 1.0
    with pytest.raises(LockedField):
        merge(layers, default_locks(), is_operator=True)
    assert merge(layers, default_locks(("learning_rate",)), is_operator=True)


def test_a_table_cannot_be_swept_away_to_get_round_a_lock_inside_of_it():
    lock = Lock("t.x", "f", 3)
    command = Layer("the command", {"t": False}, is_written=True, is_command=True)
    with pytest.raises(LockedField):
        merge([Layer("defaults", {"t": {"x": 1, "y": 2}}), command], [lock], is_operator=False)


names_of_safe_values = st.text(
    st.characters(exclude_characters=".\0", exclude_categories=["Cs"]), min_size=1
).filter(str.strip)
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(1 - 2**63, 2**63 - 1) | finite | text,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names_of_safe_values, inner, max_size=3)
    ),
    max_leaves=8,
)


def deep(levels: int) -> Any:
    """A value below this number of tables."""
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@given(st.dictionaries(names_of_safe_values, plain, max_size=4))
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
