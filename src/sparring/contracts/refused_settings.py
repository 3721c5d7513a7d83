"""Fields of TRL's config that have another name here, have no effect, or must not be set.

The values are the advice in the error message.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Container, Mapping

RENAMED: Mapping[str, str] = {
    "checkpoint_steps": "save_steps",
    "checkpoints_kept": "save_total_limit",
    "hung_seconds": "hang_timeout",
    "in_flight": "max_concurrency",
    "measure_seconds": "measure_timeout",
    "rollout_seconds": "rollout_timeout",
    "start_seconds": "start_timeout",
    "stop_seconds": "stop_timeout",
    "tool_result_tokens": "max_tool_result_length",
    "tool_seconds": "tool_timeout",
    "turn_cache": "kv_cache_memory",
    "world_model_coefficient": "echo_coefficient",
    "world_model_normalization": "echo_normalization",
}
_ROLLOUTS = "Sparring's player makes the rollouts; it"
OURS: Mapping[str, str] = {
    **{old: f"use {new}" for old, new in RENAMED.items()},
    "tool_rounds": "use max_turns, which is one more: it counts the answer, too",
    "output_dir": "use `runs`, the folder of runs",
    "save_strategy": "use save_steps: checkpoints are saved between generations",
    "save_only_model": "a checkpoint without its optimizer does not resume; use result.save(…)",
    "save_on_each_node": "rank 0 writes, to a folder that all hosts share",
    "enable_jit_checkpoint": "it saves within a generation; SIGTERM saves at the next boundary",
    "load_best_model_at_end": "the best checkpoint is kept; result.best has it",
    "metric_for_best_model": "checkpoints are picked by the mean validation reward",
    "greater_is_better": "checkpoints are picked by the mean validation reward",
    "resume_from_checkpoint": "runs resume by id: `sparring run resume RUN`, or run=… in Python",
    "ignore_data_skip": "resuming always continues with the next cases",
    "restore_callback_states_from_checkpoint": "resuming always restores everything",
    "eval_strategy": "use validation_cases: validation is played before each checkpoint",
    "eval_steps": "use save_steps and validation_cases",
    "eval_delay": "use validation_cases",
    "eval_on_start": "validation cases are always played before the first step",
    "do_eval": "use validation_cases",
    "do_train": "a training run always trains",
    "do_predict": "use `sparring eval`",
    "per_device_eval_batch_size": "use max_concurrency",
    "num_generations_eval": "validation plays each case once; use `sparring eval` for more",
    "use_vllm": "use sampling=1, which starts a vLLM server, or the addresses of servers",
    "vllm": "use sampling=1, which starts a vLLM server, or the addresses of servers",
    "vllm_mode": "use sampling=1, which starts a vLLM server, or the addresses of servers",
    "tools": "the agent's own tools are used",
    "max_tool_calling_iterations": "use max_turns, which counts the answer, too",
    "environment_factory": "use context=…, whose @tool methods join the agent's",
    "rollout_func": "use rollout_function=…",
    "reward_weights": "use weights={measure: weight}",
    "multi_objective_aggregation": "measures blend into one reward; use weights",
    "steps_per_generation_batch": "use cases_per_batch",
    "generation_batch_size": "use cases_per_batch and gradient_accumulation_steps",
    "shuffle_dataset": "cases are always shuffled, by the seed",
    "use_cpu": "use device='cpu'",
    "bf16": "use dtype",
    "fp16": "use dtype; float16 is not supported",
    "model_init_kwargs": "pass a loaded model, or use dtype and quantization",
    "trust_remote_code": "load the model yourself and pass it",
    "remove_unused_columns": "cases have no columns to remove",
    "disable_tqdm": "use show_progress",
    "hub_token": "save the result and push it yourself",
    "push_to_hub": "save the result and push it yourself",
    "trackio_space_id": "trackers write locally; sync with trackio's own command",
    "logging_first_step": "use logging_steps=1; the last step is always reported",
    "log_completions": "every rollout is kept in the run folder: `sparring rollout list`",
    "log_completions_hub_repo": "every rollout is kept in the run folder",
    "num_completions_to_print": "every rollout is kept in the run folder",
    "log_unique_prompts": "every rollout is kept in the run folder",
    "log_multimodal": "only text is trained",
    "auto_find_batch_size": "use per_device_train_batch_size",
    "pad_to_multiple_of": "passes are as wide as their longest rows",
    "top_p": "training samples by temperature only: with top_p, the sampled distribution would "
    "differ from the distribution that is trained; leave it out",
    "top_k": f"{_ROLLOUTS} samples by temperature only",
    "min_p": f"{_ROLLOUTS} samples by temperature only",
    "repetition_penalty": f"{_ROLLOUTS} samples by temperature only",
    "generation_kwargs": f"{_ROLLOUTS} samples by temperature only",
    "chat_template_kwargs": "the family's training template is used (docs/families.md)",
    "cache_implementation": f"{_ROLLOUTS} has its own cache",
    "use_transformers_continuous_batching": f"{_ROLLOUTS} batches in lockstep",
    "transformers_continuous_batching_config": f"{_ROLLOUTS} batches in lockstep",
    "use_transformers_paged": f"{_ROLLOUTS} batches in lockstep",
    "use_liger_kernel": "TRL has its own fused head",
    "liger_kernel_config": "TRL has its own fused head",
    "sync_ref_model": "no checkpoint holds such a reference, so a resumed run would differ",
    "top_entropy_quantile": "which tokens are learned from would depend on the memory there is",
    "label_smoothing_factor": "it belongs to supervised training and has no effect here",
    "neftune_noise_alpha": "it belongs to supervised training and would break parity",
    "average_tokens_across_devices": "the loss already counts the tokens of all ranks",
    "label_names": "there are no labels here",
    "length_column_name": "lengths are not known before the rollouts are played",
    "train_sampling_strategy": "groups are sampled by case",
    "data_seed": "use seed",
    "local_rank": "torchrun sets it; use --processes",
    "vllm_importance_sampling_cap": "use engine.vllm_importance_sampling_clip_max",
}
_REFUSED_PREFIXES = ("save_", "eval_", "hub_")


def is_never_the_engines(name: str) -> bool:
    """Return whether a field of TRL's config must not be set, not even in `engine`."""
    return name in OURS or name.startswith(_REFUSED_PREFIXES)


