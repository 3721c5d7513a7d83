"""Specs: the frozen descriptions of runs, with limits of play and services of environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sparring.contracts.cases import Split
from sparring.contracts.command_line import SHOWN, OnCommandLine
from sparring.contracts.errors import InvalidInput

FORMAT = 1
Table = dict[str, Any]
_PYTHON = "(python) "


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on rollouts and tools. Deadlines are in seconds.

    `max_turns` limits the model calls between two user messages, `completion_tokens` everything
    after the first prompt, tool results included. Time spent waiting for a lockstep batch does not
    count against a deadline, so that results do not depend on the speed of the machine.
    """

    max_concurrency: int = 64
    max_turns: int = 6
    user_messages: int = 8
    completion_tokens: int = 1024
    rollout_timeout: float = 600.0
    result_tokens: int | None = None
    tool_timeout: float = 30.0
    tool_concurrency: int = 256
    tool_concurrency_by_name: Mapping[str, int] = field(default_factory=dict)
    tool_threads: int = 256
    hung_threads: int = 64


@dataclass(frozen=True, slots=True)
class Service:
    """A command to start, and the condition that shows it is ready.

    `{port}` in the command and in `ready_line` is replaced by a free port. A service is ready when
    it prints `ready_line`, when the path `ready_http` responds with success or, with neither set,
    when it accepts connections on the port. It must be ready within `seconds`.
    """

    name: str
    command: Sequence[str]
    ready_http: str | None = None
    ready_line: str | None = None
    seconds: float = 30.0

    def __post_init__(self) -> None:
        if isinstance(self.command, str) or not self.command:
            raise InvalidInput(
                f"service {self.name}: the command must be a list of strings, as in "
                "['python', 'server.py', '--port', '{port}']"
            )
        if self.ready_http is not None and self.ready_line is not None:
            raise InvalidInput(f"service {self.name}: give ready_http or ready_line, not both")
        if self.seconds <= 0:
            raise InvalidInput(f"service {self.name}: seconds must be above 0")

    def command_at(self, port: int) -> list[str]:
        """Return the command with `{port}` replaced."""
        return [str(part).replace("{port}", str(port)) for part in self.command]


def python_target(agent_name: str) -> str:
    """Return the target of a run started from Python, which has no environment file."""
    return f"{_PYTHON}{agent_name}"


def is_python_target(target: str) -> bool:
    """Return whether `python_target` made this target."""
    return target.startswith(_PYTHON)


def agent_of_target(target: str) -> str:
    """Return the agent's name in a target that `python_target` made."""
    return target.removeprefix(_PYTHON)


class Frozen(BaseModel):
    """Base of pydantic models: refuses unknown fields, and assignment to fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


# Variables of keys that are sent without being named, each to its own server only.
_KEYS_BY_HOST = {"api.openai.com": "OPENAI_API_KEY", "openrouter.ai": "OPENROUTER_API_KEY"}


def default_key_variable(base_url: str) -> str | None:
    """Return the variable of the key that a server gets if none is named; None for no key."""
    try:
        address = urlsplit(base_url)
    except ValueError:
        return None
    return _KEYS_BY_HOST.get(address.hostname or "") if address.scheme == "https" else None


class EndpointSpec(Frozen):
    """One OpenAI-compatible server. The key is in the environment variable `key_variable`, or in
    the file that `<key_variable>_FILE` names. By default, only OpenAI gets OPENAI_API_KEY, only
    OpenRouter gets OPENROUTER_API_KEY, and other servers get no key."""

    base_url: str
    model: str
    key_variable: str | None = Field(
        default_factory=lambda fields: default_key_variable(fields.get("base_url", ""))
    )
    weight: float = Field(default=1.0, gt=0)

    @field_validator("base_url")
    @classmethod
    def _carries_no_key(cls, url: str) -> str:
        """Refuse a user, a password or a query string, because specs are written to disk."""
        if "@" in url.partition("//")[2].partition("/")[0] or "?" in url:
            raise ValueError(
                "the address must not carry a user, a key or a query; set key_variable instead"
            )
        return url

    @field_validator("base_url")
    @classmethod
    def _has_a_scheme(cls, url: str) -> str:
        """Refuse an address without http:// or https://."""
        if not url.startswith(("http://", "https://")):
            host, _, path = url.rpartition("//")[2].partition("/")
            raise ValueError(
                f"{url!r} is not an HTTP address; write "
                f"http://{host or 'localhost:8000'}/{path or 'v1'}"
            )
        return url


class PolicySpec(Frozen):
    """The model to play: weights by name or folder, or servers."""

    kind: Literal["transformers", "endpoint", "vllm"] = "transformers"
    model: str | None = None
    endpoints: tuple[EndpointSpec, ...] = ()
    family: str | None = None
    thinking: Literal["auto", "on", "off"] = "auto"
    history_thinking: Literal["drop", "keep"] = "drop"
    dtype: str | None = None
    device: str | None = None


ROLLOUTS_AT_ONCE = 64


