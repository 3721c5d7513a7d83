"""One proved training of the bell for all tests of shipments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.ship.made import make_project


@pytest.fixture(scope="session")
def proved(tiny_folder: Path, warm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its runs."""
    return make_project(tmp_path_factory.mktemp("porter"), tiny_folder, warm_folder)
