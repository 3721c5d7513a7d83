"""One checkpoint and its artefacts, made once for all tests of shipping."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.shipping.artefacts import Artefact
from sparring.shipping.source import Source
from sparring.shipping.verification import Reference
from tests.shipping.made import made_reference, made_source, written


@pytest.fixture(scope="session")
def source(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Source:
    return made_source(tiny_folder, tmp_path_factory.mktemp("source") / "step-3")


@pytest.fixture(scope="session")
def reference(source: Source) -> Reference:
    return made_reference(source)


@pytest.fixture(scope="session")
def artefacts(source: Source, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artefact]:
    return written(source, tmp_path_factory.mktemp("artefacts"), "f32", "f16", "q8_0")