class PlaySettings(Frozen):
    """Settings of play. Settings that TRL also has use TRL's names."""

    model_config = ConfigDict(allow_inf_nan=False)

    num_generations: Annotated[int, OnCommandLine("--rollouts")] = Field(
        default=1, ge=1, description="rollouts per case"
    )
    temperature: Annotated[float, SHOWN] = Field(
        default=0.8, ge=0, le=10, description="sampling temperature"
    )
    max_completion_length: Annotated[int, SHOWN] = Field(
        default=1024, ge=1, description="tokens per rollout after the prompt, tool results included"
    )
    max_turns: Annotated[int, SHOWN] = Field(
        default=6,
        ge=1,
        description="calls of the model before the agent must have answered; each but the last "
        "may call tools",
    )
    thinking: Literal["auto", "on", "off"] = Field(
        default="auto", description="whether the model thinks, where its family has a switch"
    )
    history_thinking: Literal["drop", "keep"] = Field(
        default="drop",
        description="whether later prompts contain earlier thinking; chat clients drop it",
    )
    user_messages: int = Field(
        default=8, ge=0, description="maximum number of replies by the environment's user()"
    )
    max_tool_result_length: int | None = Field(
        default=None, ge=1, description="maximum tokens of a tool result; the rest is cut off"
    )
    max_concurrency: Annotated[int | None, SHOWN] = Field(
        default=None,
        ge=1,
        description="rollouts of one process in play at the same time; default: 64, or 256 per "
        "sampling server of a training",
    )
    kv_cache_memory: float = Field(
        default=1.0,
        ge=0,
        description="GiB for the key/value caches that rollouts keep between their turns, with "
        "in-process sampling",
    )
    tool_timeout: Annotated[float, SHOWN] = Field(
        default=30.0, gt=0, description="deadline of a tool call in seconds"
    )
    rollout_timeout: float = Field(default=600.0, gt=0)
    measure_timeout: float = Field(default=30.0, gt=0)
    unsandboxed: bool = Field(default=False, description="run code of the model without a sandbox")
    seed: Annotated[int, SHOWN] = Field(default=0, description="seed of the run")

    @property
    def rollouts_at_once(self) -> int:
        """`max_concurrency`, or its default."""
        return self.max_concurrency or ROLLOUTS_AT_ONCE

    def limits(self) -> Limits:
        """Return the player's limits."""
        return Limits(
            max_concurrency=self.rollouts_at_once,
            max_turns=self.max_turns,
            user_messages=self.user_messages,
            result_tokens=self.max_tool_result_length,
            completion_tokens=self.max_completion_length,
            rollout_timeout=self.rollout_timeout,
            tool_timeout=self.tool_timeout,
        )


COMMAND = "the command"  # the source of a setting that the command or request sets


LOCAL = "local"  # the launcher that starts a run's processes on this machine


class Supervision(Frozen):
    """Supervision of a run: its launcher, its restarts, and when it counts as hung."""

    launcher: Annotated[str, SHOWN] = Field(
        default=LOCAL,
        description="launcher of the processes: local, slurm, manual (you start them), or a "
        "plugin's",
    )
    slurm: Table = Field(
        default_factory=dict, description="options of sbatch, as in slurm.partition=gpu"
    )
    restarts: int = Field(
        default=3, ge=0, description="restarts without a new checkpoint before the run fails"
    )
    hang_timeout: float = Field(
        default=900.0, gt=0, description="seconds without progress after which the run is hung"
    )
    start_timeout: float = Field(
        default=3600.0,
        gt=0,
        description="replaces hang_timeout while the run loads or downloads its model",
    )
    stop_timeout: float = Field(
        default=600.0,
        gt=0,
        description="seconds that a stop may take before the processes are killed",
    )


class RunSpec(Frozen):
    """The fields that the specs of all kinds of run share."""

    kind: str
    format: int = FORMAT
    target: str = Field(description="FILE:NAME of the environment")
    environment: str = Field(default="", description="name of the environment")
    config: Table = Field(default_factory=dict, description="fields of the environment's config")
    policy: PolicySpec = PolicySpec()
    sources: dict[str, str] = Field(
        default_factory=dict,
        description="the source of each setting that differs from its default",
    )
    locks: dict[str, str] = Field(
        default_factory=dict, description="the source of each lock, by the name of its setting"
    )
    services: tuple[Service, ...] = Field(
        default=(), description="processes that the environment's tools need"
    )
    supervision: Supervision = Supervision()
    hours: float | None = Field(
        default=None, gt=0, description="hours after which the run is stopped"
    )
    code_digest: str = ""
    code_files: dict[str, str] = Field(
        default_factory=dict, description="digests of the environment's source files"
    )
    after: str = Field(default="", description="id of a run that must complete first")
    plan: str = Field(default="", description="id of the plan that started the run")
    measures: dict[str, float] = Field(
        default_factory=dict, description="weights by measure, of a run started from Python"
    )

    @property
    def play_settings(self) -> PlaySettings:
        """How rollouts are played."""
        return PlaySettings()

    @property
    def reads_cases_apart(self) -> bool:
        """Whether another process reads the cases and passes on only training and validation cases,
        so that held-out cases never enter the process of the run."""
        return True

    @property
    def is_from_python(self) -> bool:
        """Whether the run was started from Python, with objects that only that process holds."""
        return is_python_target(self.target)

    @property
    def optimizer_steps(self) -> int | None:
        """Maximum number of optimizer steps; None if the spec sets no limit."""
        return 0

    @property
    def max_rollouts(self) -> int | None:
        """Maximum number of rollouts; None if the spec sets no limit."""
        return 0


class PlaySpec(RunSpec):
    """The fields shared by the specs of runs that play or judge, and train nothing."""

    play: PlaySettings = PlaySettings()

    @property
    def play_settings(self) -> PlaySettings:
        """How rollouts are played and judged."""
        return self.play


class EvalSpec(PlaySpec):
    """One evaluation of one environment."""

    kind: Literal["eval"] = "eval"
    split: Split = Split.VALIDATION
    cases: int | None = Field(default=None, ge=1, description="maximum number of cases")

    @property
    def reads_cases_apart(self) -> bool:
        """Whether no held-out cases are played."""
        return self.split is not Split.HELD_OUT

    @property
    def max_rollouts(self) -> int | None:
        """Rollouts of all cases; None without a maximum number of cases."""
        return None if self.cases is None else self.cases * self.play.num_generations
