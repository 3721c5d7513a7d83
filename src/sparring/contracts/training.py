"""What a training run is started from.

Settings are spelled as TRL spells them, where TRL has them. What counts as a batch is said
here, once: `cases_per_batch` cases x `num_generations` rollouts are the rows of one pass
through the model, `gradient_accumulation_steps` passes make one optimizer step, and every
process does as much.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from sparring.contracts.guards import Guards
from sparring.contracts.specs import Frozen, PlaySettings, RunSpec, Table

Normalization = Literal["selected_tokens", "sequence_mean", "seq_mean_token_sum_norm"]


class WarmStart(Frozen):
    """Supervised fine-tuning before the first step, on what others have shown."""

    source: str = Field(
        min_length=1,
        description="a JSONL file of demonstrations, or a run whose passing rollouts are taken",
    )
    num_train_epochs: float = Field(default=3.0, gt=0, description="passes over them")
    learning_rate: float | None = Field(
        default=None, gt=0, description="by default that of the run"
    )
    batch_size: int = Field(default=8, ge=1, description="demonstrations per optimizer step")


class TrainSettings(PlaySettings):
    """How a model learns. Tables (`lora`, `quantization`, `vllm`, `engine`) take the rest."""

    num_train_epochs: float = Field(default=1.0, gt=0, description="passes over the cases")
    max_steps: int | None = Field(
        default=None, ge=1, description="optimizer steps; goes before epochs"
    )
    cases_per_batch: int = Field(default=2, ge=1, description="cases in one pass, per process")
    gradient_accumulation_steps: int = Field(default=2, ge=1, description="passes per step")
    per_device_train_batch_size: int | None = Field(
        default=None, ge=1, description="rows in one pass at most; a step's rows stay the same"
    )
    pass_memory: float | None = Field(
        default=None,
        gt=0,
        description="GiB that one pass may take; rows per pass follow. By default 60 % of what is "
        "free, and at most 2 on a CPU",
    )
    num_generations: int = Field(default=4, ge=2, description="rollouts per case")
    replacement_groups: int | None = Field(
        default=None,
        ge=0,
        description="groups played at most, per step and process, in place of those that teach "
        "nothing; by default as many as the step has",
    )
    draw_by_difficulty: bool = Field(
        default=True, description="draw cases less often whose groups taught nothing"
    )
    warm_start: WarmStart | None = Field(
        default=None, description="learn from demonstrations first; a path or run is enough"
    )
    learning_rate: float | None = Field(
        default=None, gt=0, description="by default 1e-5, and 1e-4 with LoRA"
    )
    max_grad_norm: float = Field(default=1.0, ge=0)
    beta: float = Field(default=0.0, ge=0, description="weight of the KL to the first model")
    world_model_coefficient: float = Field(
        default=0.0, ge=0, description="weight of ECHO's loss on what tools answer; 0.05 is usual"
    )
    world_model_normalization: Normalization = Field(
        default="selected_tokens", description="what counts the same: tokens, or rollouts"
    )
    temperature: float = Field(default=0.8, gt=0, le=10)
    top_p: float = 1.0
    mask_truncated_completions: bool = True
    gradient_checkpointing: bool = False
    share_prompts: bool = Field(
        default=True, description="compute a prompt once for all rollouts of an update that have it"
    )
    dtype: Literal["auto", "bfloat16", "float32"] = Field(
        default="auto", description="auto: bfloat16 on a GPU, float32 on a CPU"
    )
    device: str | None = None
    lora: bool | Table = Field(default=False, description="adapters: True, or PEFT's LoraConfig")
    quantization: bool | Table = Field(
        default=False, description="4-bit base (QLoRA): True, or BitsAndBytesConfig; implies LoRA"
    )
    vllm: Literal[False, "colocate", "server"] | Table = Field(
        default=False, description="sample with vLLM: a mode, or TRL's vllm_* fields without vllm_"
    )
    engine: Table = Field(default_factory=dict, description="further fields of TRL's GRPOConfig")
    guards: Guards = Field(
        default=Guards(), description="what stops a run that cannot get anywhere"
    )
    checkpoint_steps: int = Field(default=50, ge=1, description="steps between checkpoints")
    checkpoints_kept: int = Field(default=2, ge=1, description="the newest so many, and the best")
    validation_cases: int | None = Field(
        default=None, ge=0, description="played before each checkpoint; by default up to 64"
    )
    logging_steps: int = Field(default=1, ge=1)
    report_to: tuple[str, ...] = Field(default=(), description="trackio, wandb, mlflow, …")
    project: str | None = Field(default=None, description="project of the tracker")
    entity: str | None = Field(default=None, description="team or user, for W&B")
    run_name: str | None = Field(default=None, description="by default the run's id")

    @field_validator("report_to", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        named = [value] if isinstance(value, str) else value or ()
        if not isinstance(named, list | tuple):
            return named  # refused by its type
        return tuple(name for name in named if name != "none")

    @field_validator("warm_start", mode="before")
    @classmethod
    def _from_a_source(cls, value: Any) -> Any:
        return {"source": value} if isinstance(value, str) else value

    @field_validator("top_p")
    @classmethod
    def _samples_by_temperature_only(cls, value: float) -> float:
        if value != 1.0:
            raise ValueError(
                "training samples by temperature only: under top_p the sampled distribution is "
                "another than the one whose log-probabilities are learned from; leave it at 1"
            )
        return value

    @property
    def adapters(self) -> Table | None:
        """The LoRA table in force; a 4-bit base can only be trained by adapters."""
        if self.lora is False and not self.quantization:
            return None
        return dict(self.lora) if isinstance(self.lora, dict) else {}

    @property
    def learns_results(self) -> bool:
        """Whether what tools answer is learned, too (ECHO)."""
        return self.world_model_coefficient > 0

    @property
    def rate(self) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        return 1e-5 if self.adapters is None else 1e-4


class TrainSpec(RunSpec):
    """One training of one environment."""

    kind: Literal["train"] = "train"
    settings: TrainSettings = TrainSettings()
    processes: int = Field(default=1, ge=1, description="processes on each host")
    nodes: int = Field(default=1, ge=1, description="hosts")
    rendezvous: str | None = Field(default=None, description="HOST:PORT that all hosts reach")

    @model_validator(mode="after")
    def _hosts_can_meet(self) -> TrainSpec:
        is_placed = self.supervision.launcher != "local"  # who places them knows where they are
        if self.nodes > 1 and not self.rendezvous and not is_placed:
            raise ValueError("several hosts need a rendezvous address: HOST:PORT of one of them")
        return self

    @property
    def world_size(self) -> int:
        return self.processes * self.nodes
