"""The handle of a supervisor is used only if all of it can be believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.runs.launcher import handle_of


@pytest.mark.parametrize("handle", [{"job": "77"}, {"since_boot": 1.5, "epoch": 2, "tries": 3}])
def test_a_handle_is_read_as_it_was_written(tmp_path: Path, handle: dict[str, Any]) -> None:
    folder = RunFolder(tmp_path)
    write_json(folder.launch, handle)
    assert handle_of(folder) == handle


def test_without_a_start_the_handle_is_empty(tmp_path: Path) -> None:
    assert handle_of(RunFolder(tmp_path)) == {}


@pytest.mark.parametrize("name", ["since_boot", "epoch", "tries"])
@pytest.mark.parametrize("value", ["1", None, [1]])
def test_a_handle_with_a_number_that_is_none_is_empty(
    tmp_path: Path, name: str, value: object
) -> None:
    folder = RunFolder(tmp_path)
    write_json(folder.launch, {"epoch": 1, "job": "77", name: value})
    assert handle_of(folder) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "7"])
def test_a_file_that_is_no_table_is_an_empty_handle(tmp_path: Path, text: str) -> None:
    folder = RunFolder(tmp_path)
    folder.launch.write_text(text)
    assert handle_of(folder) == {}
