"""`sparring init`, `env …`, `config …` and `doctor`, as far as they start no process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.operations.operation import Caller
from sparring.surfaces.cli import projects
from tests.operations.made import make_project


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    return tmp_path


@pytest.fixture
def owner(here: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    return make_project(here, monkeypatch)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("start", ["tool", "documents"])
def test_what_is_written_is_named_and_what_to_do_with_it(
    here: Path, capsys: pytest.CaptureFixture[str], start: str
) -> None:
    projects.init("my_agent", start, as_json=False)
    shown = lines(capsys)
    assert "wrote my_agent.py" in shown
    assert "does it work? sparring env test my_agent" in shown
    folders = [line for line in shown if line.startswith("wrote my_agent_documents/ (")]
    assert len(folders) == (start == "documents")
    written = {line.split()[1] for line in shown if line.startswith("wrote ")}
    assert all((here / name).exists() for name in written)


def test_init_writes_over_nothing(here: Path) -> None:
    (here / "my_agent.py").write_text("mine\n")
    with pytest.raises(InvalidInput, match="exists already"):
        projects.init("my_agent", "tool", as_json=False)
    assert (here / "my_agent.py").read_text() == "mine\n"


@pytest.mark.usefixtures("here")
def test_an_empty_folder_says_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    projects.list_all(as_json=False)
    assert lines(capsys) == ["no environments; `sparring init NAME` writes one"]


def test_environments_are_listed_with_their_place_and_broken_files_beside_them(
    owner: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    (owner.folder / "broken.py").write_text("from sparring import Environment\ndef broken(:\n")
    projects.list_all(as_json=False)
    shown = lines(capsys)
    assert "shop Sells things. shop.py:5" in shown
    assert any(line.startswith("broken.py:2: ") for line in shown)
    projects.list_all(as_json=True)
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 1


def test_an_environment_is_shown_with_its_settings_and_fields(
    owner: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    projects.show("shop", as_json=False)
    shown = lines(capsys)
    assert shown[:2] == ["shop shop.py:5", "Sells things."]
    assert "own settings: max_completion_length=77, max_steps=5" in shown
    assert any(line.startswith("size int") and " 2" in line for line in shown)


def test_an_environment_that_cannot_be_loaded_is_an_error(
    owner: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    (owner.folder / "prices.py").write_text("raise RuntimeError('no prices\\x1b')\n")
    with pytest.raises(InvalidInput, match="no prices") as refused:
        projects.show("shop", as_json=False)
    assert "\x1b" not in str(refused.value)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("owner")
def test_settings_are_shown_with_their_source_and_lock_and_defaults_only_on_demand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    projects.show_config("shop", "train", ["seed=4"], with_defaults=False, as_json=False)
    shown = lines(capsys)
    assert "seed 4 the command" in shown
    assert any(line.startswith("max_steps 5 Shop in shop.py") for line in shown)
    assert any(line.startswith("beta 0.5 ") and "sparring.toml" in line for line in shown)
    assert shown[-1].endswith("more settings have their defaults; --all shows them")
    projects.show_config("shop", "train", [], with_defaults=True, as_json=False)
    every = lines(capsys)
    assert len(every) > len(shown)
    assert "--all" not in every[-1]


def test_the_doctor_works_where_the_project_file_is_broken(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "sparring.toml").write_text("[settings\n")
    code = projects.doctor(None, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["ok"] else 100)
    assert "sparring.toml" in json.dumps(found)
    projects.doctor(None, as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert all(each["what"] in shown for each in found["findings"])
