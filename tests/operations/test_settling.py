"""What a run is started from: names, layers, locks and budgets, for owners and operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import (
    EnvironmentNotFound,
    LockedField,
    NotPermitted,
    OverBudget,
    SettingError,
)
from sparring.operations.environments import ConfigQuery, show_config
from sparring.operations.evaluating import StartEval, start_eval
from sparring.operations.operation import Caller, Role
from sparring.operations.settling import settle
from sparring.operations.training import StartTrain, start_train

ENVIRONMENT = """
from pathlib import Path
from sparring import Environment
class Shop(Environment):
    settings = {"max_completion_length": 77, "max_steps": 5}
    class Config(Environment.Config):
        folder: Path = Path("stock")
        size: int = 2
"""
FILE = """
[settings]
temperature = 0.6
[[lock]]
field = "beta"
value = 0.5
author = "Kim"
[operators]
may_set = ["learning_rate"]
[budget]
steps = 50
rollouts = 3000
[environment.shop.config]
folder = "papers"
"""


@pytest.fixture
def owner(tmp_path) -> Caller:
    (tmp_path / "shop.py").write_text(ENVIRONMENT)
    (tmp_path / "sparring.toml").write_text(FILE)
    return Caller(Role.OWNER, tmp_path / "runs", folder=tmp_path)


@pytest.fixture
def operator(owner) -> Caller:
    return Caller(Role.OPERATOR, owner.runs, "an agent", owner.folder)


def test_layers_go_over_each_other_and_say_where_they_are_from(owner):
    settled = settle("shop", "train", {"temperature": 0.9}, owner)
    assert settled.values["temperature"] == 0.9
    assert settled.values["max_completion_length"] == 77
    assert settled.values["beta"] == 0.5
    assert settled.sources()["temperature"] == "the command"
    assert settled.sources()["max_completion_length"] == "Shop in shop.py"
    assert settled.sources()["beta"] == "sparring.toml:5"


def test_paths_are_meant_from_where_they_are_written(owner, monkeypatch, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    settled = settle("shop", "train", {}, owner)
    assert settled.config["folder"] == str(owner.folder / "papers")
    settled = settle("shop", "train", {"config": {"folder": "mine"}}, owner)
    assert settled.config["folder"] == str(elsewhere / "mine")


def test_a_lock_in_the_file_binds_the_owner_too(owner):
    with pytest.raises(LockedField, match=r"beta is locked to 0\.5 by Kim in sparring\.toml:5"):
        settle("shop", "train", {"beta": 0.1}, owner)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "evil/model"}, {"max_steps": 6}, {"max_completion_length": 9999},
        {"lora": {"r": 512}}, {"lora": True}, {"processes": 8}, {"tool_seconds": 999},
        {"checkpoint_steps": 1}, {"engine": {"num_iterations": 9}}, {"unsandboxed": True},
        {"warm_start": {"source": "/etc/passwd"}},
    ],
)  # fmt: skip
def test_an_operator_is_held_to_the_projects_values(operator, settings):
    with pytest.raises(LockedField, match="the locks that bind operators by default"):
        settle("shop", "train", settings, operator)


def test_an_operator_may_set_what_is_free_and_what_the_project_leaves_to_them(operator):
    settled = settle("shop", "train", {"learning_rate": 1e-3, "temperature": 0.5}, operator)
    assert settled.values["learning_rate"] == 1e-3


def test_an_operator_names_environments_not_files_and_no_servers(operator):
    with pytest.raises(NotPermitted, match="not files"):
        start_train(StartTrain(target="/tmp/evil.py:E"), operator)
    servers = {"kind": "endpoint", "model": "m", "endpoints": []}
    with pytest.raises(NotPermitted, match="the owner's to say"):
        start_eval(StartEval.model_validate({"target": "shop", "servers": servers}), operator)
    with pytest.raises(NotPermitted, match="held-out"):
        start_eval(StartEval.model_validate({"target": "shop", "split": "held-out"}), operator)


def test_budgets_are_enforced_before_a_run_is_made(owner):
    with pytest.raises(OverBudget, match=r"sparring\.toml:11: at most 50 steps a run"):
        settle("shop", "train", {"max_steps": 51}, owner)
    with pytest.raises(OverBudget, match=r"at most 3,000 rollouts a run.*could play"):
        settle("shop", "train", {"max_steps": 50, "num_generations": 64}, owner)
    with pytest.raises(OverBudget, match="set max_steps"):
        settle("shop", "train", {"max_steps": None}, owner)
    assert not owner.runs.exists()


def test_a_wrong_name_or_field_makes_no_run(owner):
    with pytest.raises(EnvironmentNotFound, match="did you mean shop"):
        start_train(StartTrain(target="shopp"), owner)
    with pytest.raises(SettingError, match=r"did you mean config\.size"):
        start_train(StartTrain(target="shop", settings={"config": {"sice": 3}}), owner)
    assert not owner.runs.exists()


def test_what_is_shown_says_who_locked_what(operator):
    shown = {each.name: each for each in show_config(ConfigQuery(target="shop"), operator).settings}
    assert shown["beta"].locked_by == "Kim, sparring.toml:5"
    assert shown["max_steps"].locked
    assert not shown["learning_rate"].locked
    assert shown["config.folder"].source == "sparring.toml:14"
    assert Path(shown["config.folder"].value).name == "papers"
