"""A run whose spec could exceed the project's budget is refused, with the setting to lower."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import OverBudget
from sparring.contracts.proof_specs import AuditSpec, CheckSpec
from sparring.contracts.specs import EvalSpec, PlaySettings, RunSpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations.budgets import refuse_over_budget
from sparring.operations.evaluating import StartEval, start_eval
from sparring.operations.operation import Caller
from sparring.operations.training import StartTrain, start_train
from sparring.projects import find_project
from sparring.settings.project_file import Budget, ProjectFile
from tests.operations.made import make_project

TARGET = {"target": "shop.py:Shop", "environment": "shop"}


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def file(owner: Caller) -> ProjectFile:
    return find_project(owner.folder).file


def training(**settings: object) -> TrainSpec:
    return TrainSpec(**TARGET, settings=TrainSettings.model_validate(settings))


def test_a_run_may_use_its_whole_budget_and_nothing_beyond(file: ProjectFile) -> None:
    spec = training(max_steps=50)
    most = spec.max_rollouts
    assert most is not None
    refuse_over_budget(spec, Budget(steps=50, rollouts=most), file)
    with pytest.raises(OverBudget, match="at most 49 steps per run; max_steps is 50"):
        refuse_over_budget(spec, Budget(steps=49), file)
    with pytest.raises(OverBudget, match=f"this one could play {most:,}; lower"):
        refuse_over_budget(spec, Budget(rollouts=most - 1), file)


@pytest.mark.parametrize("budget", [Budget(steps=50), Budget(rollouts=3000)])
def test_a_training_without_a_length_is_refused_by_any_budget(
    file: ProjectFile, budget: Budget
) -> None:
    with pytest.raises(OverBudget, match=r"sparring\.toml:\d+: .* set max_steps"):
        refuse_over_budget(training(max_steps=None), budget, file)


@pytest.mark.parametrize(
    "spec",
    [training(max_steps=None), training(max_steps=10**6), EvalSpec(**TARGET), AuditSpec(**TARGET)],
)
def test_without_steps_or_rollouts_in_the_budget_nothing_is_refused(
    file: ProjectFile, spec: RunSpec
) -> None:
    refuse_over_budget(spec, Budget(hours=0.1, runs_at_once=1), file)
    with pytest.raises(OverBudget):  # the same length, where there is a limit
        refuse_over_budget(training(max_steps=10**6), Budget(steps=1), file)


def test_a_check_counts_its_dry_steps(file: ProjectFile) -> None:
    spec = CheckSpec(**TARGET, dry_steps=3)
    with pytest.raises(OverBudget, match="at most 2 steps per run; dry_steps is 3"):
        refuse_over_budget(spec, Budget(steps=2), file)


def test_an_evaluation_counts_rollouts_and_no_steps(file: ProjectFile) -> None:
    spec = EvalSpec(**TARGET, cases=10, play=PlaySettings(num_generations=4))
    refuse_over_budget(spec, Budget(steps=1, rollouts=40), file)
    with pytest.raises(OverBudget, match="at most 39 rollouts per run; this one could play 40"):
        refuse_over_budget(spec, Budget(rollouts=39), file)


def test_budgets_are_enforced_before_a_run_is_made(owner: Caller) -> None:
    def start(**settings):
        start_train(StartTrain(environment="shop", settings=settings), owner)

    with pytest.raises(OverBudget, match=r"sparring\.toml:8: at most 50 steps per run"):
        start(max_steps=51)
    with pytest.raises(OverBudget, match=r"at most 3,000 rollouts per run.*could play.*lower max"):
        start(max_steps=50, num_generations=64)
    with pytest.raises(OverBudget, match="set max_steps"):
        start(max_steps=None)
    assert not owner.runs.exists()


def test_evaluations_have_a_budget_too(owner: Caller) -> None:
    with pytest.raises(OverBudget, match="so set cases"):
        start_eval(StartEval(environment="shop"), owner)
    many = {"num_generations": 3000}
    with pytest.raises(OverBudget, match="could play 30,000"):
        start_eval(StartEval(environment="shop", cases=10, settings=many), owner)
