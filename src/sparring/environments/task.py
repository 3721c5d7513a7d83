"""The task of a run: what is played and judged, from an environment or from arguments."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Self

from agents import Agent, FunctionTool

from sparring.contracts.errors import InvalidInput
from sparring.contracts.json import JsonObject
from sparring.contracts.policies import Policy
from sparring.contracts.specs import PlaySettings
from sparring.contracts.training import TrainSettings
from sparring.environments.environment import (
    Environment,
    listed,
    name_of,
    read_agent,
    read_examples,
    read_suite,
)
from sparring.environments.examples import WorkedExample, checked_examples, input_items
from sparring.environments.modules import environment_of
from sparring.gateway.agents import FunctionProgram, GatewayAgent, PlayFunction
from sparring.measures import MeasureSet
from sparring.measures.declaration import Judge, Measure
from sparring.measures.reward_functions import Batch
from sparring.player.conversation import Reframe
from sparring.player.external_agent import ExternalAgent, PlayedAgent
from sparring.player.player import ContextFactory, Player
from sparring.player.sdk_run import UserFunction
from sparring.player.trainability import (
    refuse_untrainable,
    refuse_without_tools,
    training_obstacles,
)
from sparring.policies.families import Family, family_named
from sparring.sandbox import probe
from sparring.suites import Suite
from sparring.suites.splitting import Conflicts

AnyAgent = PlayedAgent | Environment | PlayFunction | ModuleType
Measures = Sequence[Measure | str | Judge]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is played and judged: an agent with its cases, measures, world, user and chat format.

    `examples` are part of the agent: every prompt begins with them. `environment` is the name of
    the environment, if it comes from one. `digest` identifies the agent of a run that was started
    from Python; the run is not resumed with another agent.
    """

    agent: PlayedAgent
    suite: Suite
    measures: MeasureSet
    context: ContextFactory | None = None
    user: UserFunction | None = None
    family: Family | None = None
    examples: tuple[WorkedExample, ...] = ()
    environment: str = ""
    digest: str = ""

    def __post_init__(self) -> None:
        if self.examples and isinstance(self.agent, ExternalAgent):
            raise InvalidInput(
                f"{self.agent.name} has worked examples, but an agent behind play, command or url "
                "makes its own prompts; remove `examples`, and put them into the messages that it "
                "sends"
            )

    @classmethod
    def of_environment(
        cls,
        environment: Environment,
        *,
        suite: Callable[[], Suite] | None = None,
        measures: MeasureSet | None = None,
        measure_timeout: float = 30.0,
    ) -> Self:
        """Read an environment's parts, or raise InvalidInput with the line that failed. `suite` and
        `measures` replace the environment's own; `measure_timeout` is the deadline of a measure."""
        kind = type(environment)
        return cls(
            agent=read_agent(environment),
            suite=read_suite(environment) if suite is None else suite(),
            measures=(
                read_measures(environment, measure_timeout) if measures is None else measures
            ),
            context=environment.world if kind.world is not Environment.world else None,
            user=environment.user if kind.user is not Environment.user else None,
            family=environment.family,
            environment=name_of(environment),
            examples=read_examples(environment),
        )

    @property
    def conflicts(self) -> Conflicts:
        """The cases that contradict each other. There are none with a world or a user, which may
        tell the model what sets the cases apart."""
        return Conflicts() if self.context or self.user else self.suite.conflicts

    def training_obstacles(self, settings: TrainSettings) -> list[str]:
        """Return why the agent cannot be trained, as far as its objects show; [] if it can."""
        named = settings.train_agents
        return list(dict.fromkeys(training_obstacles(self.agent, settings.temperature, named)))

    @property
    def opening(self) -> list[JsonObject]:
        """The worked examples as input items, which every case's input begins with."""
        return input_items(self.examples)

    @property
    def answers_shown(self) -> list[str]:
        """The answers of the worked examples."""
        return [each.answer for each in self.examples]

    def player(
        self,
        policy: Policy,
        play: PlaySettings,
        *,
        opening: Sequence[JsonObject] | None = None,
        reframe: Reframe | None = None,
    ) -> Player:
        """Return a player of the agent with this model, with the limits of `play`. `opening`
        replaces the worked examples, and `reframe` instructions and tool schemas, in its
        prompts."""
        return Player(
            self.agent,
            policy,
            limits=play.limits(),
            temperature=play.temperature,
            context=self.context,
            user=self.user,
            examples=self.opening if opening is None else opening,
            reframe=reframe,
        )

    def refuse_untrainable(self, settings: TrainSettings) -> None:
        """Raise Untrainable, with a list of all obstacles, if the agent cannot be trained, and
        SettingError if it has no tool results for a loss that needs them."""
        refuse_untrainable(self.agent, settings.temperature, settings.train_agents)
        if settings.learns_results:
            refuse_without_tools(self.agent, self.context)


def read_measures(environment: Environment, seconds: float) -> MeasureSet:
    """Return an environment's measures with their weights. A measure has `seconds` for a
    rollout."""
    declared = listed(type(environment).__name__, environment.measures)
    return MeasureSet.of(declared, environment.weights, seconds=seconds)


