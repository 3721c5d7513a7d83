"""A check and an audit are started as runs of the environment as it would be trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput, NotPermitted, OverBudget
from sparring.contracts.kinds import AuditSpec, CheckSpec
from sparring.contracts.specs import EndpointSpec
from sparring.operations.checking import (
    StartAudit,
    StartCheck,
    compared_models,
    start_audit,
    start_check,
)
from sparring.operations.operation import Caller
from tests.operations.made import edit_project, make_project, operator_of, spec_of


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner: Caller) -> Caller:
    return operator_of(owner)


@pytest.fixture(autouse=True)
def _without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENROUTER_API_KEY", "OPENROUTER_API_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_an_audit_has_the_environments_settings_and_the_requested_cases(
    operator: Caller,
) -> None:
    run = start_audit(StartAudit(environment="shop", cases=3), operator).run
    spec = AuditSpec.model_validate(spec_of(operator, run))
    assert (spec.cases, spec.play.max_completion_length) == (3, 77)
    assert run.startswith("audit-shop-")


def test_a_check_has_the_requested_size(owner: Caller) -> None:
    size = {"cases": 4, "rollouts": 3, "minutes": 2.5, "dry_steps": 1, "price_per_hour": 1.5}
    run = start_check(StartCheck.model_validate({"environment": "shop", **size}), owner).run
    spec = CheckSpec.model_validate(spec_of(owner, run))
    assert {name: getattr(spec, name) for name in size} == size


def test_a_check_has_the_settings_of_the_training_that_is_planned(owner: Caller) -> None:
    request = StartCheck(environment="shop", settings={"temperature": 0.9})
    spec = CheckSpec.model_validate(spec_of(owner, start_check(request, owner).run))
    assert spec.settings.max_completion_length == 77
    assert spec.settings.max_steps == 5
    assert spec.settings.temperature == 0.9
    assert (spec.cases, spec.rollouts, spec.other_cases, spec.minutes) == (12, 16, 3, 10)
    assert spec.others == ()


def test_with_a_key_three_models_of_openrouter_play_by_default(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-planted")
    run = start_check(StartCheck(environment="shop"), owner).run
    spec = CheckSpec.model_validate(spec_of(owner, run))
    assert len({each.model for each in spec.others}) == 3
    assert "sk-planted" not in (owner.runs / run / "spec.json").read_text()
    alone = start_check(StartCheck(environment="shop", compare=("none",)), owner).run
    assert spec_of(owner, alone)["others"] == []


def test_which_servers_play_is_the_owners_to_say(operator: Caller) -> None:
    compare = ("x@http://127.0.0.1:1/v1",)
    with pytest.raises(NotPermitted):
        start_check(StartCheck(environment="shop", compare=compare), operator)
    assert start_check(StartCheck(environment="shop"), operator).run.startswith("check-shop-")
    assert start_audit(StartAudit(environment="shop"), operator).run.startswith("audit-shop-")


def test_a_check_is_held_to_steps_and_to_all_it_could_play(operator: Caller) -> None:
    edit_project(operator, "steps = 50", "steps = 1")
    with pytest.raises(OverBudget, match="dry_steps is 2"):
        start_check(StartCheck(environment="shop"), operator)
    edit_project(operator, "steps = 1", "steps = 50")
    many = {"num_generations": 64, "cases_per_batch": 8}
    with pytest.raises(OverBudget, match="this one could play"):
        start_check(StartCheck(environment="shop", cases=2, rollouts=2, settings=many), operator)
    assert start_check(StartCheck(environment="shop", cases=2, rollouts=2), operator).run


def test_an_operator_asks_nobody_on_the_owners_bill(
    operator: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-not-a-key")
    run = start_check(StartCheck(environment="shop", cases=2, rollouts=2), operator).run
    assert spec_of(operator, run)["others"] == []


def test_a_model_without_an_address_is_one_of_openrouter_and_needs_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.delenv("OPENROUTER_API_KEY_FILE", raising=False)
    assert compared_models(["a@b@http://c/v1"], "KEY") == (
        EndpointSpec(model="a@b", base_url="http://c/v1", key_variable="KEY"),
    )
    with pytest.raises(InvalidInput, match="names no URL; write MODEL@http"):
        compared_models(["m@localhost:8000"], "KEY")
    with pytest.raises(InvalidInput, match="OPENROUTER_API_KEY is not set: set it, or write"):
        compared_models(["org/large"], "KEY")
    monkeypatch.setenv("OPENROUTER_API_KEY", "secret")
    made = compared_models(["org/large"], "KEY")
    assert made[0].key_variable == "OPENROUTER_API_KEY"
    assert "secret" not in str(made)


def test_models_are_named_with_or_without_their_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    with pytest.raises(InvalidInput, match="OPENROUTER_API_KEY is not set"):
        compared_models(["a/b"], "MY_KEY")
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-planted")
    named = compared_models(["a/b", "c@http://127.0.0.1:9/v1", "d@1@https://e.f/v1"], "MY_KEY")
    assert [each.model for each in named] == ["a/b", "c", "d@1"]
    assert [each.key_variable for each in named] == ["OPENROUTER_API_KEY", "MY_KEY", "MY_KEY"]
    assert named[1].base_url == "http://127.0.0.1:9/v1"
