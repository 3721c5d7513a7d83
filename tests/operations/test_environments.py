"""Environments are listed, described, tested and created; their settings are shown with locks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput, NotPermitted, SparringError
from sparring.operations.environments import (
    ConfigQuery,
    EnvironmentQuery,
    NewEnvironment,
    TryEnvironment,
    list_environments,
    new_environment,
    show_config,
    show_environment,
    try_environment,
)
from sparring.operations.operation import Caller, NoArguments
from tests.operations.made import edit_project, make_project, operator_of


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(tmp_path, monkeypatch)


@pytest.fixture
def operator(owner: Caller) -> Caller:
    return operator_of(owner)


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int = 0) -> Path:
    """The file in which an interpreter notes its job, before it prints this and ends."""
    script, job = folder / "interpreter", folder / "job.json"
    script.write_text(f"#!/bin/sh\ncat > '{job}'\necho '{output}'\nexit {code}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return job


def test_environments_are_listed_without_running_them(owner: Caller) -> None:
    (owner.folder / "bad.py").write_text(
        "from sparring import Environment\n"
        "class Bad(Environment):\n    settings = {}\n"
        "open('was_run', 'w').close()\n"
    )
    listed = {each.name for each in list_environments(NoArguments(), owner).environments}
    assert {"shop", "bad"} <= listed
    assert not (owner.folder / "was_run").exists()


def test_an_environment_is_shown_with_the_values_and_locks_of_its_config(operator: Caller) -> None:
    edit_project(operator, "[budget]", "[environment.shop.config]\nsize = 9\n[budget]")
    shown = show_environment(EnvironmentQuery(environment="shop"), operator)
    config = {each.name: each for each in shown.config}
    assert (shown.found.class_name, shown.description.error) == ("Shop", "")
    assert (config["config.size"].value, config["config.size"].locked) == (9, False)
    assert "sparring.toml" in config["config.size"].source
    assert config["config.stock"].locked


def test_an_environment_that_cannot_be_loaded_is_shown_with_its_error(owner: Caller) -> None:
    shop = owner.folder / "shop.py"
    shop.write_text(shop.read_text() + "\n1 / 0\n")
    shown = show_environment(EnvironmentQuery(environment="shop"), owner)
    assert "ZeroDivisionError" in shown.description.error
    assert shown.config == ()


def test_a_preview_shows_the_changed_value_and_the_command_as_its_source(owner: Caller) -> None:
    request = ConfigQuery(environment="shop", settings={"temperature": 0.3})
    shown = {each.name: each for each in show_config(request, owner).settings}
    assert (shown["temperature"].value, shown["temperature"].source) == (0.3, "the command")
    assert (shown["beta"].value, shown["beta"].locked) == (0.5, True)
    assert shown["beta"].locked_by.startswith("sparring.toml")
    assert shown["temperature"].type
    assert list(shown) == sorted(shown)


def test_a_short_config_has_each_setting_once_free_or_locked(operator: Caller) -> None:
    full = show_config(ConfigQuery(environment="shop"), operator)
    short = full.short()
    assert short.may_change.keys() | short.locked.keys() == {each.name for each in full.settings}
    assert not short.may_change.keys() & short.locked.keys()
    assert short.locked["beta"] == 0.5
    assert short.may_change["max_steps"] == 5
    unset = {each.name for each in full.settings if each.value is None}
    assert unset
    assert all((short.may_change | short.locked)[name] == "unset" for name in unset)


def test_an_evaluation_has_no_settings_of_trainings(owner: Caller) -> None:
    shown = show_config(ConfigQuery(environment="shop", kind="eval"), owner)
    names = {each.name for each in shown.settings}
    assert "temperature" in names
    assert "learning_rate" not in names


def test_a_test_of_an_environment_is_ok_if_all_its_checks_are(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show_config(ConfigQuery(environment="shop"), owner)  # described before the stand-in is there
    checks: list[dict[str, Any]] = [{"what": "loads", "ok": True}, {"what": "plays", "ok": False}]
    settings = {"temperature": 0.2, "learning_rate": 0.1}
    request = TryEnvironment(environment="shop", cases=3, settings=settings)
    job = stand_in(tmp_path, monkeypatch, json.dumps(checks))
    tried = try_environment(request, owner)
    assert (tried.ok, [each.what for each in tried.checks]) == (False, ["loads", "plays"])
    job_request = json.loads(job.read_text())
    assert (job_request["cases"], job_request["model"], job_request["to_train"]) == (
        3,
        "tiny",
        "tiny",
    )
    assert job_request["play"]["temperature"] == 0.2
    assert "learning_rate" not in job_request["play"]
    stand_in(tmp_path, monkeypatch, json.dumps(checks[:1]))
    assert try_environment(request, owner).ok


def test_demonstrations_are_tested_where_they_are_a_file(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show_config(ConfigQuery(environment="shop"), owner)
    shown = tmp_path / "shown.jsonl"
    shown.write_text("{}\n")
    job = stand_in(tmp_path, monkeypatch, "[]")
    for source, expected in ((str(shown), str(shown)), ("a-run", "")):
        settings = {"warm_start": {"source": source}}
        try_environment(TryEnvironment(environment="shop", settings=settings), owner)
        assert json.loads(job.read_text())["demonstrations"] == expected


def test_a_test_that_could_not_run_is_an_error_and_no_result(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show_config(ConfigQuery(environment="shop"), owner)
    stand_in(tmp_path, monkeypatch, "[]", code=1)
    with pytest.raises(SparringError, match="the test of shop failed to run"):
        try_environment(TryEnvironment(environment="shop"), owner)


@pytest.mark.parametrize("name", ["My_agent", "my-agent", "../agent", "", "1st"])
def test_a_name_that_is_no_module_is_refused_and_nothing_is_written(
    owner: Caller, name: str
) -> None:
    before = set(owner.folder.iterdir())
    with pytest.raises(InvalidInput, match="cannot be a name"):
        new_environment(NewEnvironment(name=name), owner)
    assert set(owner.folder.iterdir()) == before


def test_a_new_environment_is_found_and_overwrites_nothing(owner: Caller) -> None:
    written = new_environment(NewEnvironment(name="my_agent"), owner)
    assert [Path(file).name for file in written.files] == ["my_agent.py", "test_my_agent.py"]
    listed = {each.name for each in list_environments(NoArguments(), owner).environments}
    assert "my_agent" in listed
    with pytest.raises(InvalidInput, match="exists already"):
        new_environment(NewEnvironment(name="my_agent"), owner)


def test_creating_and_testing_environments_is_for_the_owner(operator: Caller) -> None:
    with pytest.raises(NotPermitted, match="needs the role owner"):
        new_environment(NewEnvironment(name="mine"), operator)
    with pytest.raises(NotPermitted, match="needs the role owner"):
        try_environment(TryEnvironment(environment="shop"), operator)
