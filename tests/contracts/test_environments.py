"""Descriptions of environments: how specs name them, and what in them is foreign text."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sparring.contracts.environments import (
    Catalogue,
    EnvironmentDescription,
    FieldDescription,
    FoundEnvironment,
    SourceProblem,
)
from sparring.contracts.foreign import FOREIGN, MIXED
from sparring.contracts.specs import Frozen, Service


def test_a_target_names_the_class_where_the_source_shows_one() -> None:
    found = FoundEnvironment(name="shop", class_name="Shop", file="/p/shop.py", line=3)
    assert found.target == "/p/shop.py:Shop"
    assert found.model_copy(update={"class_name": ""}).target == "/p/shop.py"


def test_a_description_survives_being_written_and_read() -> None:
    description = EnvironmentDescription(
        name="shop",
        fields=(FieldDescription(name="size", type="int", default=3, description="how large"),),
        settings={"temperature": 0.5},
        measures=("exact",),
        services=(Service("web", ["python", "server.py"], ready_http="/", seconds=2.0),),
        needs_sandbox=True,
    )
    again = EnvironmentDescription.model_validate_json(description.model_dump_json())
    assert again == description
    assert again.services[0].command_at(1) == ["python", "server.py"]


@pytest.mark.parametrize(
    ("model", "field", "mark"),
    [
        (FoundEnvironment, "description", FOREIGN),
        (SourceProblem, "message", FOREIGN),
        (EnvironmentDescription, "error", FOREIGN),
        (EnvironmentDescription, "settings", MIXED),
        (EnvironmentDescription, "measures", MIXED),
        (EnvironmentDescription, "services", MIXED),
        (FieldDescription, "name", MIXED),
        (FieldDescription, "type", MIXED),
        (FieldDescription, "default", MIXED),
        (FieldDescription, "description", FOREIGN),
        (FieldDescription, "json_schema", MIXED),
    ],
)
def test_text_that_the_environment_wrote_is_marked(
    model: type[Frozen], field: str, mark: object
) -> None:
    assert mark in model.model_fields[field].metadata


def test_a_field_that_no_description_has_is_refused_by_its_name() -> None:
    with pytest.raises(ValidationError, match="secrets\n  Extra inputs are not permitted"):
        EnvironmentDescription.model_validate({"name": "shop", "secrets": 1})


def test_a_catalogue_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Catalogue(environments=()).problems = ()  # type: ignore[misc]
