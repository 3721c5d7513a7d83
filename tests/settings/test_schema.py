"""The JSON Schema of `sparring.toml` accepts what Sparring accepts."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sparring.contracts.errors import InvalidInput
from sparring.settings.document import parse
from sparring.settings.project_file import read_project_file
from sparring.settings.schema import project_file_schema

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    [
        *(ROOT / "examples").rglob("sparring.toml"),
        ROOT / "src/sparring/projects/template/sparring.toml.txt",
    ]
)
GOOD = """
[settings]
warm_start = "demonstrations.jsonl"
report_to = "trackio"
guards = { entropy = "warn" }
lora = { r = 8 }
slurm = { partition = "gpu" }
sampling = 2
[sampling]
servers = ["http://a:8000", "http://b:8000"]
[eval]
num_generations = 4
[environment.shop.settings]
max_steps = 3
[environment.shop.config]
anything = [1, 2]
[[lock]]
field = "max_steps"
value = 5
[budget]
hours = 1.5
[operators]
may_set = ["config.level"]
"""


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = project_file_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def problems(validator: Draft202012Validator, text: str) -> list[Any]:
    return [error.message for error in validator.iter_errors(tomllib.loads(text))]


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.parent.name)
def test_every_project_file_in_the_repository_is_valid(file: Path, validator: Any) -> None:
    assert not problems(validator, file.read_text())


def test_what_sparring_reads_is_valid(validator: Draft202012Validator) -> None:
    read_project_file(parse(GOOD, "sparring.toml"))
    assert not problems(validator, GOOD)


@pytest.mark.parametrize(
    "text",
    [
        "[settings]\nmax_step = 3",
        "[project]\nname = 'x'",
        "[budget]\nsteps = 0",
        "[setings]\nmax_steps = 3",
        "[eval]\nmax_steps = 3",
        "[[lock]]\nvalue = 3",
    ],
)
def test_what_sparring_refuses_is_marked_by_an_editor(text: str, validator: Any) -> None:
    assert problems(validator, text)
    with pytest.raises(InvalidInput, match=r"sparring.toml:"):
        read_project_file(parse(text, "sparring.toml"))


def test_a_value_of_the_wrong_type_is_marked(validator: Draft202012Validator) -> None:
    assert problems(validator, "[settings]\nmax_steps = 'three'")
