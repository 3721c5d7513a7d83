"""`sparring init`, `env …`, `config …` and `doctor`, as far as they start no process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparring.operations.operation import Caller
from tests.operations.made import make_project
from tests.surfaces.cli.terminal import Terminal, Typed


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    return tmp_path


@pytest.fixture
def terminal(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    made = Terminal(here, monkeypatch, capsys)
    monkeypatch.setenv("COLUMNS", "250")
    return made


@pytest.fixture
def owner(here: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(here, monkeypatch)


def lines(typed: Typed) -> list[str]:
    return [" ".join(line.split()) for line in typed.out.splitlines()]


@pytest.mark.parametrize("start", ["tool", "documents"])
def test_init_names_the_files_it_writes_and_the_next_command(
    here: Path, terminal: Terminal, start: str
) -> None:
    shown = lines(terminal.type("init", "my_agent", "--from", start))
    assert "wrote my_agent.py" in shown
    assert "does it work? sparring env test my_agent" in shown
    folders = [line for line in shown if line.startswith("wrote my_agent_documents/ (")]
    assert len(folders) == (start == "documents")
    written = {line.split()[1] for line in shown if line.startswith("wrote ")}
    assert all((here / name).exists() for name in written)


def test_init_writes_over_nothing(here: Path, terminal: Terminal) -> None:
    (here / "my_agent.py").write_text("mine\n")
    refused = terminal.type("init", "my_agent")
    assert (refused.code, "exists already" in refused.err) == (2, True)
    assert (here / "my_agent.py").read_text() == "mine\n"


def test_an_empty_folder_says_how_to_begin(terminal: Terminal) -> None:
    assert lines(terminal.type("env", "list")) == [
        "no environments; `sparring init NAME` writes one"
    ]


def test_environments_are_listed_with_their_place_and_broken_files_beside_them(
    owner: Caller, terminal: Terminal
) -> None:
    (owner.folder / "broken.py").write_text("from sparring import Environment\ndef broken(:\n")
    shown = lines(terminal.type("env", "list"))
    assert "shop Sells things. shop.py:5" in shown
    assert any(line.startswith("broken.py:2: ") for line in shown)
    assert len(terminal.type("env", "list", "--json").json["problems"]) == 1


def test_an_environment_is_shown_with_its_settings_and_fields(
    owner: Caller, terminal: Terminal
) -> None:
    shown = lines(terminal.type("env", "show", "shop"))
    assert shown[:2] == ["shop shop.py:5", "Sells things."]
    assert "own settings max_completion_length=77, max_steps=5" in shown
    assert any(line.startswith("size int") and " 2" in line for line in shown)


def test_an_environment_that_cannot_be_loaded_is_an_error(
    owner: Caller, terminal: Terminal
) -> None:
    (owner.folder / "prices.py").write_text("raise RuntimeError('no prices\\x1b')\n")
    refused = terminal.type("env", "show", "shop")
    assert (refused.code, refused.out) == (2, "")
    assert "no prices" in refused.err
    assert "\x1b" not in refused.err


@pytest.mark.usefixtures("owner")
def test_settings_are_shown_with_their_source_and_lock_and_defaults_only_on_demand(
    terminal: Terminal,
) -> None:
    shown = lines(terminal.type("config", "show", "shop", "--set", "seed=4"))
    assert "seed 4 the command" in shown
    assert any(line.startswith("max_steps 5 Shop in shop.py") for line in shown)
    assert any(line.startswith("beta 0.5 ") and "sparring.toml" in line for line in shown)
    assert shown[-1].endswith("more settings have their defaults; --all shows them")
    every = lines(terminal.type("config", "show", "shop", "--all"))
    assert len(every) > len(shown)
    assert "--all" not in every[-1]


def test_the_doctor_works_where_the_project_file_is_broken(here: Path, terminal: Terminal) -> None:
    (here / "sparring.toml").write_text("[settings\n")
    examined = terminal.type("doctor", "--json")
    found = examined.json
    assert examined.code == (0 if found["ok"] else 100)
    assert "sparring.toml" in json.dumps(found)
    shown = " ".join(terminal.type("doctor").out.split())
    assert all(each["what"] in shown for each in found["findings"])
