"""Every setting has a name, a type, a default and a check; an error names its place."""

from __future__ import annotations

import pytest

from sparring.contracts.errors import SettingError
from sparring.settings.fields import (
    PLAYED,
    Kind,
    describe_settings,
    known_names,
    nearest,
    refuse_unknown,
    types_of_settings,
)
from sparring.settings.layers import defaults

KINDS: tuple[Kind, ...] = ("train", "eval")


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
