"""A run's summary is read as it was written, and asked for too early it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.jobs.summary import read_summary
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json


def test_a_run_without_results_is_told_to_complete_first(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "swift-lark")
    folder.create({"format": 1, "kind": "eval"})
    with pytest.raises(InvalidInput, match="run swift-lark has no results to report yet; let it"):
        read_summary(folder)
    write_json(folder.summary, {"run": "swift-lark", "reward": None})
    assert read_summary(folder) == {"run": "swift-lark", "reward": None}
