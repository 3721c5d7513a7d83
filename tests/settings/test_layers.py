"""Layers and locks: whatever is written in whatever order, a locked value stays."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.environments import FieldDescription
from sparring.contracts.errors import (
    ConfigError,
    LockedField,
    SettingError,
)
from sparring.contracts.training import TrainSettings
from sparring.settings.fields import (
    Kind,
)
from sparring.settings.layers import (
    OPEN_TABLES,
    CheckedSettings,
    Layer,
    Resolved,
    check_types,
    defaults,
    flatten,
    merge,
    nested,
    normalised,
    refuse_unsafe_values,
)
from sparring.settings.locks import Lock, covers, default_locks

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


def test_a_lock_binds_the_owner_unless_it_is_a_default_one() -> None:
    command = Layer("the command", {"beta": 1.0}, is_written=True, is_command=True)
    for is_operator in (False, True):
        with pytest.raises(LockedField, match=r"beta is locked to 0\.5 by f"):
            merge([command], [Lock("beta", "f", 0.5)], is_operator=is_operator)


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
def test_shown_settings_that_are_read_again_are_the_same(given_layers):
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


KINDS: tuple[Kind, ...] = ("train", "eval")


FIELDS = (
    FieldDescription(name="size", type="int", default=2, json_schema={"type": "integer"}),
    FieldDescription(
        name="code",
        type="str",
        default="a",
        json_schema={"type": "string", "pattern": "^(a+)+$"},
    ),
    FieldDescription(
        name="odd", type="str", default="", json_schema={"type": "string", "pattern": "(?<=a)b"}
    ),
)


REQUIRED = FieldDescription(name="path", type="Path", required=True)


def resolved(values: dict[str, Any], kind: Kind, fields: tuple[FieldDescription, ...]) -> Resolved:
    places = {name: f"f.toml:{line}" for line, name in enumerate(values, 1)}
    layers = [
        Layer("defaults", defaults(kind, fields)),
        Layer("f.toml", normalised(values), places, is_written=True),
    ]
    return merge(layers, [], is_operator=False)


def check(
    values: dict[str, Any],
    kind: Kind = "train",
    fields: tuple[FieldDescription, ...] = FIELDS,
) -> CheckedSettings:
    return check_types(resolved(values, kind, fields), kind, fields)


def refusal(values: dict[str, Any], **given: Any) -> str:
    with pytest.raises(SettingError) as refused:
        check(values, **given)
    return str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_the_defaults_are_valid_and_count_as_unchanged(kind: Kind) -> None:
    checked = check({}, kind)
    assert checked.play == type(checked.play)()
    assert checked.config == {}  # the environment has its own defaults
    assert resolved({}, kind, FIELDS).sources() == {}


def test_only_optional_fields_of_an_environment_have_defaults() -> None:
    assert defaults("eval", (*FIELDS, REQUIRED))["config"] == {"size": 2, "code": "a", "odd": ""}


def test_a_changed_value_keeps_its_source() -> None:
    changed = resolved({"beta": 0.5, "lora": {"r": 8}, "config": {"size": 3}}, "train", FIELDS)
    assert changed.sources() == {
        "beta": "f.toml:1",
        "lora.r": "f.toml:2",
        "config.size": "f.toml:3",
    }


def test_checked_settings_are_the_models_of_their_values() -> None:
    checked = check({"beta": 1, "restarts": 7, "model": "tiny", "config": {"size": 3}})
    assert isinstance(checked.play, TrainSettings)
    assert (checked.play.beta, checked.supervision.restarts) == (1.0, 7)
    assert (checked.model.model, checked.config) == ("tiny", {"size": 3})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"beta": -1}, "f.toml:1: beta: Input should be greater than or equal to 0"),
        ({"temperature": float("nan")}, "f.toml:1: temperature: Input should be a finite number"),
        ({"restarts": -1}, "f.toml:1: restarts: Input should be greater than or equal to 0"),
        ({"guards": {"entropi": "off"}}, "no such setting; did you mean entropy?"),
        ({"guards": {"entropy": {"zzz": 1}}}, "no such setting; there are limit, steps, action"),
        ({"model": 3}, "f.toml:1: model: Input should be a valid string"),
        ({"nodes": 0}, "f.toml:1: nodes: Input should be greater than or equal to 1"),
        ({"processes": True}, "f.toml:1: processes: Input should be a valid integer"),
        ({"processes": None}, "f.toml:1: processes: Input should be a valid integer"),
        ({"config": 3}, "f.toml:1: config must be a table, not 3"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_its_place(values: dict[str, Any], message: str) -> None:
    assert message in refusal(values)


def test_all_wrong_values_are_named_at_once_and_without_the_types_that_were_tried() -> None:
    lines = refusal({"beta": -1, "max_steps": 0, "lora": 3}).splitlines()
    names = [line.split(": ")[:2] for line in lines]
    assert sorted(names) == [
        ["f.toml:1", "beta"],
        ["f.toml:2", "max_steps"],
        ["f.toml:3", "lora"],
        ["f.toml:3", "lora"],
    ]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"size": "x"}, "f.toml:1: config.size: 'x' is not of type 'integer'"),
        ({"siz": 1}, "config.siz: there is no such field; did you mean config.size?"),
        ({"zzz": 1}, "config.zzz: there is no such field; config fields: size, code, odd"),
        ({"code": "b"}, "config.code: 'b' does not match '^(a+)+$'"),
    ],
)
def test_a_wrong_field_of_the_config_is_refused_with_its_place(
    config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check({"config": config})
    assert message in str(refused.value)


def test_a_value_that_stalls_a_backtracking_matcher_is_refused_at_once() -> None:
    assert "does not match" in refusal({"config": {"code": "a" * 5000 + "b"}})


def test_a_pattern_in_another_dialect_is_left_to_the_environment() -> None:
    assert check({"config": {"odd": "zzz"}}).config == {"odd": "zzz"}


def test_a_schema_that_cannot_be_applied_is_left_to_the_environment() -> None:
    field = FieldDescription(name="x", type="X", json_schema={"$ref": "#"})
    checked = check({"config": {"x": 1}}, fields=(field,))
    assert checked.config == {"x": 1}


def test_a_required_field_of_the_config_must_be_set() -> None:
    fields = (*FIELDS, REQUIRED)
    assert refusal({}, fields=fields).startswith("config.path: the environment requires it (Path)")
    assert check({"config": {"path": "x"}}, fields=fields).config == {"path": "x"}


@pytest.mark.parametrize(
    ("given", "table"),
    [
        ({"lora": True}, {"lora": {}}),
        ({"lora": False}, {"lora": False}),
        ({"warm_start": "d.jsonl"}, {"warm_start": {"source": "d.jsonl"}}),
        (
            {"guards": {"entropy": "warn", "truncated": {"limit": 1}}},
            {"guards": {"entropy": {"action": "warn"}, "truncated": {"limit": 1}}},
        ),
        ({"guards": "wrong"}, {"guards": "wrong"}),
    ],
)
def test_a_shorthand_is_the_table_it_stands_for(
    given: dict[str, Any], table: dict[str, Any]
) -> None:
    before = dict(given)
    assert normalised(given) == table
    assert normalised(table) == table
    assert given == before
