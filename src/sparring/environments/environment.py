"""The base class of environments, and functions that read and validate their parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sparring.contracts.cases import Case
from sparring.contracts.errors import InvalidInput, SettingError, SparringError
from sparring.contracts.rollouts import Message
from sparring.contracts.specs import Service
from sparring.measures.declaration import Judge, Measure
from sparring.policies.families import Family
from sparring.sandbox.command import SandboxLimits
from sparring.suites import Suite
from sparring.tracebacks import line_that_raised

if TYPE_CHECKING:
    from sparring.environments.examples import WorkedExample
    from sparring.environments.workspace import Workspace
    from sparring.gateway import ModelCall, Session
    from sparring.player.external_agent import PlayedAgent


class Environment:
    """An agent, its cases and its measures. The subclass's docstring describes the task.

    Each of `measures` has weight 1 unless `weights` sets another weight; a measure with weight 0 is
    reported, but not part of the reward. `settings` are the environment's defaults for playing and
    training. `family` declares the chat format of a model that belongs to no built-in family
    (docs/families.md).

    If the agent is not built with the agents SDK, define `play` (a function), `command` (a
    process) or `url` (a service) instead of `agent`, and set `model` to the model to play
    (docs/gateway.md).
    """

    name: ClassVar[str] = ""
    measures: Sequence[Measure | str | Judge] = ()
    weights: Mapping[str, float] = {}
    settings: Mapping[str, Any] = {}
    services: Sequence[Service] = ()
    needs_sandbox: ClassVar[bool] = False
    family: Family | None = None
    model: ClassVar[str | None] = None
    command: ClassVar[Sequence[str]] = ()
    reuse: ClassVar[bool] = False
    python: ClassVar[str | None] = None
    command_files: ClassVar[Sequence[str]] = ()
    url: ClassVar[str | None] = None
    gateway_host: ClassVar[str] = "127.0.0.1"

    class Config(BaseModel):
        """The environment's configurable fields; a subclass adds fields."""

        model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, **config: Any) -> None:
        self.config: Any = self._parse_config(config)
        self.is_unsandboxed = False
        self._addresses: dict[str, str] = {}

    def agent(self) -> PlayedAgent:
        """Return the agents SDK agent to train and ship."""
        raise NotImplementedError(
            f"{type(self).__name__} must define agent(), which returns an Agent, or play(), "
            "command or url"
        )

    async def play(self, case: Case, session: Session) -> Any:
        """Run an agent of any framework on one case, instead of `agent()`, and return its answer.

        The agent's client takes `session.base_url`, `session.api_key` and `session.model`; tools
        may use `session.world`. If it returns None, the answer is the main agent's last reply.
        Without `async`, the method runs in a thread. See docs/gateway.md.
        """
        raise NotImplementedError  # called only if a subclass overrides it

    def label(self, call: ModelCall) -> str | None:  # noqa: ARG002 - for overriding
        """Name the agent that makes a call through the gateway, for `train_agents`; None for the
        default: "main" if the call has the instructions, tools and output schema of the first call
        without a label, "sub-agent" otherwise."""
        return None

    def suite(self) -> Suite:
        """Return the cases with their splits."""
        raise NotImplementedError(
            f"{type(self).__name__} must define suite(), which returns a Suite, as in "
            "Suite.from_records([{'input': …, 'expected': …}])"
        )

    def world(self, case: Case) -> Any:  # noqa: ARG002 - for overriding
        """Return a new world for one rollout. Its `@tool` methods are added to the agent's tools,
        the SDK passes it to tools as their context, and measures read it as `rollout.world`."""
        return None

    async def user(self, case: Case, world: Any, conversation: Sequence[Message]) -> str | None:
        """Answer the agent's last message as a user would; return None to end the conversation.

        Without this method, a rollout ends with the agent's first answer. The model is not trained
        on the user's messages.
        """
        raise NotImplementedError  # called only if a subclass overrides it

    def workspace(
        self,
        files: Mapping[str, str] | None = None,
        *,
        tools: Sequence[str] | None = None,
        limits: SandboxLimits | None = None,
    ) -> Workspace:
        """Return a world with files and a sandbox, for `world` to return."""
        from sparring.environments.workspace import Workspace

        return Workspace(files, tools=tools, limits=limits, is_unsandboxed=self.is_unsandboxed)

    def address(self, service: str) -> str:
        """Return HOST:PORT of a service; raises InvalidInput if it is not running."""
        if service not in self._addresses:
            known = ", ".join(item.name for item in self.services) or "none"
            raise InvalidInput(
                f"{type(self).__name__} has no running service {service!r}; "
                f"declared services: {known}"
            )
        return self._addresses[service]

    @property
    def addresses(self) -> Mapping[str, str]:
        """HOST:PORT of the running services, by name."""
        return self._addresses

    def add_addresses(self, addresses: Mapping[str, str]) -> None:
        """Add HOST:PORT of running services, by name."""
        self._addresses.update(addresses)

    @property
    def examples(self) -> Sequence[WorkedExample]:
        """Worked examples (`worked_example`), which are part of the agent: every prompt begins with
        them, before the case's input. A list is an attribute of the class; a property may read
        `self.config`."""
        return ()

    @classmethod
    def _parse_config(cls, values: Mapping[str, Any]) -> BaseModel:
        try:
            return cls.Config(**values)
        except ValidationError as error:
            known = ", ".join(cls.Config.model_fields) or "none"
            problems = "; ".join(
                f"config.{'.'.join(map(str, problem['loc']))}: "
                + problem["msg"].removeprefix("Value error, ")
                for problem in error.errors()
            )
            raise SettingError(f"{cls.__name__}: {problems} (its fields: {known})") from error


