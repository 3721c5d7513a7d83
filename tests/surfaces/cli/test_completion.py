"""A shell completes names that exist, and an error never breaks the line that is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.surfaces.cli.completion import (
    complete_environments,
    complete_runs,
    complete_settings,
    completer_of,
)
from tests.surfaces.cli.terminal import EVAL, STOPPED, TRAIN, copy_samples


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = copy_samples(tmp_path / "porter", monkeypatch)
    monkeypatch.chdir(made)
    return made


@pytest.mark.usefixtures("project")
def test_runs_are_completed_newest_first() -> None:
    assert complete_runs("bell-") == [STOPPED, TRAIN, EVAL]
    assert complete_runs(EVAL[:-1]) == [EVAL]
    assert complete_runs("shop") == []


@pytest.mark.usefixtures("project")
def test_environments_are_completed_by_their_beginning() -> None:
    assert complete_environments("be") == ["bell"]
    assert complete_environments("") == ["bell"]
    assert complete_environments("ell") == []


def test_settings_are_completed_up_to_their_value() -> None:
    assert complete_settings("max_s") == ["max_steps=", "max_staleness="]
    assert "lora=" in complete_settings("")
    assert complete_settings("nothing") == []


def test_choices_are_completed() -> None:
    complete = completer_of(["starting", "stopping", "failed"])
    assert complete("st") == ["starting", "stopping"]
    assert complete("sleeping") == []


def test_a_broken_project_completes_nothing(project: Path) -> None:
    (project / "sparring.toml").write_text("[settings\n")
    assert complete_runs("") == []
    assert complete_environments("") == []
