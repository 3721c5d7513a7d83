"""A row says of a run what its folder says, and survives being stored."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.runs.index_rows import columns_of, read_row, row_of
from sparring.runs.lifecycle import RunState


def test_a_row_survives_being_stored(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a-1")
    folder.create({"format": 1, "kind": "train", "policy": {"model": "tiny"}, "target": "x.py:X"})
    append_state(folder, RunState.QUEUED, author="test")
    row = read_row(folder)
    assert row is not None
    assert (row.kind, row.environment, row.model, row.launcher) == ("train", "x", "tiny", "local")
    assert row_of(SimpleNamespace(**columns_of(row))) == row


def test_a_known_row_reads_only_what_is_new(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a-1")
    folder.create({"format": 1, "kind": "train"})
    append_state(folder, RunState.QUEUED, author="test")
    first = read_row(folder)
    append_state(folder, RunState.STOPPED, author="test")
    folder.spec.unlink()  # a known row does not read it again
    later = read_row(folder, first)
    assert later is not None
    assert later.state is RunState.STOPPED


def test_the_model_is_the_one_in_the_spec_or_else_the_one_that_the_run_opened(
    tmp_path: Path,
) -> None:
    for model, shown in (("tiny", "tiny"), (None, "smollm2")):
        folder = RunFolder(tmp_path / shown)
        folder.create({"format": 1, "kind": "train", "policy": {"model": model}})
        append_state(folder, RunState.QUEUED, author="test")
        first = read_row(folder)
        append_event(folder, "inputs", author="worker", model="smollm2", suite="digest")
        append_event(folder, "inputs", author="worker", suite="digest")
        later = read_row(folder, first)
        assert later is not None
        assert later.model == shown
        assert row_of(SimpleNamespace(**columns_of(later))) == later


def test_a_folder_that_is_no_run_has_no_row(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text("[]")
    assert read_row(RunFolder(tmp_path)) is None
