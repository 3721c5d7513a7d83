"""Finding a measure by its name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import MeasureError
from sparring.contracts.verdicts import passed
from sparring.measures.builtin import BUILTIN
from sparring.measures.declaration import Measure, measure
from sparring.measures.naming import resolve


@measure(name="mine")
def own(rollout: Any) -> Any:
    return passed("yes")


def plain(rollout: Any) -> bool:
    return True


def test_a_measure_is_itself_and_a_function_becomes_one() -> None:
    assert resolve(own) is own
    assert resolve(plain) == Measure("plain", plain)


@pytest.mark.parametrize(("attribute", "name"), [("own", "mine"), ("plain", "plain")])
def test_ones_own_measure_is_found_by_module_and_name(attribute: str, name: str) -> None:
    found = resolve(f"{__name__}:{attribute}")
    assert found.name == name


def test_a_built_in_name_is_found_and_gives_what_it_declares() -> None:
    name = "exact" if "exact" in BUILTIN else sorted(BUILTIN)[0]
    assert resolve(name).name == BUILTIN[name]().name


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(MeasureError) as refused:
        resolve("exakt")
    assert "there is no built-in measure 'exakt'" in str(refused.value)
    assert all(name in str(refused.value) for name in BUILTIN)
    assert "`module:name`" in str(refused.value)


@pytest.mark.parametrize("name", ["no_such_module:x", f"{__name__}:no_such_name"])
def test_a_module_or_name_that_is_not_there_is_refused_with_the_cause(name: str) -> None:
    with pytest.raises(MeasureError, match=rf"measure '{name}' cannot be loaded: .*no_such"):
        resolve(name)


@pytest.mark.parametrize("reference", [3, None, f"{__name__}:__file__"])
def test_what_is_no_measure_is_refused(reference: Any) -> None:
    with pytest.raises(MeasureError):
        resolve(reference)


def test_a_measure_of_an_installed_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shipped_measures.py").write_text("def tidy(rollout):\n    return True\n")
    info = tmp_path / "shipped_measures-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shipped_measures\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sparring.measures]\nneat = shipped_measures:tidy\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    assert resolve("neat").name == "tidy"
    with pytest.raises(MeasureError, match="neat"):
        resolve("untidy")
