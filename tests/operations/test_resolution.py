"""What a run is started from: names, layers, locks and budgets, for owners and operators."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from sparring.contracts.errors import (
    EnvironmentNotFound,
    LockedField,
    NotPermitted,
    SettingError,
    SparringError,
)
from sparring.contracts.specs import COMMAND, EvalSpec
from sparring.operations.environments import (
    ConfigQuery,
    EnvironmentQuery,
    NewEnvironment,
    new_environment,
    show_config,
    show_environment,
)
from sparring.operations.evaluating import StartEval, start_eval
from sparring.operations.operation import Caller, Role
from sparring.operations.resolution import _refuse_paths_outside, resolve_run
from sparring.operations.run_control import ResumeRun, resume_run
from sparring.operations.training import StartTrain, start_train
from sparring.run_folder import RunFolder

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
    return Caller(Role.OPERATOR, owner.runs, "agent", owner.folder)


def test_layers_go_over_each_other_and_say_where_they_are_from(owner):
    run_settings = resolve_run("shop", "train", {"temperature": 0.9}, owner)
    assert run_settings.values["temperature"] == 0.9
    assert run_settings.values["max_completion_length"] == 77
    assert run_settings.values["beta"] == 0.5
    assert run_settings.sources()["temperature"] == "the command"
    assert run_settings.sources()["max_completion_length"] == "Shop in shop.py"
    assert run_settings.sources()["beta"] == "sparring.toml:5"


def test_paths_are_meant_from_where_they_are_written(owner, monkeypatch, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run_settings = resolve_run("shop", "train", {}, owner)
    assert run_settings.config["folder"] == str(owner.folder / "papers")
    run_settings = resolve_run("shop", "train", {"config": {"folder": "mine"}}, owner)
    assert run_settings.config["folder"] == str(elsewhere / "mine")


def test_a_lock_in_the_file_binds_the_owner_too(owner):
    with pytest.raises(LockedField, match=r"beta is locked to 0\.5 by Kim in sparring\.toml:5"):
        resolve_run("shop", "train", {"beta": 0.1}, owner)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "evil/model"}, {"max_steps": 6}, {"max_completion_length": 9999},
        {"lora": {"r": 512}}, {"lora": True}, {"lora": {"rank_pattern": {"q": 512}}},
        {"config": {"folder": "/root/.ssh"}}, {"processes": 8}, {"tool_seconds": 999},
        {"checkpoint_steps": 1}, {"engine": {"num_iterations": 9}}, {"unsandboxed": True},
        {"warm_start": {"source": "/etc/passwd"}},
    ],
)  # fmt: skip
def test_an_operator_is_held_to_the_projects_values(operator, settings):
    with pytest.raises(LockedField, match="the locks that bind operators by default"):
        resolve_run("shop", "train", settings, operator)


def test_an_operator_may_set_what_is_free_and_what_the_project_leaves_to_them(operator):
    run_settings = resolve_run(
        "shop", "train", {"learning_rate": 1e-3, "temperature": 0.5}, operator
    )
    assert run_settings.values["learning_rate"] == 1e-3


def test_an_operator_names_environments_not_files_and_no_servers(operator):
    evil = operator.folder.parent / "evil.py"
    evil.write_text(f"open({str(evil.with_suffix('.ran'))!r}, 'w')\n")
    for target in (str(evil), f"{evil}:E", "../evil.py:E"):
        with pytest.raises(EnvironmentNotFound):
            start_train(StartTrain(environment=target), operator)
        with pytest.raises(EnvironmentNotFound):
            show_environment(EnvironmentQuery(environment=target), operator)
    assert not evil.with_suffix(".ran").exists()
    servers = {"kind": "endpoint", "model": "m", "endpoints": []}
    with pytest.raises(NotPermitted, match="only the owner may choose servers"):
        start_eval(StartEval.model_validate({"environment": "shop", "servers": servers}), operator)
    with pytest.raises(NotPermitted, match="held-out"):
        start_eval(StartEval.model_validate({"environment": "shop", "split": "held-out"}), operator)


def test_a_wrong_name_or_field_makes_no_run(owner):
    with pytest.raises(EnvironmentNotFound, match="did you mean shop"):
        start_train(StartTrain(environment="shopp"), owner)
    with pytest.raises(SettingError, match=r"did you mean config\.size"):
        start_train(StartTrain(environment="shop", settings={"config": {"sice": 3}}), owner)
    assert not owner.runs.exists()


def test_what_is_shown_says_who_locked_what(operator):
    shown = {
        each.name: each for each in show_config(ConfigQuery(environment="shop"), operator).settings
    }
    assert shown["beta"].locked_by == "Kim, sparring.toml:5"
    assert shown["max_steps"].locked
    assert not shown["learning_rate"].locked
    assert shown["config.folder"].source == "sparring.toml:14"
    assert Path(shown["config.folder"].value).name == "papers"


def test_a_config_that_says_nothing_changes_nothing(owner):
    kept = resolve_run("shop", "train", {"config": {}}, owner).config
    assert Path(kept["folder"]).name == "papers"
    with pytest.raises(SettingError, match="config must be a table"):
        resolve_run("shop", "train", {"config": False}, owner)


def test_an_environments_own_defaults_are_left_to_it(owner):
    """Kinds that cannot be written down would come back as something else."""
    (owner.folder / "odd.py").write_text(
        "from collections.abc import Callable\n"
        "from pydantic import Field, SecretStr\n"
        "from sparring import Environment\n"
        "class Odd(Environment):\n"
        "    class Config(Environment.Config):\n"
        "        size: int = None\n"
        "        key: SecretStr = SecretStr('abc')\n"
        "        named: int = Field(3, alias='other')\n"
        "        run: Callable[[], int] = len\n"
        "        word: str = Field('x', pattern=r'^\\p{L}+$')\n"
        "        rates: dict[str, float] = {'gpt-4.1': 0.5}\n"
    )
    budget = {"max_steps": 3}
    assert resolve_run("odd", "train", budget, owner).config == {}
    given = {"rates": {"a.b": 1.0}, "word": "y"}
    assert resolve_run("odd", "train", {"config": given, **budget}, owner).config == given


def test_going_on_with_what_is_the_owners_takes_the_owner(operator):
    spec = EvalSpec(target="x.py:X", split="held-out")
    RunFolder(operator.runs / "secret").create(spec.model_dump(mode="json"))
    with pytest.raises(NotPermitted, match="held-out"):
        resume_run(ResumeRun(run="secret"), operator)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[environment.shoop.settings]\nbeta = 1\n", "there is no environment 'shoop'; did you mean shop"),
        ("[[lock]]\nfield = 'beta'\nenvironment = 'shoop'\n", "did you mean shop"),
        ("[[lock]]\nfield = 'guards.truncted.limit'\n", "there is no field guards.truncted.limit to lock"),
    ],
)  # fmt: skip
def test_a_word_on_nothing_is_refused(owner, text, said):
    (owner.folder / "sparring.toml").write_text(text)
    with pytest.raises(SparringError) as refused:
        resolve_run("shop", "train", {}, owner)
    assert said in str(refused.value)


def test_init_never_takes_the_place_of_a_projects_locks(owner):
    below = owner.folder / "below"
    below.mkdir()
    caller = Caller(Role.OWNER, below, folder=below)
    written = new_environment(NewEnvironment(name="fresh"), caller)
    assert [Path(file).name for file in written.files] == ["fresh.py", "test_fresh.py"]


def test_a_file_of_an_environments_name_does_not_hide_it(owner, monkeypatch):
    monkeypatch.chdir(owner.folder)
    (owner.folder / "shop").write_text("not Python")
    assert resolve_run("shop", "train", {}, owner).found.class_name == "Shop"
    with pytest.raises(EnvironmentNotFound):
        resolve_run("x" * 400, "train", {}, owner)


@pytest.mark.parametrize(
    "value", ["/etc/passwd", ["a", "/etc/passwd"], {"a": {"b": "/etc/passwd"}}, [["../../x"]]]
)
def test_a_path_outside_of_the_project_is_refused_at_any_depth(tmp_path, value):
    resolved = SimpleNamespace(source_of=lambda _: COMMAND)
    project = SimpleNamespace(root=tmp_path)
    with pytest.raises(NotPermitted, match=r"config\.files: only the owner"):
        _refuse_paths_outside({"config": {"files": value}}, resolved, project)
    inside = {"config": {"files": {"a": ["./x", "y"]}}}
    _refuse_paths_outside(inside, resolved, project)
