"""The frozen description that a run is started from."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sparring.contracts.cases import Split
from sparring.contracts.limits import Limits
from sparring.contracts.services import Service

FORMAT = 1
Table = dict[str, Any]


class Frozen(BaseModel):
    """An edge of the system: unknown fields are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class EndpointSpec(Frozen):
    """One OpenAI-compatible server. The key itself stays in the environment."""

    base_url: str
    model: str
    key_variable: str = "OPENAI_API_KEY"
    weight: float = Field(default=1.0, gt=0)

    @field_validator("base_url")
    @classmethod
    def _carries_no_key(cls, url: str) -> str:
        """A spec is written to disk, so a key in the address would be too."""
        if "@" in url.partition("//")[2].partition("/")[0]:
            raise ValueError("the address must not carry a user or key; set key_variable instead")
        return url


class PolicySpec(Frozen):
    """Who answers for the model: weights by name or folder, or servers."""

    kind: Literal["transformers", "endpoint", "vllm"] = "transformers"
    model: str | None = None
    endpoints: tuple[EndpointSpec, ...] = ()
    family: str | None = None
    dtype: str | None = None
    device: str | None = None


class PlaySettings(Frozen):
    """How rollouts are played. Names follow TRL where TRL has them."""

    model_config = ConfigDict(allow_inf_nan=False)

    num_generations: int = Field(default=1, ge=1, description="rollouts per case")
    temperature: float = Field(default=0.8, ge=0, le=10)
    max_completion_length: int = Field(default=1024, ge=1)
    tool_rounds: int = Field(default=5, ge=0)
    in_flight: int = Field(default=64, ge=1)
    tool_seconds: float = Field(default=30.0, gt=0)
    rollout_seconds: float = Field(default=600.0, gt=0)
    measure_seconds: float = Field(default=30.0, gt=0)
    unsandboxed: bool = Field(
        default=False, description="run code that the model wrote without a sandbox"
    )
    seed: int = 0

    def limits(self) -> Limits:
        """What the player is held to."""
        return Limits(
            in_flight=self.in_flight,
            tool_rounds=self.tool_rounds,
            completion_tokens=self.max_completion_length,
            rollout_seconds=self.rollout_seconds,
            tool_seconds=self.tool_seconds,
        )


class Supervision(Frozen):
    """How a run is looked after: what starts it, when it is hung, how often it is tried again."""

    launcher: Literal["local", "slurm"] = Field(
        default="local", description="what starts the processes: this machine, or Slurm"
    )
    slurm: Table = Field(
        default_factory=dict, description="options of sbatch, as in slurm.partition=gpu"
    )
    restarts: int = Field(
        default=3, ge=0, description="times it is started again without a new checkpoint between"
    )
    hung_seconds: float = Field(
        default=900.0, gt=0, description="without progress for so long it is taken for hung"
    )
    start_seconds: float = Field(
        default=3600.0, gt=0, description="the same while it loads, which may download a model"
    )
    stop_seconds: float = Field(
        default=600.0, gt=0, description="what a stop may take; then the processes are ended"
    )


class RunSpec(Frozen):
    """What runs of every kind are started from."""

    kind: str
    format: int = FORMAT
    target: str = Field(description="FILE:NAME of the environment")
    environment: str = Field(default="", description="its name")
    config: Table = Field(default_factory=dict, description="fields of the environment's config")
    policy: PolicySpec = PolicySpec()
    sources: dict[str, str] = Field(
        default_factory=dict, description="where each setting that is no default came from"
    )
    locks: dict[str, str] = Field(
        default_factory=dict, description="who has fixed a setting, by its name"
    )
    services: tuple[Service, ...] = Field(
        default=(), description="processes that the environment's tools need beside them"
    )
    supervision: Supervision = Supervision()
    hours: float | None = Field(default=None, gt=0, description="it is stopped after so many")
    code_digest: str = ""
    after: str = Field(default="", description="a run that must be completed before this begins")
    plan: str = Field(default="", description="the plan that it was started from")
    measures: dict[str, float] = Field(
        default_factory=dict, description="names and weights, for a run started from Python"
    )


class EvalSpec(RunSpec):
    """One evaluation of one environment."""

    kind: Literal["eval"] = "eval"
    split: Split = Split.VALIDATION
    cases: int | None = Field(default=None, ge=1, description="at most so many cases")
    play: PlaySettings = PlaySettings()
