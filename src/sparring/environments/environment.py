"""The base class of environments, and asking one for its parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sparring.contracts.cases import Case
from sparring.contracts.errors import InvalidInput, SettingError, SparringError
from sparring.contracts.services import Service
from sparring.measures.declaration import Judge, Measure
from sparring.policies.families import Family
from sparring.sandbox.limits import SandboxLimits
from sparring.suites import Suite

if TYPE_CHECKING:
    from agents import Agent

    from sparring.environments.workspace import Workspace


class Environment:
    """What an agent is trained on. Derive from it, and say what it is in the docstring.

    `measures` are rewarded with weight 1 each, or as `weights` says; weight 0 shows a
    measure without rewarding it. `settings` are defaults of this environment for how it is
    played and trained. `family` declares the chat format of a model whose family Sparring does
    not know (docs/families.md).
    """

    name: ClassVar[str] = ""
    measures: Sequence[Measure | str | Judge] = ()
    weights: Mapping[str, float] = {}
    settings: Mapping[str, Any] = {}
    services: Sequence[Service] = ()
    needs_sandbox: ClassVar[bool] = False
    family: Family | None = None

    class Config(BaseModel):
        """What of the environment can be set from outside; derive from it to add fields."""

        model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, **config: Any) -> None:
        self.config: Any = self._configured(config)
        self.is_unsandboxed = False
        self._addresses: dict[str, str] = {}

    def agent(self) -> Agent[Any]:
        """The agent that is played, and later shipped."""
        raise NotImplementedError(f"{type(self).__name__} must define agent()")

    def suite(self) -> Suite:
        """The cases."""
        raise NotImplementedError(f"{type(self).__name__} must define suite()")

    def world(self, case: Case) -> Any:  # noqa: ARG002 - for overriding
        """A fresh world for one rollout. Its `@tool` methods join the agent's tools, the SDK
        hands it to tools as their context, and measures see it as `rollout.world`."""
        return None

    def workspace(
        self,
        files: Mapping[str, str] | None = None,
        *,
        tools: Sequence[str] | None = None,
        limits: SandboxLimits | None = None,
    ) -> Workspace:
        """A world with files and a sandbox for them, to return from `world`."""
        from sparring.environments.workspace import Workspace

        return Workspace(files, tools=tools, limits=limits, is_unsandboxed=self.is_unsandboxed)

    def address(self, service: str) -> str:
        """HOST:PORT of one of `services`, once it is up."""
        if service not in self._addresses:
            known = ", ".join(each.name for each in self.services) or "none are declared"
            raise InvalidInput(
                f"{type(self).__name__} has no service {service!r} that runs now; services: {known}"
            )
        return self._addresses[service]

    @property
    def addresses(self) -> Mapping[str, str]:
        """Of the services that are up, by name."""
        return self._addresses

    def learn_addresses(self, addresses: Mapping[str, str]) -> None:
        """Told by whoever started the services."""
        self._addresses.update(addresses)

    @classmethod
    def _configured(cls, given: Mapping[str, Any]) -> BaseModel:
        try:
            return cls.Config(**given)
        except ValidationError as error:
            known = ", ".join(cls.Config.model_fields) or "none"
            told = "; ".join(
                f"config.{'.'.join(map(str, problem['loc']))}: "
                + problem["msg"].removeprefix("Value error, ")
                for problem in error.errors()
            )
            raise SettingError(f"{cls.__name__}: {told} (its fields: {known})") from error


@dataclass(frozen=True, slots=True)
class Parts:
    """What an environment is made of, checked."""

    agent: Agent[Any]
    suite: Suite
    measures: Sequence[Measure | str | Judge]
    world: Callable[[Case], Any] | None = None


def read_parts(environment: Environment, suite: Callable[[], Suite] | None = None) -> Parts:
    """Ask an environment for its parts; whatever its code does wrong is named by line. With a
    `suite` that is read elsewhere, it is not asked for its own."""
    from agents import Agent

    name = type(environment).__name__
    agent = _asked(environment, environment.agent)
    if not isinstance(agent, Agent):
        raise InvalidInput(
            f"{name}.agent() must return an agents.Agent, not a {type(agent).__name__}"
        )
    measures = environment.measures
    if isinstance(measures, Measure | str) or callable(measures):
        raise InvalidInput(f"{name}.measures must be a list or tuple: write measures = (one,)")
    has_world = type(environment).world is not Environment.world
    return Parts(
        agent,
        read_suite(environment) if suite is None else suite(),
        measures,
        environment.world if has_world else None,
    )


def read_suite(environment: Environment) -> Suite:
    suite = _asked(environment, environment.suite)
    if not isinstance(suite, Suite):
        raise InvalidInput(
            f"{type(environment).__name__}.suite() must return a Suite, not a "
            f"{type(suite).__name__}; "
            "make one with Suite.from_records([{'input': …, 'expected': …}])"
        )
    return suite


def last_line_in(path: Path, error: BaseException) -> str:
    """`:LINE` of the last line of this file that was reached, for an error message."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    trace, line = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def _asked(environment: Environment, part: Callable[[], Any]) -> Any:
    try:
        return part()
    except (SparringError, NotImplementedError) as error:
        raise InvalidInput(str(error)) from error
    except Exception as error:
        file = inspect.getsourcefile(type(environment)) or ""
        where = f"{Path(file).name}{last_line_in(Path(file).resolve(), error)}"
        raise InvalidInput(
            f"{type(environment).__name__}.{part.__name__}() failed at {where}: "
            f"{type(error).__name__}: {error}"
        ) from error
