"""Every setting has a name, a type, a default and a check; an error names its place."""

from __future__ import annotations

from typing import Any

import pytest

from sparring.contracts.environments import FieldDescription
from sparring.contracts.errors import ConfigError, SettingError
from sparring.contracts.training import TrainSettings
from sparring.settings.fields import (
    PLAYED,
    CheckedSettings,
    Kind,
    check_types,
    defaults,
    describe_settings,
    known_names,
    nearest,
    refuse_unknown,
    types_of_settings,
)
from sparring.settings.layers import Layer, Resolved, merge, normalised

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
def test_every_setting_has_a_default_a_type_and_a_description(kind: Kind) -> None:
    names = set(known_names(kind))
    assert set(defaults(kind, ())) == names
    assert set(types_of_settings(kind)) == set(describe_settings(kind)) == names - {"config"}
    assert len(known_names(kind)) == len(names)


def test_an_evaluation_has_no_settings_of_training() -> None:
    only_training = set(known_names("train")) - set(known_names("eval"))
    assert {"processes", "nodes", "rendezvous", "learning_rate", "lora"} <= only_training
    assert set(known_names("eval")) <= set(known_names("train"))


def test_an_evaluation_takes_over_neither_seed_nor_number_of_rollouts() -> None:
    assert set(known_names("eval")) - PLAYED == {"num_generations", "seed"}


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


def test_the_type_of_a_setting_is_a_short_text() -> None:
    types = types_of_settings()
    wanted = {
        "beta": "number",
        "unsandboxed": "boolean",
        "max_steps": "integer or null",
        "dtype": "auto | bfloat16 | float32",
        "lora": "boolean or table",
        "engine": "table",
        "report_to": "list of string",
        "guards": "table of no_tool_call, dead_groups, entropy, truncated, not_finite",
        "model": "string or null",
        "processes": "integer",
    }
    assert {name: types[name] for name in wanted} == wanted


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
    ("name", "hint"),
    [
        ("learning_rat", "there is no such setting; did you mean learning_rate?"),
        ("checkpoint_steps", "use save_steps"),
        ("zzz", "there is no such setting; set TRL's own settings as engine.zzz"),
    ],
)
def test_an_unknown_name_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(SettingError) as refused:
        refuse_unknown(["beta", name], "the command", known_names("train"))
    assert str(refused.value) == f"the command: {name}: {hint}"


def test_known_names_are_not_refused() -> None:
    refuse_unknown(known_names("train"), "the command", known_names("train"))


def test_a_hint_is_only_for_a_name_that_is_close() -> None:
    assert nearest("sise", ["size", "code"], "config.") == "did you mean config.size?"
    assert nearest("zzz", ["size", "code"]) == ""


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