def read_task(
    agent: AnyAgent,
    suite: Suite | None,
    measures: Measures | None,
    *,
    weights: Mapping[str, float] | None = None,
    reward_functions: Sequence[Batch] = (),
    context: ContextFactory | None = None,
    user: UserFunction | None = None,
    family: Family | str | None = None,
    examples: Sequence[WorkedExample] | None = None,
    settings: PlaySettings | None = None,
) -> Task:
    """Check the arguments of a Python entry point and return them as a task. An environment's parts
    replace missing arguments. Raises InvalidInput if the agent or the suite has a wrong type, or if
    a service of the environment has no address."""
    agent = _as_environment(agent)
    settings = settings or PlaySettings()
    given = None if examples is None else checked_examples(examples, "examples")

    def measure_set(declared: Measures, own_weights: Mapping[str, float] | None) -> MeasureSet:
        return MeasureSet.of(
            declared if measures is None else measures,
            own_weights if weights is None and measures is None else weights,
            seconds=settings.measure_timeout,
            reward_functions=reward_functions,
        )

    if not isinstance(agent, Environment):
        return Task(
            agent=played_agent(agent),
            suite=_checked_suite(suite),
            measures=measure_set((), None),
            context=context,
            user=user,
            family=as_family(family),
            examples=given or (),
            digest=_digest(agent, given),
        )
    _require_services(agent, is_unsandboxed=settings.unsandboxed)
    task = Task.of_environment(
        agent,
        suite=None if suite is None else lambda: _checked_suite(suite),
        measures=measure_set(listed(type(agent).__name__, agent.measures), agent.weights),
    )
    return replace(
        task,
        context=context or task.context,
        user=user or task.user,
        family=as_family(family) or task.family,
        examples=task.examples if given is None else given,
        digest=_digest(agent, given),
    )


def as_family(family: Family | str | None) -> Family | None:
    """Return a family that is given as an object or by its name. Raises UnknownFamily."""
    return family_named(family) if isinstance(family, str) else family


def played_agent(agent: AnyAgent) -> PlayedAgent:
    """Return the agent for the player; a function becomes an agent behind the gateway."""
    agent = _as_environment(agent)
    if isinstance(agent, Agent | ExternalAgent):
        return agent
    if isinstance(agent, Environment):
        return read_agent(agent)
    if inspect.isclass(agent) and issubclass(agent, Environment):
        raise InvalidInput(f"pass an environment, not its class: {agent.__name__}()")
    if not callable(agent) or inspect.isclass(agent):
        raise InvalidInput(
            f"the agent must be an agents.Agent, an Environment or a function play(case, session), "
            f"not {agent!r}"
        )
    return GatewayAgent(getattr(agent, "__name__", "play"), FunctionProgram(agent))


def default_settings(agent: AnyAgent) -> dict[str, Any]:
    """Return the settings that an environment declares; none for other agents."""
    agent = _as_environment(agent)
    return dict(agent.settings) if isinstance(agent, Environment) else {}


def _as_environment(agent: AnyAgent) -> AnyAgent:
    """Return the environment that a module is; return other agents unchanged."""
    made = environment_of(agent) if isinstance(agent, ModuleType) else None
    return agent if made is None else made()


def _require_services(environment: Environment, *, is_unsandboxed: bool) -> None:
    """Raise if the environment's sandbox or the address of one of its services is missing."""
    if environment.needs_sandbox and not is_unsandboxed:
        probe().require()
    environment.is_unsandboxed = is_unsandboxed
    missing = [
        service.name
        for service in environment.services
        if service.name not in environment.addresses
    ]
    if missing:
        raise InvalidInput(
            f"{type(environment).__name__} needs the services {', '.join(missing)}, which only the "
            "command line starts: use `sparring eval` and `sparring train`, or start them yourself "
            "and pass environment.add_addresses({'NAME': 'HOST:PORT'})"
        )


def _checked_suite(suite: Suite | None) -> Suite:
    if not isinstance(suite, Suite):
        raise InvalidInput(
            f"the suite must be a Suite, not {type(suite).__name__}; make one with "
            "Suite.from_records([{'input': …, 'expected': …}])"
        )
    return suite


def _digest(agent: AnyAgent, examples: Sequence[WorkedExample] | None) -> str:
    parts = [*_identity(agent), input_items(examples)] if examples else _identity(agent)
    identity = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(identity.encode()).hexdigest()


def _identity(agent: AnyAgent) -> list[Any]:
    """Return the values that identify an agent: for an SDK agent, name, instructions, model and
    tool schemas; for an environment, source and config; for a function, its source."""
    if isinstance(agent, Agent):
        return [
            agent.name,
            agent.instructions if isinstance(agent.instructions, str) else "(function)",
            agent.model if isinstance(agent.model, str) else "",
            [
                [tool.name, tool.description, tool.params_json_schema]
                for tool in agent.tools
                if isinstance(tool, FunctionTool)
            ],
        ]
    if isinstance(agent, Environment):
        return [_source(type(agent)), agent.config.model_dump(mode="json")]
    if isinstance(agent, ExternalAgent):
        return [agent.name, agent.model or ""]
    return [_source(agent)]


def _source(code: Any) -> str:
    """Return the source of a function or class, or of the file that is an environment without a
    class; the name of other code, such as a callable object."""
    places: list[Any] = [code, inspect.getmodule(code) if inspect.isclass(code) else None]
    for each in places:
        with contextlib.suppress(OSError, TypeError):
            return inspect.getsource(each)
    return getattr(code, "__qualname__", type(code).__qualname__)
