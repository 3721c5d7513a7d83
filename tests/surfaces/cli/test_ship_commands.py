"""`sparring ship` as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.surfaces.cli import starting
from tests.operations.made import make_project, spec_of
from tests.operations.test_shipping import proved
from tests.surfaces.cli.terminal import Terminal


@pytest.fixture
def terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    return Terminal(make_project(tmp_path, monkeypatch).folder, monkeypatch, capsys)


def test_lists_are_separated_by_commas(terminal: Terminal) -> None:
    run = proved(starting.owner())
    given = ["--to", "model", "--form", "merged, GGUF", "--quant", "q8_0,f16", "--compare"]
    typed = terminal.type("ship", run, *given, "--detach", "--json")
    spec = spec_of(starting.owner(), typed.json["run"])
    assert spec["forms"] == ["merged", "gguf"]
    assert spec["quantizations"] == ["q8_0", "f16"]
    assert spec["compare"]


def test_an_unknown_form_is_refused_with_the_known_ones(terminal: Terminal) -> None:
    run = proved(starting.owner())
    typed = terminal.type("ship", run, "--form", "zip")
    assert typed.code == 2
    assert "adapter" in typed.err


def test_a_try_plays_ten_validation_cases_and_needs_no_proof(terminal: Terminal) -> None:
    run = proved(starting.owner(), "not shown")
    typed = terminal.type("ship", run, "--try", "--detach", "--json")
    spec = spec_of(starting.owner(), typed.json["run"])
    assert (spec["forms"], spec["cases"], spec["validation_cases"]) == (["gguf"], 0, 10)
    assert spec["trial"]


def test_a_try_that_is_to_be_handed_over_is_refused(terminal: Terminal) -> None:
    typed = terminal.type("ship", proved(starting.owner()), "--try", "--to", "model")
    assert typed.code == 2
    assert "--try writes no folder" in typed.err
