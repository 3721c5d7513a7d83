"""An export holds every answer that the app asks for, and no held-out case unless asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
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


def test_held_out_cases_are_left_out_unless_asked_for(project: Path) -> None:
    folder = exported(project)
    assert HIDDEN not in "".join(path.read_text() for path in folder.rglob("*.js"))
    listed = (folder / "export.js").read_text()
    assert SECRET in listed
    assert "plum" not in listed


def test_held_out_cases_are_exported_if_asked_for(project: Path) -> None:
    folder = exported(project, has_held_out=True)
    assert HIDDEN in "".join(path.read_text() for path in folder.rglob("*.js"))


def test_a_folder_with_files_is_refused(project: Path) -> None:
    (project / "exported").mkdir()
    (project / "exported" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="is not empty"):
        exported(project)
