"""An existing run is checked against the locks and the budget that hold now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import LockedConfig, LockedField, OverBudget
from sparring.contracts.proof_specs import AuditSpec, CheckSpec, ProveSpec
from sparring.contracts.specs import EvalSpec, PolicySpec, RunSpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.operation import Caller
from sparring.operations.resolution import resolve_run
from sparring.operations.revalidation import all_settings, request_of, revalidate, settings_of
from tests.operations.made import edit_project, make_project, operator_of

KINDS = ("train", "check", "prove", "eval", "audit")
LOCK = '[[lock]]\nfield = "temperature"\nvalue = 0.2\n[budget]'


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner: Caller) -> Caller:
    return operator_of(owner)


def spec_of_kind(kind: str, caller: Caller, **command: Any) -> RunSpec:
    """The spec of a run that this caller starts now, with these settings in its command."""
    is_training = kind in ("train", "check")
    made = resolve_run("shop", "train" if is_training else "eval", command, caller)
    shared = made.shared()
    if kind == "train":
        return TrainSpec(**shared, settings=made.train_settings)
    if kind == "check":
        return CheckSpec(**shared, settings=made.train_settings)
    if kind == "prove":
        return ProveSpec(**shared, run="shop-1", cases=4, play=made.settings)
    if kind == "audit":
        return AuditSpec(**shared, play=made.settings)
    return EvalSpec(**shared, cases=4, play=made.settings)


def training(**fields: Any) -> TrainSpec:
    settings = TrainSettings(max_steps=7, temperature=0.9, lora={"r": 4})
    return TrainSpec(target="shop.py:Shop", environment="shop", settings=settings, **fields)


def test_settings_have_dotted_names_and_those_of_the_command_are_known() -> None:
    sources = {"max_steps": "sparring.toml:3", "lora.r": "the command", "gone": "the command"}
    spec = training(config={"size": 2}, policy=PolicySpec(model="tiny"), sources=sources)
    everything = all_settings(spec)
    assert (everything["lora.r"], everything["config.size"]) == (4, 2)
    assert (everything["model"], everything["processes"]) == ("tiny", 1)
    assert settings_of(spec) == {"max_steps": 7, "lora.r": 4}
    assert request_of(spec) == {"lora.r": 4}


def test_only_trainings_and_checks_have_processes_and_only_trainings_a_rendezvous() -> None:
    target = {"target": "shop.py:Shop", "environment": "shop"}
    names = [
        all_settings(spec).keys() & {"processes", "nodes", "rendezvous", "restarts"}
        for spec in (training(), CheckSpec(**target), EvalSpec(**target))
    ]
    assert names == [
        {"processes", "nodes", "rendezvous", "restarts"},
        {"processes", "nodes", "restarts"},
        {"restarts"},
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_could_be_started_like_this_now_is_accepted(operator: Caller, kind: str) -> None:
    revalidate(spec_of_kind(kind, operator, temperature=0.9), operator)


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_that_has_been_locked_since_is_refused(operator: Caller, kind: str) -> None:
    spec = spec_of_kind(kind, operator)
    edit_project(operator, "[budget]", LOCK)
    with pytest.raises(LockedField) as refused:
        revalidate(spec, operator)
    assert str(refused.value) == (
        "temperature is locked to 0.2 by sparring.toml:8, and this run was started with 0.8; "
        "plan a new run"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_with_the_locked_value_is_accepted(operator: Caller, kind: str) -> None:
    spec = spec_of_kind(kind, operator, temperature=0.2)
    edit_project(operator, "[budget]", LOCK)
    revalidate(spec, operator)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_owner_set_past_the_locks_of_operators_is_refused_to_them(
    owner: Caller, operator: Caller, kind: str
) -> None:
    spec = spec_of_kind(kind, owner, unsandboxed=True)
    with pytest.raises(LockedField, match="unsandboxed"):
        revalidate(spec, operator)
    revalidate(spec, owner)


def test_a_proof_is_held_to_the_locks_on_how_it_plays_only(owner: Caller, operator: Caller) -> None:
    owners = {"restarts": 9}
    for kind in ("train", "eval"):
        with pytest.raises(LockedField, match="restarts"):
            revalidate(spec_of_kind(kind, owner, **owners), operator)
    proof = spec_of_kind("prove", owner, **owners)
    proof = proof.model_copy(update={"sources": {}})  # its command set nothing
    revalidate(proof, operator)


def test_a_field_that_operators_may_no_longer_set_is_refused(operator: Caller) -> None:
    spec = spec_of_kind("train", operator, max_steps=9)
    revalidate(spec, operator)
    edit_project(operator, '"max_steps", ', "")
    with pytest.raises(LockedField, match=r"max_steps is locked to 5 .* you asked for 9"):
        revalidate(spec, operator)


def test_a_field_that_was_set_to_nothing_is_compared_with_its_value_today(
    operator: Caller,
) -> None:
    edit_project(operator, '"max_steps"', '"max_steps", "validation_cases"')
    edit_project(
        operator, "[budget]", "[environment.shop.settings]\nvalidation_cases = 4\n[budget]"
    )
    spec = spec_of_kind("train", operator, validation_cases=None)
    revalidate(spec, operator)
    edit_project(operator, ', "validation_cases"', "")
    with pytest.raises(LockedField, match="validation_cases"):
        revalidate(spec, operator)


def test_a_locked_field_of_the_config_that_the_run_does_not_have_is_refused(
    operator: Caller,
) -> None:
    spec = spec_of_kind("train", operator, config={"size": 3})
    edit_project(operator, "[budget]", '[environment.shop.config]\nstock = "more.txt"\n[budget]')
    with pytest.raises(LockedField, match=r"config\.stock .* was started with nothing"):
        revalidate(spec, operator)


def test_a_locked_table_is_not_replaced_by_a_plain_value(owner: Caller, operator: Caller) -> None:
    edit_project(owner, "[budget]", "[environment.shop.settings]\nlora.r = 8\n[budget]")
    spec = spec_of_kind("train", operator)
    revalidate(spec, operator)
    settings = spec.settings.model_copy(update={"lora": False})  # type: ignore[attr-defined]
    with pytest.raises(LockedField, match=r"lora.* is locked .* this run was started with"):
        revalidate(spec.model_copy(update={"settings": settings}), operator)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("train", "steps = 50", "steps = 4"),
        ("train", "rollouts = 3000", "rollouts = 10"),
        ("check", "rollouts = 3000", "rollouts = 10"),
        ("eval", "rollouts = 3000", "rollouts = 3"),
        ("prove", "rollouts = 3000", "rollouts = 31"),
    ],
)
def test_a_run_beyond_the_budget_of_today_is_refused_to_everybody(
    owner: Caller, operator: Caller, kind: str, old: str, new: str
) -> None:
    spec = spec_of_kind(kind, operator)
    edit_project(owner, old, new)
    for caller in (owner, operator):
        with pytest.raises(OverBudget, match=r"^sparring\.toml:\d+: at most"):
            revalidate(spec, caller)


def test_an_operators_config_is_refused_as_config(owner: Caller, operator: Caller) -> None:
    spec = spec_of_kind("train", owner, config={"stock": "other.txt"})
    with pytest.raises(LockedConfig, match=r"config\.stock is locked"):
        revalidate(spec, operator)
