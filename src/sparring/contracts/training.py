"""The spec and the settings of a training run.

Settings that TRL also has use TRL's names. In one optimizer step, each process plays
`cases_per_batch` × `gradient_accumulation_steps` cases with `num_generations` rollouts each. The
rows of a batch go through the model in one pass, or in several that fit into memory.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from sparring.contracts.command_line import ROLLOUTS, SHOWN
from sparring.contracts.guards import Guards
from sparring.contracts.sampling import SamplingServers, as_table
from sparring.contracts.specs import Frozen, PlaySettings, RunSpec, Table

Normalization = Literal["selected_tokens", "sequence_mean", "seq_mean_token_sum_norm"]
_VALIDATION_CASES = 64  # played before each checkpoint by default


ROLLOUTS_PER_SERVER = 256  # vLLM's default limit on GPUs below 70 GB; larger GPUs take more


class WarmStart(Frozen):
    """Supervised fine-tuning on demonstrations before the first step."""

    source: str = Field(
        min_length=1,
        description="a JSONL file of demonstrations, or a run whose passing rollouts are used",
    )
    num_train_epochs: float = Field(default=3.0, gt=0, description="passes over the demonstrations")
    learning_rate: float | None = Field(default=None, gt=0, description="default: the run's")
    batch_size: int = Field(
        default=8, ge=1, description="rows per optimizer step, divided among the processes"
    )


class TrainSettings(PlaySettings):
    """Settings of training. `lora`, `quantization` and `engine` take tables of options."""

    num_train_epochs: float = Field(default=1.0, gt=0, description="passes over the cases")
    max_steps: Annotated[int | None, SHOWN] = Field(
        default=None,
        ge=1,
        description="optimizer steps, in place of num_train_epochs; default: one pass over the "
        "cases",
    )
    cases_per_batch: Annotated[int, SHOWN] = Field(
        default=2, ge=1, description="cases in one batch, per process"
    )
    gradient_accumulation_steps: Annotated[int, SHOWN] = Field(
        default=2, ge=1, description="batches in one optimizer step"
    )
    per_device_train_batch_size: int | None = Field(
        default=None, ge=1, description="maximum rows in one pass; does not change the step's rows"
    )
    pass_memory: float | None = Field(
        default=None,
        gt=0,
        description="GiB that one pass may use; sets the rows per pass. Default: 60 % of the free "
        "memory, at most 2 on a CPU",
    )
    num_generations: Annotated[int, ROLLOUTS] = Field(
        default=4, ge=2, description="rollouts per case"
    )
    replacement_groups: int | None = Field(
        default=None,
        ge=0,
        description="maximum number of groups, per step and process, that replace groups without "
        "a gradient; default: as many as the step has",
    )
    draw_by_difficulty: bool = Field(
        default=True, description="draw cases whose groups had no gradient less often"
    )
    warm_start: Annotated[WarmStart | None, SHOWN] = Field(
        default=None,
        description="train on demonstrations first: a JSONL file, a run with passing rollouts, "
        "or a table",
    )
    learning_rate: Annotated[float | None, SHOWN] = Field(
        default=None, gt=0, description="learning rate; default: 1e-5, or 1e-4 with LoRA"
    )
    max_grad_norm: float = Field(default=1.0, ge=0)
    beta: float = Field(
        default=0.0, ge=0, description="weight of the KL divergence from the initial model"
    )
    world_model_coefficient: float = Field(
        default=0.0, ge=0, description="weight of ECHO's loss on tool results; 0.05 is usual"
    )
    world_model_normalization: Normalization = Field(
        default="selected_tokens",
        description="divisor of that loss: all tokens, tokens per rollout, or a fixed length",
    )
    temperature: Annotated[float, SHOWN] = Field(
        default=0.8, gt=0, le=10, description="sampling temperature"
    )
    mask_truncated_completions: bool = True
    gradient_checkpointing: bool = False
    train_agents: tuple[str, ...] = Field(
        default=(),
        description="names of the agents to train; the others only play; default: all",
    )
    share_prompts: bool = Field(
        default=True,
        description="compute a prompt once for all rollouts of an update that share it",
    )
    dtype: Literal["auto", "bfloat16", "float32"] = Field(
        default="auto", description="auto: bfloat16 on a GPU, float32 on a CPU"
    )
    device: str | None = None
    lora: Annotated[bool | Table, SHOWN] = Field(
        default=False, description="train adapters (LoRA): True, or a table for PEFT's LoraConfig"
    )
    quantization: bool | Table = Field(
        default=False,
        description="4-bit base (QLoRA): True, or a table for BitsAndBytesConfig; implies LoRA",
    )
    sampling: Annotated[SamplingServers | None, SHOWN] = Field(
        default=None,
        description="sample with vLLM servers: the number to start, their addresses, as in "
        "http://HOST:PORT,http://HOST:PORT, `joined` for those that join, or a table",
    )
    players: int = Field(
        default=0,
        ge=0,
        description="processes that play and judge for the ranks; needs sampling servers",
    )
    max_staleness: int = Field(
        default=0,
        ge=0,
        le=4,
        description="number of steps to play ahead while the weights are updated; needs sampling "
        "servers and an adapter. 0 plays every step with the current weights",
    )
    engine: Table = Field(default_factory=dict, description="further fields of TRL's GRPOConfig")
    guards: Guards = Field(
        default=Guards(), description="conditions that warn about or stop a run that cannot improve"
    )
    checkpoint_steps: Annotated[int, SHOWN] = Field(
        default=50, ge=1, description="steps between checkpoints"
    )
    checkpoints_kept: int = Field(
        default=2, ge=1, description="number of newest checkpoints to keep, besides the best"
    )
    validation_cases: Annotated[int | None, SHOWN] = Field(
        default=None,
        ge=0,
        description="cases played before each checkpoint; 0 for none; default: up to 64",
    )
    logging_steps: int = Field(default=1, ge=1)
    report_to: Annotated[tuple[str, ...], SHOWN] = Field(
        default=(), description="trackers: tensorboard, trackio, wandb or mlflow"
    )
    project: str | None = Field(default=None, description="the tracker's project")
    entity: str | None = Field(default=None, description="team or user, for W&B")
    run_name: str | None = Field(default=None, description="default: the run's id")

    @property
    def rollouts_at_once(self) -> int:
        """`in_flight`, or its default: 256 per sampling server, or 64 without servers."""
        if self.in_flight is None and self.sampling is not None:
            return ROLLOUTS_PER_SERVER * self.sampling.least_servers
        return super().rollouts_at_once

    @field_validator("report_to", "train_agents", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        named = [value] if isinstance(value, str) else value or ()
        if not isinstance(named, list | tuple):
            return named  # pydantic refuses its type
        return tuple(name for name in named if name != "none")

    @field_validator("warm_start", mode="before")
    @classmethod
    def _from_a_source(cls, value: Any) -> Any:
        return {"source": value} if isinstance(value, str) else value

    @field_validator("sampling", mode="before")
    @classmethod
    def _from_short_forms(cls, value: Any) -> Any:
        return as_table(value)

    @model_validator(mode="after")
    def _has_a_sampler_that_fits(self) -> TrainSettings:
        if self.sampling is not None and self.quantization:
            raise ValueError(
                "sampling servers load the base without quantization: unset sampling or "
                "quantization"
            )
        if self.players and self.sampling is None:
            raise ValueError("players sample from servers: set sampling, too")
        self._can_be_played_ahead()
        return self

    def _can_be_played_ahead(self) -> None:
        if not self.max_staleness:
            return
        if self.sampling is None:
            raise ValueError(
                "max_staleness needs sampling servers: weights in this process cannot sample while "
                "they are updated; set sampling (--sampling 1), or max_staleness to 0"
            )
        if self.sampling.number_started and self.adapters is None:
            raise ValueError(
                "max_staleness needs an adapter: a sampling server holds several adapters, but "
                "only one version of whole weights; set lora=True (--lora), or max_staleness to 0"
            )
        if self.engine.get("vllm_importance_sampling_correction") is False:
            raise ValueError(
                "max_staleness needs importance weights, which correct for older weights: leave "
                "engine.vllm_importance_sampling_correction out, or set max_staleness to 0"
            )

    @property
    def adapters(self) -> Table | None:
        """The LoRA table in effect; None for a full fine-tune. Quantization implies LoRA."""
        if self.lora is False and not self.quantization:
            return None
        return dict(self.lora) if isinstance(self.lora, dict) else {}

    @property
    def learns_results(self) -> bool:
        """Whether the loss includes tool results (ECHO)."""
        return self.world_model_coefficient > 0

    @property
    def rate(self) -> float:
        """The learning rate in effect."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 1e-5 if self.adapters is None else 1e-4

    @property
    def most_validation_cases(self) -> int:
        """Maximum number of cases in one validation."""
        return _VALIDATION_CASES if self.validation_cases is None else self.validation_cases

    def rollouts_per_step(self, world_size: int) -> int:
        """Return the number of rollouts in one optimizer step, over all ranks."""
        groups = self.cases_per_batch * self.gradient_accumulation_steps
        return world_size * groups * self.num_generations

    def most_learned_from(self, steps: int, world_size: int) -> int:
        """Return the maximum number of rollouts in `steps` steps, replacement groups included."""
        groups = self.cases_per_batch * self.gradient_accumulation_steps
        replaced = groups if self.replacement_groups is None else self.replacement_groups
        return steps * world_size * (groups + replaced) * self.num_generations

    def most_validated(self, steps: int) -> int:
        """Return the maximum number of validation rollouts, including those at start and end."""
        return self.most_validation_cases * (steps // self.checkpoint_steps + 2)


class TrainSpec(RunSpec):
    """One training of one environment."""

    kind: Literal["train"] = "train"
    settings: TrainSettings = TrainSettings()
    processes: int = Field(default=1, ge=1, description="processes on each host")
    nodes: int = Field(default=1, ge=1, description="hosts")
    rendezvous: str | None = Field(default=None, description="HOST:PORT that all hosts reach")

    @model_validator(mode="after")
    def _hosts_can_meet(self) -> TrainSpec:
        is_placed = self.supervision.launcher != "local"  # a scheduler knows where the hosts are
        if self.nodes > 1 and not self.rendezvous and not is_placed:
            raise ValueError("several hosts need a rendezvous address: HOST:PORT of one of them")
        if self.rendezvous and not re.fullmatch(r".+:\d{1,5}", self.rendezvous):
            raise ValueError(f"rendezvous: {self.rendezvous!r} is not HOST:PORT, as in node0:29500")
        sampling = self.settings.sampling
        if self.nodes > 1 and sampling is not None and sampling.number_started:
            raise ValueError(
                "several hosts need sampling servers that all of them reach: start the servers and "
                "give their addresses as sampling.servers, or set it to 'joined' and start them "
                "with `sparring run join RUN --as server`"
            )
        return self

    @property
    def play_settings(self) -> PlaySettings:
        """How rollouts are played."""
        return self.settings

    @property
    def world_size(self) -> int:
        """Processes on all hosts."""
        return self.processes * self.nodes

    @property
    def optimizer_steps(self) -> int | None:
        """`max_steps`; None if only epochs are given."""
        return self.settings.max_steps

    @property
    def max_rollouts(self) -> int | None:
        """Rollouts of training and validation; None without `max_steps`."""
        if (steps := self.settings.max_steps) is None:
            return None
        learned_from = self.settings.most_learned_from(steps, self.world_size)
        return learned_from + self.settings.most_validated(steps)
