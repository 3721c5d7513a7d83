"""The fixtures that the tests of the trainer share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.built_run import Run


@pytest.fixture
def make(tiny_folder: Path, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(**fields: Any) -> Run:
        made.append(Run(tiny_folder, tmp_path / str(len(made)), **fields))
        return made[-1]

    yield make
    for each in made:
        each.built.collector.close()


@pytest.fixture
def run(make: Callable[..., Run]) -> Run:
    return make()
