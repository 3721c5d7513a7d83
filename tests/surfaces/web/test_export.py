"""An export holds every answer that the app asks for, and held-out cases only on request."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.runs.lifecycle import RunState
from sparring.surfaces.web.export import Export
from tests.surfaces.web.viewed import (
    HIDDEN,
    SECRET,
    TRAINING,
    copy_samples,
    make_secret,
    make_training,
    owner_in,
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    copy_samples(tmp_path / "runs")
    make_training(tmp_path / "runs")
    make_secret(tmp_path / "runs")
    return tmp_path


def exported(project: Path, *, has_held_out: bool = False) -> Path:
    folder = project / "exported"
    Export(folder, owner_in(project), has_held_out=has_held_out).write([TRAINING, SECRET])
    return folder


def test_every_answer_is_a_script_that_the_index_names(project: Path) -> None:
    folder = exported(project)
    text = (folder / "export.js").read_text()
    found = json.loads(text.removeprefix("window.SPARRING_EXPORT = ").rstrip(";\n"))
    keys = found["index"]
    assert f'run.show {{"run":"{TRAINING}"}}' in keys
    assert f'rollout.list {{"count":100,"run":"{TRAINING}"}}' in keys
    assert f'rollout.group {{"rollout":"lamps.0.1","run":"{TRAINING}"}}' in keys
    for key, file in keys.items():
        script = (folder / file).read_text()
        match = re.fullmatch(r"sparringAnswer\((.*)\);\n", script, re.DOTALL)
        assert match is not None
        assert json.loads(f"[{match[1]}]")[0] == key
        assert "<" not in script
    page = (folder / "index.html").read_text()
    assert page.index("./export.js") < page.index("./app.js")


def test_held_out_cases_are_not_exported_by_default(project: Path) -> None:
    folder = exported(project)
    assert HIDDEN not in "".join(path.read_text() for path in folder.rglob("*.js"))
    listed = (folder / "export.js").read_text()
    assert SECRET in listed
    assert "plum" not in listed


def test_held_out_cases_are_exported_on_request(project: Path) -> None:
    folder = exported(project, has_held_out=True)
    assert HIDDEN in "".join(path.read_text() for path in folder.rglob("*.js"))


def test_a_folder_with_files_is_refused(project: Path) -> None:
    (project / "exported").mkdir()
    (project / "exported" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="is not empty"):
        exported(project)


def test_the_message_of_a_run_whose_cases_broke_is_not_exported(project: Path) -> None:
    folder = RunFolder(project / "runs" / "broken-1")
    folder.create({"format": 1, "kind": "train", "environment": "lamps"})
    append_state(folder, RunState.QUEUED, author="ada")
    append_state(
        folder, RunState.FAILED, author="supervisor", epoch=1, cause="refused",
        message=f"ValueError while reading the cases:\n{HIDDEN}", error="CasesBroken",
    )  # fmt: skip
    for has_held_out in (False, True):
        place = project / f"exported-{has_held_out}"
        Export(place, owner_in(project), has_held_out=has_held_out).write(["broken-1"])
        text = "".join(path.read_text() for path in place.rglob("*.js"))
        assert (HIDDEN in text) is has_held_out
