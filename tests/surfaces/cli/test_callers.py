"""Who calls the operations: the owner of the project in the current folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.operations.operation import Caller, Role
from sparring.surfaces.cli import callers
from tests.operations.made import make_project


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Caller:
    made = make_project(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    return made


def test_the_caller_is_the_owner_of_the_project_in_the_current_folder(owner: Caller) -> None:
    here = callers.owner()
    assert (here.role, here.runs.resolve()) == (Role.OWNER, owner.runs.resolve())
    assert callers.owner("elsewhere").runs == Path("elsewhere")


def test_a_reader_starts_no_supervisor_in_a_foreign_folder(owner: Caller) -> None:
    assert callers.reader().can_supervise
    assert callers.reader(str(owner.runs)).can_supervise  # the project's own, named
    assert not callers.reader("elsewhere").can_supervise
    assert callers.owner("elsewhere").can_supervise  # who acts means the runs of that folder
