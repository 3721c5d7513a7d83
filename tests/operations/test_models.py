"""A development model is built by a process, whose answer is the folder or the reason why not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparring.contracts.errors import NotPermitted, SparringError
from sparring.operations.models import FetchModel, fetch_model
from sparring.operations.operation import Caller, Role


@pytest.fixture
def owner(tmp_path: Path) -> Caller:
    return Caller(Role.OWNER, tmp_path / "runs", folder=tmp_path)


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An interpreter that does this instead."""
    place = folder / "interpreter"
    place.write_text(f"#!/bin/sh\n{script}\n")
    place.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(place))


def test_the_folder_is_the_last_line_that_was_printed(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, 'echo building; echo "/cache/$3"')
    fetched = fetch_model(FetchModel(name="tiny"), owner)
    assert (fetched.name, fetched.folder) == ("tiny", "/cache/tiny")


def test_a_failed_build_is_reported_with_the_last_line_of_its_error(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "echo Traceback >&2; echo 'the disk is full' >&2; exit 1")
    with pytest.raises(SparringError, match=r"^the disk is full$"):
        fetch_model(FetchModel(name="tiny"), owner)
    stand_in(tmp_path, monkeypatch, "exit 9")
    with pytest.raises(SparringError, match=r"^building tiny failed$"):
        fetch_model(FetchModel(name="tiny"), owner)


def test_fetching_is_for_the_owner(tmp_path: Path) -> None:
    operator = Caller(Role.OPERATOR, tmp_path / "runs", "coach", folder=tmp_path)
    with pytest.raises(NotPermitted, match="needs the role owner"):
        fetch_model(FetchModel(name="tiny"), operator)
