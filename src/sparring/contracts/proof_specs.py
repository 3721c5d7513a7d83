"""Specs of checks, audits and proofs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from sparring.contracts.cases import Split
from sparring.contracts.specs import EndpointSpec, PlaySettings, PolicySpec, RunSpec
from sparring.contracts.training import TrainSettings


class AuditSpec(RunSpec):
    """An audit of an environment's measures, without a model."""

    kind: Literal["audit"] = "audit"
    cases: int = Field(default=8, ge=2, le=1000, description="cases that the null players answer")
    play: PlaySettings = PlaySettings()

    @property
    def play_settings(self) -> PlaySettings:
        """How answers are judged."""
        return self.play


class CheckSpec(RunSpec):
    """A check of an environment before training. `settings` are those of the planned training."""

    kind: Literal["check"] = "check"
    settings: TrainSettings = TrainSettings()
    processes: int = Field(default=1, ge=1)
    nodes: int = Field(default=1, ge=1)
    cases: int = Field(
        default=12, ge=2, le=1000, description="cases that the model to be trained plays"
    )
    rollouts: int = Field(default=16, ge=2, le=256, description="rollouts of each case")
    others: tuple[EndpointSpec, ...] = Field(
        default=(), description="further models to compare with"
    )
    other_cases: int = Field(
        default=3, ge=1, le=1000, description="cases that each further model plays"
    )
    minutes: float = Field(default=10.0, gt=0, description="maximum minutes for each model")
    dry_steps: int = Field(
        default=2, ge=0, le=20, description="optimizer steps that are measured and discarded"
    )
    price_per_hour: float | None = Field(
        default=None, gt=0, description="price of one machine per hour"
    )

    @property
    def play_settings(self) -> PlaySettings:
        """How rollouts are played: as in the planned training."""
        return self.settings

    @property
    def world_size(self) -> int:
        """Processes of the planned training, on all hosts."""
        return self.processes * self.nodes

    @property
    def optimizer_steps(self) -> int | None:
        """The number of dry steps."""
        return self.dry_steps

    @property
    def max_rollouts(self) -> int | None:
        """Rollouts of all models, of the timed group and of the dry steps. On a GPU there is one
        more dry step. Replacement groups are counted, although dry steps play none: the estimate
        depends on their number."""
        played = self.rollouts * (self.cases + self.other_cases * len(self.others))
        steps = self.dry_steps + 1 if self.dry_steps else 0
        learned_from = self.settings.most_learned_from(steps, 1)
        return played + self.settings.num_generations + learned_from


class ProveSpec(RunSpec):
    """A proof: base and trained model on the same cases. `policy` is the trained model."""

    kind: Literal["prove"] = "prove"
    run: str = Field(description="id of the training run to prove")
    checkpoint: str = Field(default="", description="checkpoint to prove; empty: the best")
    base: PolicySpec = PolicySpec()
    split: Split = Split.HELD_OUT
    cases: int | None = Field(default=None, ge=1, description="maximum number of cases")
    rollouts: int = Field(
        default=4, ge=1, le=256, description="rollouts of each case by each model"
    )
    play: PlaySettings = PlaySettings()
    picked_from: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="number of candidates that this one was picked from, on these cases",
    )
    also: str = Field(
        default="", description="FILE:NAME of a second environment that must not get worse"
    )
    also_environment: str = ""

    @property
    def play_settings(self) -> PlaySettings:
        """How rollouts are played."""
        return self.play

    @property
    def reads_cases_apart(self) -> bool:
        """False: a proof trains nothing, so it may read held-out cases."""
        return False

    @property
    def max_rollouts(self) -> int | None:
        """Rollouts of both models on one suite or two; None without a maximum number of cases."""
        suites = 2 if self.also else 1
        return None if self.cases is None else 2 * suites * self.rollouts * self.cases

    @field_validator("split")
    @classmethod
    def _proves_something(cls, split: Split) -> Split:
        if split is Split.TRAINING:
            raise ValueError(
                "training cases prove nothing: the model has learned from them; use held-out or "
                "validation"
            )
        return split


OPENROUTER = "https://openrouter.ai/api/v1"
OPENROUTER_KEY = "OPENROUTER_API_KEY"
# A small, a medium and a large model.
OPENROUTER_MODELS = ("qwen/qwen3-8b", "qwen/qwen3-32b", "qwen/qwen3-235b-a22b-2507")
