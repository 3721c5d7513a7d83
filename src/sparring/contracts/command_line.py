"""Marks on the fields of requests and settings: how they are typed on the command line.

A request's field needs no mark: a required one is an argument, any other an option of its name. A
setting has an option only if it is marked; `--set NAME=VALUE` sets every setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OnCommandLine:
    """Marks a field, as in `trial: Annotated[bool, OnCommandLine("--try")]`.

    `names` holds the names of the option, separated by spaces. Fields of one request may share an
    option, which then sets all of them. `help` and `default` replace the field's own. `completes`
    names what a shell completes: runs or environments. With `is_listed`, the values of one option
    are separated by commas.
    """

    names: str = ""
    help: str = ""
    default: Any = None
    completes: str = ""
    is_argument: bool = False
    is_listed: bool = False
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class SettingsOnCommandLine:
    """Marks the field of a request that takes settings: of which kind of run, and which of the
    marked settings are options (all of them if `names` is empty), under which title."""

    kind: str
    names: tuple[str, ...] = ()
    title: str = "Settings"


HIDDEN = OnCommandLine(is_hidden=True)
SHOWN = OnCommandLine()
RUN = OnCommandLine(completes="runs", is_argument=True)
ENVIRONMENT = OnCommandLine(
    help="name of an environment, FILE, or FILE:NAME", completes="environments", is_argument=True
)
