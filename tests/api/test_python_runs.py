from __future__ import annotations

import pytest
from pydantic import ValidationError

from sparring.api.python_runs import explain_validation_error, open_run
from sparring.contracts.errors import InvalidInput, RunChanged
from sparring.contracts.specs import EvalSpec, python_target
from sparring.contracts.training import TrainSettings, TrainSpec


def problem_of(**settings) -> str:
    with pytest.raises(ValidationError) as caught:
        TrainSettings(**settings)
    return explain_validation_error(caught.value, TrainSettings)


def test_a_name_that_is_not_in_a_table_is_answered_with_those_that_are():
    problem = problem_of(warm_start={"path": "demos.jsonl"})
    assert "warm_start.path: no such setting; there are source, num_train_epochs" in problem
    assert "warm_start.source: Field required" in problem


def test_a_name_that_is_no_setting_is_answered_with_the_settings():
    problem = problem_of(learning_rat=1)
    assert problem.startswith("learning_rat: no such setting; there are ")
    assert "learning_rate" in problem


@pytest.mark.parametrize("name", ["run_config", "hooks", "session", "max_turns"])
def test_arguments_of_the_runner_are_refused_with_the_place_where_they_belong(name):
    problem = problem_of(**{name: None})
    assert problem.startswith(f"{name}: ")
    assert "no such setting" not in problem


def test_a_run_of_another_kind_is_refused_by_name(tmp_path):
    open_run(tmp_path, "mine", EvalSpec(target=python_target("a")))
    with pytest.raises(InvalidInput, match="run mine is of kind 'eval', not 'train'"):
        open_run(tmp_path, "mine", TrainSpec(target=python_target("a")))


def test_a_run_with_other_settings_is_refused_with_what_changed(tmp_path):
    open_run(tmp_path, "mine", EvalSpec(target=python_target("a"), cases=3))
    assert open_run(tmp_path, "mine", EvalSpec(target=python_target("a"), cases=3))
    with pytest.raises(RunChanged, match="cases: 3 → 4"):
        open_run(tmp_path, "mine", EvalSpec(target=python_target("a"), cases=4))


@pytest.mark.parametrize("name", ["../x", "a b", ""])
def test_a_name_that_leads_elsewhere_is_refused(name, tmp_path):
    with pytest.raises(InvalidInput, match="cannot be called"):
        open_run(tmp_path, name, EvalSpec(target=python_target("a")))
