"""Layers and locks: whatever is written in whatever order, a locked value stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import LockedField
from sparring.settings.layers import Layer, resolve
from sparring.settings.locks import Lock, default_locks
from sparring.settings.names import covers, flatten, nested

NAMES = ("a", "b", "t.x", "t.y", "t.u.v", "t", "t.u")
names = st.sampled_from(NAMES)
values = st.one_of(st.integers(0, 3), st.booleans(), st.none(), st.sampled_from(["x", "y"]))
assignments = st.lists(st.tuples(names, values), max_size=6)


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
locks = st.lists(st.tuples(names, values), max_size=3, unique_by=lambda lock: lock[0]).filter(
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
        resolved = resolve(built(given_layers), held, is_operator=False)
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
        resolved = resolve(built(given_layers), held, is_operator=False)
    except LockedField:
        return
    sources = {f"layer {number}" for number in range(len(given_layers))} | {"the lock"}
    assert all(setting.source in sources for setting in resolved.settings.values())


@given(layers)
def test_what_is_shown_and_read_again_is_the_same(given_layers):
    resolved = resolve(built(given_layers), [], is_operator=False)
    again = resolve([Layer("shown", resolved.values())], [], is_operator=False)
    assert again.values() == resolved.values()


@given(layers, names)
def test_an_operator_cannot_change_what_is_locked_by_default(given_layers, locked):
    held = [Lock(locked, "default", binds_owner=False)]
    below = [layer for layer in built(given_layers) if not layer.is_command]
    without = resolve(below, [], is_operator=True)
    try:
        resolved = resolve(built(given_layers), held, is_operator=True)
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
        resolve([Layer("defaults", {"t": {"x": 1}}), command], [lock], is_operator=False)
    assert str(refused.value) == (
        "the command: t.x is locked to 3 by Kim in sparring.toml:7 (shared machine); you asked "
        "for 4. Drop it, or unlock it in sparring.toml:7."
    )


def test_asking_for_the_locked_value_is_fine():
    lock = Lock("a", "f", 3)
    command = Layer("the command", {"a": 3}, is_written=True, is_command=True)
    assert resolve([command], [lock], is_operator=True).settings["a"].value == 3


def test_default_locks_leave_the_owner_free():
    command = Layer("the command", {"learning_rate": 1.0}, is_written=True, is_command=True)
    layers = [Layer("defaults", {"learning_rate": 0.1}), command]
    resolved = resolve(layers, default_locks(), is_operator=False)
    assert resolved.settings["learning_rate"].value == 1.0
    with pytest.raises(LockedField):
        resolve(layers, default_locks(), is_operator=True)
    assert resolve(layers, default_locks(("learning_rate",)), is_operator=True)


def test_a_table_cannot_be_swept_away_to_get_round_a_lock_inside_of_it():
    lock = Lock("t.x", "f", 3)
    command = Layer("the command", {"t": False}, is_written=True, is_command=True)
    with pytest.raises(LockedField):
        resolve([Layer("defaults", {"t": {"x": 1, "y": 2}}), command], [lock], is_operator=False)
