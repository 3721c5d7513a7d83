"""What a lock covers, whom it binds, and how it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import (
    LockedConfig,
    LockedField,
)
from sparring.settings.fields import (
    known_names,
)
from sparring.settings.locks import DEFAULT_LOCKS, UNSET, Lock, covers, default_locks, touches

parts = st.sampled_from(["a", "ab", "b"])

names = st.lists(parts, min_size=1, max_size=4).map(".".join)


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
