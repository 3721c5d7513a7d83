"""The kinds of run, and the specs of audits, checks, proofs and shipments.

Each kind is one entry of `KINDS`, which both planes read. A new kind is one entry here, its spec,
and what each plane finds by the kind's name: its job in `sparring.jobs.<kind>`, and its view on the
command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput
from sparring.contracts.specs import (
    EndpointSpec,
    EvalSpec,
    PlaySettings,
    PlaySpec,
    PolicySpec,
    RunSpec,
)
from sparring.contracts.summaries import (
    AuditSummary,
    CheckSummary,
    EvalSummary,
    ProveSummary,
    ShipSummary,
    Summary,
    TrainSummary,
)
from sparring.contracts.training import TrainSettings, TrainSpec

QUANTIZATIONS = (
    "f32", "f16", "q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_k_s", "q4_0", "q3_k_m", "q2_k",
)  # fmt: skip


class AuditSpec(PlaySpec):
    """An audit of an environment's measures, without a model."""

    kind: Literal["audit"] = "audit"
    cases: int = Field(default=8, ge=2, le=1000, description="cases that the null players answer")


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


class ProveSpec(PlaySpec):
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


class Form(StrEnum):
    """A form in which a trained model is shipped."""

    ADAPTER = "adapter"
    MERGED = "merged"
    GGUF = "gguf"
    OLLAMA = "ollama"


class ShipSpec(PlaySpec):
    """A shipment. `policy` is the model that the training started from."""

    kind: Literal["ship"] = "ship"
    run: str = Field(description="id of the training run to ship")
    checkpoint: str = Field(default="", description="checkpoint to ship; empty: the proved one")
    proof: str = Field(default="", description="the proof of the checkpoint; empty if unproven")
    base: PolicySpec = PolicySpec()
    to: str = Field(description="folder to write; it must not exist")
    trial: bool = Field(
        default=False, description="ship nothing: the files are played, then removed"
    )
    forms: tuple[Form, ...] = Field(
        default=(), description="empty: adapter, merged and gguf, as far as packages are installed"
    )
    quantizations: tuple[str, ...] = Field(
        default=("q8_0",), description="quantizations of the GGUF files"
    )
    compare: bool = Field(
        default=False, description="choose the smallest GGUF file that is equal to the checkpoint"
    )
    cases: int | None = Field(
        default=200, ge=0, description="maximum number of held-out cases; 0 plays none"
    )
    rollouts: int = Field(default=1, ge=1, le=256, description="rollouts of each case")
    validation_cases: int = Field(
        default=24, ge=0, le=1000, description="validation cases that checkpoint and files play"
    )
    margin: float = Field(
        default=0.05, gt=0, lt=1, description="largest loss of mean reward that counts as equal"
    )
    name: str = Field(default="", description="the model's name on servers")
    llama_cpp: str = Field(default="", description="folder of llama.cpp; empty: search for it")
    vllm: bool = Field(
        default=False, description="also play the merged model and the adapter on vLLM"
    )
    hub: str = Field(default="", description="repository to upload to, as in me/my-model")
    upload: bool = Field(default=False, description="upload the files; otherwise only list them")
    register_with_ollama: bool = Field(default=False, description="create the model in Ollama")

    @property
    def reads_cases_apart(self) -> bool:
        """False: a shipment trains nothing, so it may read held-out cases."""
        return False

    @property
    def max_rollouts(self) -> int | None:
        """Rollouts on held-out cases, and of checkpoint and files on validation cases."""
        if self.cases is None:
            return None
        plays = self.max_validation_plays * self.validation_cases
        return self.cases * (2 + self.rollouts) + plays

    @property
    def max_validation_plays(self) -> int:
        """How often the validation cases are played: once by the checkpoint, once more by it
        without worked examples, once by each artefact, and once more on each other server."""
        forms = self.forms or (Form.ADAPTER, Form.MERGED, Form.GGUF)
        folders = sum(form in (Form.ADAPTER, Form.MERGED) for form in forms)
        files = len(self.quantizations) if {Form.GGUF, Form.OLLAMA} & set(forms) else 0
        return 2 + folders * (2 if self.vllm else 1) + files + self.register_with_ollama


@dataclass(frozen=True, slots=True)
class RunKind:
    """The properties of one kind of run."""

    name: str
    spec: type[RunSpec]
    summary: type[Summary]
    id_prefix: str = ""
    budget_settings: str = ""
    steps_setting: str = "max_steps"
    plays_held_out: bool = False
    has_metrics: bool = False


KINDS: Mapping[str, RunKind] = {
    kind.name: kind
    for kind in (
        RunKind(
            name="train",
            spec=TrainSpec,
            summary=TrainSummary,
            budget_settings="max_steps, replacement_groups or validation_cases",
            has_metrics=True,
        ),
        RunKind(
            name="eval",
            spec=EvalSpec,
            summary=EvalSummary,
            budget_settings="cases",
            plays_held_out=True,
        ),
        RunKind(
            name="check",
            spec=CheckSpec,
            summary=CheckSummary,
            id_prefix="check-",
            budget_settings="cases, rollouts, dry_steps or num_generations",
            steps_setting="dry_steps",
        ),
        RunKind(
            name="audit",
            spec=AuditSpec,
            summary=AuditSummary,
            id_prefix="audit-",
        ),
        RunKind(
            name="prove",
            spec=ProveSpec,
            summary=ProveSummary,
            id_prefix="proof-",
            budget_settings="cases or rollouts",
            plays_held_out=True,
        ),
        RunKind(
            name="ship",
            spec=ShipSpec,
            summary=ShipSummary,
            id_prefix="ship-",
            budget_settings="cases, rollouts or validation_cases",
            plays_held_out=True,
        ),
    )
}


def run_kind(name: str, place: Path | str) -> RunKind:
    """Return the kind called `name`. The error names `place`, the source of the name."""
    if (kind := KINDS.get(name)) is None:
        known = ", ".join(sorted(KINDS))
        raise InvalidInput(f"{place}: kind is {name!r}; this version knows {known}")
    return kind