def engine_problem(name: str, known: Collection[str], settings: Container[str]) -> str:
    """Return why a field of the table `engine` is refused; empty if it is not. `known` are the
    fields of TRL's config, `settings` those of Sparring."""
    if name in settings:
        return f"engine.{name}: {name} is a setting of Sparring; set it outside of `engine`"
    if name in known and re.match("vllm_(?!importance_sampling_)", name):
        return f"engine.{name}: {OURS['vllm']}"
    if name in known and not is_never_the_engines(name):
        return ""
    near = difflib.get_close_matches(name, known, 1)
    if near and near[0] in settings and not is_never_the_engines(name):
        return f"engine.{name}: there is no such setting; did you mean {near[0]}, without `engine`?"
    return unknown_field(name, known, "engine.")


def field_problem(name: str, known: Collection[str], prefix: str) -> str:
    """Return why a field of a table is refused; empty if the table has it."""
    return "" if name in known else unknown_field(name, known, prefix)


def unknown_field(name: str, known: Collection[str], prefix: str = "") -> str:
    """Return the message that refuses a name, with the name to use instead."""
    if name in OURS:
        return f"{prefix}{name}: {OURS[name]}"
    if is_never_the_engines(name):
        return (
            f"{prefix}{name}: Sparring saves, validates and publishes instead of the engine; "
            "remove it"
        )
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {prefix}{near[0]}?" if near else f"known: {', '.join(sorted(known)[:40])}"
    return f"{prefix}{name}: there is no such setting; {hint}"
