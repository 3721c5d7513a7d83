"""The spec and the settings of a training run, its guards and its sampling servers.

Settings that TRL also has use TRL's names. In one optimizer step, each process plays
`cases_per_batch` × `gradient_accumulation_steps` cases with `num_generations` rollouts each. The
rows of a batch go through the model in one pass, or in several that fit into memory.

A guard checks the metrics of each step and acts once its condition has held for `steps` steps in
a row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from sparring.contracts.command_line import SHOWN
from sparring.contracts.specs import Frozen, PlaySettings, RunSpec, Table

Action = Literal["stop", "warn", "off"]
Normalization = Literal["selected_tokens", "sequence_mean", "seq_mean_token_sum_norm"]
_VALIDATION_CASES = 64  # played before each checkpoint by default
ROLLOUTS_PER_SERVER = 256  # vLLM's default limit on GPUs below 70 GB; larger GPUs take more


class Guard(Frozen):
    """One condition: its limit, how long it must hold, and the action taken."""

    limit: float = 0.0
    steps: int = Field(default=1, ge=1)
    action: Action = "stop"


class Guards(Frozen):
    """All guards. The string "stop", "warn" or "off" in place of a guard sets its action."""

    no_tool_call: Guard = Field(
        default=Guard(limit=0.0, steps=10),
        description="acts if the share of rollouts that call a tool is at most `limit`",
    )
    dead_groups: Guard = Field(
        default=Guard(limit=0.0, steps=10),
        description="acts if the share of groups with a gradient is at most `limit`",
    )
    entropy: Guard = Field(
        default=Guard(limit=0.001, steps=10),
        description="acts if the mean entropy of sampled tokens is below `limit`",
    )
    truncated: Guard = Field(
        default=Guard(limit=0.95, steps=10),
        description="acts if the token budget cuts off a larger share of rollouts than `limit`",
    )
    not_finite: Guard = Field(
        default=Guard(),
        description="acts if the loss or a gradient is not finite; `warn` skips the step",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _keep_other_fields(cls, value: Any, info: Any) -> Any:
        default = cls.model_fields[info.field_name].default.model_dump()
        if isinstance(value, str):
            return {**default, "action": value}
        return {**default, **value} if isinstance(value, dict) else value

    def only_not_finite(self) -> Guards:
        """Return guards of which all but `not_finite` are off, for steps that are discarded."""
        off = dict.fromkeys(type(self).model_fields, "off")
        return Guards.model_validate({**off, "not_finite": self.not_finite})


class SamplingServers(Frozen):
    """vLLM servers that sample for a training run. The run starts them, other hosts start them, or
    they already run at known addresses."""

    servers: int | Literal["joined"] | tuple[str, ...] = Field(
        default=1,
        description="the number of servers to start, `joined` for servers that other hosts start "
        "(`sparring run join RUN --as server`), or addresses (http://HOST:PORT)",
    )
    command: tuple[str, ...] = Field(
        default=(),
        description="the command of vLLM's server; default: python -m "
        "vllm.entrypoints.openai.api_server",
    )
    arguments: tuple[str, ...] = Field(default=(), description="further arguments of the command")
    gpus: tuple[int, ...] = Field(
        default=(),
        description="GPUs, as positions in CUDA_VISIBLE_DEVICES if that is set; divided evenly "
        "among the servers that the run starts; a joined server uses all of them; default: the "
        "GPUs after those of the training processes",
    )
    wait_seconds: float = Field(
        default=600.0,
        gt=0,
        description="seconds without an answer from any server after which a rollout fails",
    )

    @field_validator("servers", mode="before")
    @classmethod
    def _is_a_number_or_addresses(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("give a number of servers, `joined`, or addresses")
        if isinstance(value, str) and value != "joined":
            if value.isdigit():
                return int(value)
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return tuple(value) if isinstance(value, list) else value

    @field_validator("servers")
    @classmethod
    def _can_be_reached(
        cls, value: int | Literal["joined"] | tuple[str, ...]
    ) -> int | Literal["joined"] | tuple[str, ...]:
        if value == "joined":
            return value
        if isinstance(value, int):
            if value < 1:
                raise ValueError("at least one server is needed")
            return value
        if not value:
            raise ValueError("at least one address is needed")
        for address in value:
            if not address.startswith(("http://", "https://")):
                raise ValueError(f"{address!r} is not an address; write http://HOST:PORT")
            if "@" in address:
                raise ValueError("an address must not carry a user or key")
        if len(set(value)) < len(value):
            raise ValueError("an address is given twice")
        return value

    @property
    def least_servers(self) -> int:
        """Minimum number of servers; 1 if servers join."""
        if isinstance(self.servers, int):
            return self.servers
        return 1 if self.servers == "joined" else len(self.servers)

    @property
    def number_started(self) -> int:
        """Number of servers that the run starts; 0 if they join or have given addresses."""
        return self.servers if isinstance(self.servers, int) else 0


def as_table(value: Any) -> Any:
    """Return the table for a short form: a number of servers, `joined`, or addresses. Copy a table,
    and return other values unchanged."""
    if isinstance(value, int | str | list | tuple) and not isinstance(value, bool):
        return {"servers": list(value) if isinstance(value, tuple) else value}
    return dict(value) if isinstance(value, Mapping) else value


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
    num_generations: Annotated[int, SHOWN] = Field(default=4, ge=2, description="rollouts per case")
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
    echo_coefficient: float = Field(
        default=0.0, ge=0, description="weight of ECHO's loss on tool results; 0.05 is usual"
    )
    echo_normalization: Normalization = Field(
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
    save_steps: Annotated[int, SHOWN] = Field(
        default=50, ge=1, description="steps between checkpoints"
    )
    save_total_limit: int = Field(
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
        """`max_concurrency`, or its default: 256 per sampling server, or 64 without servers."""
        if self.max_concurrency is None and self.sampling is not None:
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
        return self.echo_coefficient > 0

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
        return self.most_validation_cases * (steps // self.save_steps + 2)


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

    def fields_of_later_runs(self) -> Table:
        """Return the fields that the specs of this training's proof and shipment share with it.
        Their base is the model that the training started from, and they play as it did."""
        names = ("target", "environment", "config", "services", "supervision", "hours", "policy")
        own = (*names, "code_digest", "code_files", "measures")
        play = {name: getattr(self.settings, name) for name in PlaySettings.model_fields}
        return {
            **{name: getattr(self, name) for name in own},
            "base": self.policy,
            "play": PlaySettings(**{**play, "num_generations": 1}),
        }

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
