"""`sparring`: every command is there, and every error has one format and a code."""

from __future__ import annotations

import io
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from sparring.surfaces.cli import callers, commands
from tests.operations.made import make_project, spec_of
from tests.surfaces.cli.terminal import STOPPED, Terminal, copy_samples


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return Terminal(copy_samples(tmp_path / "porter", monkeypatch), monkeypatch, capsys)


@pytest.fixture
def shop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return Terminal(make_project(tmp_path, monkeypatch).folder, monkeypatch, capsys)


def test_the_version_is_that_of_the_package(terminal: Terminal) -> None:
    assert terminal.type("--version").out.strip() == version("sparring")


def test_help_tells_the_story_in_its_order(terminal: Terminal) -> None:
    shown = terminal.type("--help").out
    places = [shown.index(f" {word} ") for word in ("init", "check", "train", "prove", "chat")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("words", "code", "kind", "message"),
    [
        (["run", "show", "nobody"], 102, "RunNotFound", "there is no run 'nobody'"),
        (["run", "list", "--count", "0"], 2, "InvalidInput", "--count: Input should be"),
        (["run", "list", "--count", "x"], 2, "InvalidInput", "Invalid value for '--count'"),
        (["dance"], 2, "InvalidInput", "No such command 'dance'"),
        (["rollout", "list"], 2, "InvalidInput", "Missing argument"),
    ],
)
def test_an_error_is_a_line_or_a_table_with_the_same_code(
    terminal: Terminal, words: list[str], code: int, kind: str, message: str
) -> None:
    plain = terminal.type(*words)
    assert (plain.code, plain.out) == (code, "")
    assert plain.err.startswith("sparring: ")
    assert message in plain.err
    table = terminal.type(*words, "--json")
    assert table.code == code
    error = table.json["error"]
    assert (error["type"], error["exit_code"]) == (kind, code)
    assert message in error["message"]


class Typist(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_question_that_is_answered_with_no_ends_with_130(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Typist("n\n"))
    assert terminal.type("run", "delete", STOPPED).code == 130
    assert (terminal.folder / "runs" / STOPPED).exists()


def test_a_fault_of_ours_is_raised_with_its_traceback(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(commands, "assigned", break_down)
    with pytest.raises(ZeroDivisionError):
        terminal.type("train", "bell")


def test_options_of_a_training_become_its_settings(shop: Terminal) -> None:
    given = [
        "--max-steps",
        3,
        "--num-generations",
        6,
        "--lora",
        "--seed",
        9,
        "--set",
        "config.size=4",
    ]
    started = shop.type("train", "shop", *given, "--no-prove", "--detach", "--json").json
    assert started["proof"] == ""
    caller = callers.owner()
    spec = spec_of(caller, started["run"])
    settings = spec["settings"]
    assert (settings["max_steps"], settings["num_generations"]) == (3, 6)
    assert settings["lora"] is not None
    assert (settings["seed"], spec["config"]["size"]) == (9, 4)
    assert settings["max_completion_length"] == 77  # the environment's own, which nobody changed


def test_options_of_an_evaluation_become_its_request(
    shop: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "of-the-server")
    given = ["--model", "m", "--endpoint", "http://a/v1", "--key-variable", "KEY", "--cases", 2]
    run = shop.type("eval", "shop", *given, "--temperature", 0.5, "--detach").out.strip()
    spec = spec_of(callers.owner(), run)
    (endpoint,) = spec["policy"]["endpoints"]
    assert (endpoint["base_url"], endpoint["key_variable"]) == ("http://a/v1", "KEY")
    assert (spec["split"], spec["cases"]) == ("validation", 2)
    assert spec["play"]["temperature"] == 0.5


def test_a_locked_setting_is_refused_and_no_run_is_made(shop: Terminal) -> None:
    refused = shop.type("train", "shop", "--set", "beta=0.1", "--detach", "--json")
    assert refused.code == 2
    assert refused.json["error"]["type"] == "LockedField"
    assert shop.type("run", "list", "--json").json["runs"] == []


def test_environments_and_settings_are_shown(shop: Terminal) -> None:
    listed = shop.type("env", "list", "--json").json
    assert [each["name"] for each in listed["environments"]] == ["shop"]
    shown = shop.type("config", "show", "shop", "--set", "max_steps=7", "--json").json
    values = {each["name"]: each["value"] for each in shown["settings"]}
    assert values["max_steps"] == 7
