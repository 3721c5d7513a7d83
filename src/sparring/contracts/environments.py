"""Descriptions of environments, read from their source or returned by their code."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from pydantic import Field

from sparring.contracts.foreign import MIXED, ForeignText, MixedTable
from sparring.contracts.specs import Frozen, Service

# The parts of an environment without a class: one of the first, and each of the others.
AGENT_PARTS = ("agent", "play", "command", "url")
OTHER_PARTS = ("suite", "measures")


def is_whole(names: Collection[str]) -> bool:
    """Return whether these names of a file make it an environment without a class."""
    return any(part in names for part in AGENT_PARTS) and all(part in names for part in OTHER_PARTS)


class FoundEnvironment(Frozen):
    """One environment, found by reading source code."""

    name: str
    class_name: str  # its file's name if it has no class
    file: str
    line: int
    description: ForeignText = ""
    config_class: str = ""
    package: str = Field(default="", description="installed package that provides the environment")
    needs_port: bool = Field(
        default=False, description="whether the class is written for Atropos and must be ported"
    )

    @property
    def target(self) -> str:
        """`FILE:CLASS`, the form that specs use; `FILE` without a class."""
        return f"{self.file}:{self.class_name}" if self.class_name else self.file


class SourceProblem(Frozen):
    """A fault in a project's source that hides an environment or makes its name ambiguous."""

    file: str
    line: int
    message: ForeignText


class Catalogue(Frozen):
    """All environments of a project, and the problems in its source."""

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
    """The declarations of an environment; `error` is the reason if it could not be loaded."""

    name: str
    fields: tuple[FieldDescription, ...] = ()
    settings: MixedTable = Field(default_factory=dict)
    measures: Annotated[tuple[str, ...], MIXED] = ()
    services: Annotated[tuple[Service, ...], MIXED] = ()
    needs_sandbox: bool = False
    error: ForeignText = ""
