"""A training starts with its proof, within the budget, and with a source that exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput, LockedField, OverBudget
from sparring.contracts.training import TrainSpec
from sparring.operations.operation import Caller
from sparring.operations.resolution import resolve_run
from sparring.operations.training import StartTrain, start_train
from sparring.run_folder import RunFolder
from tests.operations.made import edit_project, make_project, operator_of, spec_of


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner: Caller) -> Caller:
    return operator_of(owner)


def test_a_training_has_the_settings_of_the_command_and_of_its_environment(
    operator: Caller,
) -> None:
    request = StartTrain(environment="shop", settings={"max_steps": 9})
    started = start_train(request, operator)
    spec = TrainSpec.model_validate(spec_of(operator, started.run))
    assert (spec.settings.max_steps, spec.settings.max_completion_length) == (9, 77)
    assert (spec.policy.model, spec.processes, spec.nodes) == ("tiny", 1, 1)
    assert spec_of(operator, started.proof)["after"] == started.run


def test_a_training_has_no_proof_if_none_is_wanted(owner: Caller) -> None:
    started = start_train(StartTrain(environment="shop", prove=False), owner)
    assert started.proof == ""
    assert not list(owner.runs.glob("proof-*"))


def test_a_locked_setting_is_refused_before_there_is_a_run(operator: Caller) -> None:
    with pytest.raises(LockedField, match="beta is locked"):
        start_train(StartTrain(environment="shop", settings={"beta": 0.1}), operator)
    assert not list(operator.runs.glob("shop-*"))


def test_a_training_of_more_steps_than_the_budget_has_is_refused(owner: Caller) -> None:
    assert resolve_run("shop", "train", {"max_steps": 50}, owner).spec(TrainSpec)
    with pytest.raises(OverBudget, match=r"sparring\.toml:\d+: at most 50 steps"):
        resolve_run("shop", "train", {"max_steps": 51}, owner).spec(TrainSpec)


def test_a_training_whose_proof_would_be_too_much_is_not_started(operator: Caller) -> None:
    edit_project(operator, "rollouts = 3000", "rollouts = 6")
    small = {"validation_cases": 0, "num_generations": 2, "cases_per_batch": 1, "max_steps": 1}
    edit_project(operator, "may_set = [", 'may_set = ["validation_cases", ')
    small |= {"gradient_accumulation_steps": 1, "replacement_groups": 0}
    with pytest.raises(OverBudget, match="this proof can play"):
        start_train(StartTrain(environment="shop", settings=small), operator)
    assert not list(operator.runs.glob("shop-*"))


def test_a_warm_start_names_its_run_as_other_commands_do(owner: Caller) -> None:
    teacher = start_train(StartTrain(environment="shop"), owner).run
    for name in (teacher, teacher[-4:]):
        settings = {"warm_start": {"source": name}}
        started = start_train(StartTrain(environment="shop", settings=settings), owner).run
        spec = RunFolder(owner.runs / started).read_spec()
        assert spec["settings"]["warm_start"]["source"] == teacher
    settings = {"warm_start": {"source": "nothing-like-it"}}
    with pytest.raises(InvalidInput, match="no file and no run 'nothing-like-it'"):
        start_train(StartTrain(environment="shop", settings=settings), owner)
