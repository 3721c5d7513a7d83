"""The page of verbs is what the registry says, and what it says is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from sparring.operations.operation import all_operations
from sparring.surfaces import verbs
from tests.surfaces.cli.terminal import CHECK, PROOF, TRAIN, summary_of

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_verbs_is_current():
    """`python -m sparring.surfaces.verbs > docs/verbs.md`"""
    assert (DOCS / "verbs.md").read_text() == verbs.page()


def test_every_form_of_a_verb_exists():
    import typer

    from sparring.surfaces.cli.main import app

    command = typer.main.get_command(app)
    for operation in all_operations().values():
        found: Any = command
        for word in operation.forms.cli.split():
            found = found.commands[word]
        if path := operation.forms.python:
            home, name, *_ = path.split(".")
            assert name in importlib.import_module(home).__all__


@pytest.mark.parametrize(("command", "run"), [("train", TRAIN), ("check", CHECK), ("prove", PROOF)])
def test_the_fields_of_a_summary_are_those_of_its_json_answer(command: str, run: str) -> None:
    (row,) = [line for line in verbs.page().splitlines() if f"| `{command} --json` |" in line]
    documented = set(re.findall(r"`(\w+)`", row.split("|")[2]))
    assert set(summary_of(run)) | {"next"} <= documented


def test_every_operation_that_somebody_can_call_is_a_row_with_its_role() -> None:
    rows = verbs.page().splitlines()
    for operation in all_operations().values():
        command = f"| `sparring {operation.forms.cli}` |"
        if not operation.forms.cli:
            continue
        (row,) = [line for line in rows if command in line]
        assert f" | {operation.role.name.lower()} | " in row
        assert row.endswith("| yes |") == operation.changes_state
