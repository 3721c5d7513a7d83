"""What runs that look before and after are started from: check, audit, prove."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from sparring.contracts.cases import Split
from sparring.contracts.specs import EndpointSpec, PlaySettings, PolicySpec, RunSpec
from sparring.contracts.training import TrainSettings


class AuditSpec(RunSpec):
    """An audit of an environment's measures. No model is played."""

    kind: Literal["audit"] = "audit"
    cases: int = Field(default=8, ge=2, le=1000, description="cases that null players answer")
    play: PlaySettings = PlaySettings()


class CheckSpec(RunSpec):
    """A look at an environment before it is trained on. `settings` are those of the training
    that is planned."""

    kind: Literal["check"] = "check"
    settings: TrainSettings = TrainSettings()
    processes: int = Field(default=1, ge=1)
    nodes: int = Field(default=1, ge=1)
    cases: int = Field(default=12, ge=2, le=1000, description="that the model to be trained plays")
    rollouts: int = Field(default=16, ge=2, le=256, description="of each case")
    others: tuple[EndpointSpec, ...] = Field(default=(), description="models that play it, too")
    other_cases: int = Field(default=3, ge=1, le=1000, description="that each of them plays")
    minutes: float = Field(default=10.0, gt=0, description="for each model")
    dry_steps: int = Field(default=2, ge=0, le=20, description="thrown away, to see what they take")
    price_per_hour: float | None = Field(default=None, gt=0, description="of the machine")


class ProveSpec(RunSpec):
    """A proof: base and trained on the same cases. `policy` is the trained one."""

    kind: Literal["prove"] = "prove"
    run: str = Field(description="the training whose weights are proved")
    checkpoint: str = Field(default="", description="which one; empty: the best, once it is there")
    base: PolicySpec = PolicySpec()
    split: Split = Split.HELD_OUT
    cases: int | None = Field(default=None, ge=1, description="at most so many")
    rollouts: int = Field(default=4, ge=1, le=256, description="of each case, by each of the two")
    play: PlaySettings = PlaySettings()
    picked_from: int = Field(
        default=1, ge=1, le=1000, description="candidates compared on these cases"
    )
    also: str = Field(default="", description="FILE:NAME of a second suite that must not suffer")
    also_environment: str = ""

    @field_validator("split")
    @classmethod
    def _proves_something(cls, split: Split) -> Split:
        if split is Split.TRAINING:
            raise ValueError(
                "training cases are what it learned from, and prove nothing; take held-out, or "
                "validation"
            )
        return split


# OpenRouter's names of a small, a medium and a large model.
OPENROUTER = "https://openrouter.ai/api/v1"
OPENROUTER_KEY = "OPENROUTER_API_KEY"
OPENROUTER_MODELS = ("qwen/qwen3-8b", "qwen/qwen3-32b", "qwen/qwen3-235b-a22b-2507")
