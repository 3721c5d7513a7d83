"""Environments of installed packages, found without importing a package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparring.contracts.environments import FoundEnvironment
from sparring.projects.packages import installed_environments

PLAIN = '''
from sparring import Environment

class Plain(Environment):
    """A plain one.

    With more to it."""

    class Config(Environment.Config):
        pass
'''
RAISING = "raise RuntimeError('imported')\n"
Install = Callable[..., list[FoundEnvironment]]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package whose files would raise, and returns what is found of it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(entry: str, **files: str) -> list[FoundEnvironment]:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(RAISING + text)
        info = tmp_path / "shipped_tasks-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shipped-tasks\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[sparring.environments]\nnice = {entry}\n")
        return [each for each in installed_environments() if each.name == "nice"]

    yield installed
    assert not [name for name in sys.modules if name.startswith("shipped_")]


def test_the_entry_point_gives_the_name_and_the_source_gives_the_rest(install: Install) -> None:
    (found,) = install("shipped_one:Plain", shipped_one=PLAIN)
    assert (found.name, found.class_name, found.package) == ("nice", "Plain", "shipped-tasks")
    assert (found.description, found.config_class) == ("A plain one.", "Plain.Config")
    assert Path(found.file).name == "shipped_one.py"
    assert Path(found.file).read_text().splitlines()[found.line - 1].startswith("class Plain")


@pytest.mark.parametrize("place", ["shipped_two/tasks.py", "shipped_two/tasks/x.py"])
def test_a_module_inside_a_package_is_found_by_its_path(install: Install, place: str) -> None:
    module = place.removesuffix(".py").replace("/", ".")
    name = place.removesuffix(".py").replace("/", "__")
    (found,) = install(f"{module}:Plain", **{"shipped_two/" + "_" * 2 + "init": "", name: PLAIN})
    assert found.file.endswith(place)


def test_a_package_is_found_by_the_file_that_makes_it_one(install: Install, tmp_path: Path) -> None:
    for folder in ("shipped_three", "shipped_three/inner"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(RAISING + PLAIN)
    (found,) = install("shipped_three.inner:Plain")
    assert found.file.endswith("shipped_three/inner/__init__.py")


@pytest.mark.parametrize(
    "entry", ["shipped_four:Other", "shipped_gone:Plain", "shipped_four.deeper:Plain", "sys:Plain"]
)
def test_an_entry_point_that_leads_nowhere_is_skipped(install: Install, entry: str) -> None:
    assert install(entry, shipped_four=PLAIN) == []
