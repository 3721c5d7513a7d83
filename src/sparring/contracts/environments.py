"""Descriptions of environments: from their source alone, and from running them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from sparring.contracts.foreign import MIXED, ForeignText, MixedTable
from sparring.contracts.services import Service
from sparring.contracts.specs import Frozen


class FoundEnvironment(Frozen):
    """One environment, as found in source code without running it."""

    name: str
    class_name: str
    file: str
    line: int
    description: ForeignText = ""
    config_class: str = ""
    package: str = Field(default="", description="the installed package that provides it")
    needs_port: bool = Field(default=False, description="written for Atropos")

    @property
    def target(self) -> str:
        """`FILE:CLASS`, as specs name it."""
        return f"{self.file}:{self.class_name}" if self.class_name else self.file


class SourceProblem(Frozen):
    """A fault in a project's source that hides an environment or makes its name ambiguous."""

    file: str
    line: int
    message: ForeignText


class Catalogue(Frozen):
    """All environments of a project, by name, and the problems found on the way."""

    environments: tuple[FoundEnvironment, ...]
    problems: tuple[SourceProblem, ...] = ()


class FieldDescription(Frozen):
    """One field of an environment's config."""

    name: Annotated[str, MIXED]
    type: Annotated[str, MIXED]
    required: bool = False
    default: Annotated[Any, MIXED] = None
    description: ForeignText = ""
    json_schema: MixedTable = Field(default_factory=dict)


class EnvironmentDescription(Frozen):
    """What an environment declares about itself; `error` says why it could not be loaded."""

    name: str
    fields: tuple[FieldDescription, ...] = ()
    settings: MixedTable = Field(default_factory=dict)
    measures: Annotated[tuple[str, ...], MIXED] = ()
    services: Annotated[tuple[Service, ...], MIXED] = ()
    needs_sandbox: bool = False
    error: ForeignText = ""