def name_of(environment: Environment) -> str:
    """Return the name under which an environment is listed: the one that its class sets or, without
    one, that of its file. In a notebook, which has no file, it is that of the class."""
    file = _file_of(environment)
    kind = type(environment)
    return kind.name or (file.stem if file else kind.__name__)


def listed(name: str, measures: Any) -> Sequence[Measure | str | Judge]:
    """Return the measures of the class called `name`; raise InvalidInput if they are not given as
    a list or tuple."""
    if not isinstance(measures, list | tuple):
        raise InvalidInput(f"{name}.measures must be a list or tuple: write measures = (one,)")
    return measures


def read_agent(environment: Environment) -> PlayedAgent:
    """Return the environment's agent, on the SDK or behind the gateway, or raise InvalidInput."""
    from agents import Agent

    from sparring.player.external_agent import ExternalAgent

    way = _way_of(environment)
    if way != "agent":
        return _gateway_agent(environment, way)
    agent = _call(environment, environment.agent)
    if not isinstance(agent, Agent | ExternalAgent):
        raise InvalidInput(
            f"{type(environment).__name__}.agent() must return an agents.Agent, not a "
            f"{type(agent).__name__}"
        )
    return agent


def _gateway_agent(environment: Environment, way: str) -> PlayedAgent:
    from sparring.environments.programs import ProgramDeclaration, gateway_agent

    file = _file_of(environment)
    return gateway_agent(
        ProgramDeclaration(
            name=environment.name or type(environment).__name__,
            folder=file.parent if file else Path.cwd(),
            model=environment.model,
            label=environment.label,
            play=environment.play if way == "play" else None,
            url=environment.url,
            command=environment.command,
            files=environment.command_files,
            python=environment.python,
            host=environment.gateway_host,
            is_reused=environment.reuse,
            is_sandboxed=environment.needs_sandbox,
            is_unsandboxed=environment.is_unsandboxed,
        )
    )


def _way_of(environment: Environment) -> str:
    """Return the attribute that declares the agent; raises InvalidInput if several do."""
    kind = type(environment)
    ways = {
        "agent": kind.agent is not Environment.agent,
        "play": kind.play is not Environment.play,
        "command": bool(environment.command),
        "url": bool(environment.url),
    }
    declared = [way for way, is_declared in ways.items() if is_declared]
    if len(declared) > 1:
        raise InvalidInput(
            f"{kind.__name__} declares {' and '.join(declared)}; an environment has one agent, so "
            "keep one of them"
        )
    way = declared[0] if declared else "agent"
    if way != "agent" and kind.user is not Environment.user:
        raise InvalidInput(
            f"{kind.__name__} declares {way} and user; only agent() supports user, so remove one"
        )
    return way


def read_suite(environment: Environment) -> Suite:
    """Return the environment's suite, or raise InvalidInput with the line that failed."""
    suite = _call(environment, environment.suite)
    if not isinstance(suite, Suite):
        raise InvalidInput(
            f"{type(environment).__name__}.suite() must return a Suite, not a "
            f"{type(suite).__name__}; "
            "make one with Suite.from_records([{'input': …, 'expected': …}])"
        )
    return suite


def read_examples(environment: Environment) -> tuple[WorkedExample, ...]:
    """Return the environment's worked examples, or raise InvalidInput with the line that failed."""
    from sparring.environments.examples import checked_examples

    def examples() -> tuple[WorkedExample, ...]:
        name = f"{type(environment).__name__}.examples"
        return checked_examples(environment.examples, name)

    found: tuple[WorkedExample, ...] = _call(environment, examples)
    return found


def _file_of(environment: Environment) -> Path | None:
    """Return the file of an environment's class; None for one that was written in a notebook or at
    a prompt."""
    try:
        file = inspect.getsourcefile(type(environment))
    except (OSError, TypeError):
        return None
    return Path(file).resolve() if file else None


def _call(environment: Environment, part: Callable[[], Any]) -> Any:
    try:
        return part()
    except Exception as error:
        is_explained = isinstance(error, SparringError | NotImplementedError) and str(error)
        if is_explained:
            raise InvalidInput(str(error)) from error
        where = f" at {line}" if (line := line_that_raised(error)) else ""
        raise InvalidInput(
            f"{type(environment).__name__}.{part.__name__}() failed{where}: "
            f"{type(error).__name__}: {error}"
        ) from error
