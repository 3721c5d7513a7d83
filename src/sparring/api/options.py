"""The keyword arguments of the Python entry points, for editors and type checkers.

They mirror `PlaySettings`, `TrainSettings` and `ShipSpec`, which hold the defaults and check the
values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

if TYPE_CHECKING:
    from sparring.contracts.training import Guards, SamplingServers, WarmStart
    from sparring.environments.examples import WorkedExample
    from sparring.player.function_player import RolloutFunction
    from sparring.player.player import ContextFactory
    from sparring.player.sdk_run import UserFunction
    from sparring.policies.families import Family

Table = dict[str, Any]


class PlayOptions(TypedDict, total=False):
    """Options for playing rollouts: the fields of `PlaySettings`."""

    num_generations: int
    temperature: float
    max_completion_length: int
    max_turns: int
    thinking: Literal["auto", "on", "off"]
    history_thinking: Literal["drop", "keep"]
    user_messages: int
    max_tool_result_length: int | None
    max_concurrency: int | None
    kv_cache_memory: float
    tool_timeout: float
    rollout_timeout: float
    measure_timeout: float
    unsandboxed: bool
    seed: int


class LearnOptions(PlayOptions, total=False):
    """Options for playing rollouts and for training: the fields of `TrainSettings`."""

    num_train_epochs: float
    max_steps: int | None
    cases_per_batch: int
    gradient_accumulation_steps: int
    per_device_train_batch_size: int | None
    pass_memory: float | None
    replacement_groups: int | None
    draw_by_difficulty: bool
    warm_start: WarmStart | Table | str | None
    learning_rate: float | None
    max_grad_norm: float
    beta: float
    echo_coefficient: float
    echo_normalization: Literal["selected_tokens", "sequence_mean", "seq_mean_token_sum_norm"]
    mask_truncated_completions: bool
    gradient_checkpointing: bool
    train_agents: str | Sequence[str]
    share_prompts: bool
    dtype: Literal["auto", "bfloat16", "float32"]
    device: str | None
    lora: bool | Table
    quantization: bool | Table
    sampling: SamplingServers | Table | Sequence[str] | str | int | None
    players: int
    max_staleness: int
    engine: Table
    guards: Guards | Table
    save_steps: int
    save_total_limit: int
    validation_cases: int | None
    logging_steps: int
    report_to: str | Sequence[str]
    project: str | None
    entity: str | None
    run_name: str | None


class TrainOptions(LearnOptions, total=False):
    """All arguments of `Trainer` except agent, suite and measures."""

    model: Any
    tokenizer: Any
    optimizer: Any
    scheduler: Any
    weights: Mapping[str, float] | None
    reward_functions: Sequence[Callable[..., Any]]
    context: ContextFactory | None
    user: UserFunction | None
    rollout_function: RolloutFunction | None
    family: Family | str | None
    examples: Sequence[WorkedExample] | None
    processes: int | None
    runs: str | Path
    run: str | None
    accept_changes: bool
    show_progress: bool


class ShipOptions(TypedDict, total=False):
    """Options of a shipment: the fields of `ShipSpec`."""

    checkpoint: str
    forms: Sequence[Literal["adapter", "merged", "gguf", "ollama"]]
    quantizations: Sequence[str]
    compare: bool
    cases: int | None
    rollouts: int
    validation_cases: int
    margin: float
    name: str
    llama_cpp: str
    vllm: bool
    hub: str
    upload: bool
    register_with_ollama: bool


class ServerOptions(TypedDict, total=False):
    """An OpenAI-compatible server: the fields of `EndpointSpec`."""

    base_url: Required[str]
    model: Required[str]
    key_variable: str | None
    weight: float
