"""What is known of an environment without running it, and what it tells when it is run."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from sparring.contracts.foreign import MIXED, ForeignText, MixedTable
from sparring.contracts.services import Service
from sparring.contracts.specs import Frozen


class FoundEnvironment(Frozen):
    """One environment, as its source shows it."""

    name: str
    class_name: str
    file: str
    line: int
    description: ForeignText = ""
    config_class: str = ""
    package: str = Field(default="", description="the installed package that brings it")
    needs_port: bool = Field(default=False, description="written for Atropos")

    @property
    def target(self) -> str:
        return f"{self.file}:{self.class_name}" if self.class_name else self.file


class SourceProblem(Frozen):
    """Something in a project's source that keeps an environment from being found or told apart."""

    file: str
    line: int
    message: ForeignText


class Catalogue(Frozen):
    """All environments of a project, by name, and what was in the way."""

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
    """What an environment says of itself; `error` where it could not be asked."""

    name: str
    fields: tuple[FieldDescription, ...] = ()
    settings: MixedTable = Field(default_factory=dict)
    measures: Annotated[tuple[str, ...], MIXED] = ()
    services: Annotated[tuple[Service, ...], MIXED] = ()
    needs_sandbox: bool = False
    error: ForeignText = ""
