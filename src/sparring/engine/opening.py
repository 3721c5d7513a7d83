"""The engine on TRL: loads model and tokenizer, or takes the user's objects, and opens a trainer.

`check`, `plan_of`, `refuse_unknown` and `load` are what `learning/engine.py` asks of the module of
an engine.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from sparring.contracts.errors import InvalidInput, SettingError, WorldSizeError
from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import SamplingServers, TrainSettings
from sparring.engine.configuration import (
    check,
    device_of,
    grpo_config,
    lora_config,
    plan_of,
    quantization_config,
    refuse_unknown,
    uses_autocast,
    weights_dtype,
    why_one_row,
)
from sparring.engine.publisher import Publisher, ServerFaults
from sparring.engine.trainer import PolicyTrainer
from sparring.engine.warm_start import use_as_reference
from sparring.learning.checkpoints import Checkpoints, Identity
from sparring.learning.engine import Learner, Opening
from sparring.policies.families import Family
from sparring.policies.loading import family_of
from sparring.policies.pretrained import load_tokenizer, load_weights, max_positions_of
from sparring.policies.server_policy import ServerPolicy
from sparring.policies.transformers_policy import TransformersPolicy
from sparring.run_folder.server_list import server_addresses

__all__ = ["Loaded", "check", "load", "plan_of", "refuse_unknown"]


@dataclass(frozen=True, kw_only=True)
class Loaded(Learner):
    """A model to train in this process, with the configuration of its adapter, and the user's
    optimizer and schedule."""

    model: Any
    peft: Any = None
    optimizers: tuple[Any, Any] = (None, None)

    @property
    def is_adapter(self) -> bool:
        """Whether an adapter is trained, and not the whole model."""
        return self.peft is not None or hasattr(self.model, "peft_config")

    def open(self, opening: Opening) -> PolicyTrainer:
        """Build TRL's trainer, and the policy that samples with its weights.

        Raises WorldSizeError unless Accelerate runs as many processes as were launched.
        """
        settings, launched = opening.settings, opening.launched
        trainer = self._trainer(opening)
        if trainer.accelerator.num_processes != launched.world_size:
            raise WorldSizeError(
                f"{launched.world_size} processes were requested, but Accelerate runs "
                f"{trainer.accelerator.num_processes}; start them with `sparring train "
                "--processes N` or torchrun"
            )
        if settings.sampling is not None:
            self._sample_with_servers(trainer, opening, settings.sampling)
        else:
            trainer.policy = TransformersPolicy(
                trainer.model,
                self.tokenizer,
                name=self.name,
                family=self.family,
                autocast=torch.bfloat16 if uses_autocast(settings) else None,
                kv_cache_memory=settings.kv_cache_memory,
            )
        return trainer

    def _trainer(self, opening: Opening) -> PolicyTrainer:
        from datasets import Dataset

        settings, model = opening.settings, self.model
        if settings.beta and not self.is_adapter and not getattr(model.config, "_name_or_path", ""):
            raise SettingError(
                "beta needs a model with a name: save it with save_pretrained, and load it from "
                "there"
            )
        world_size, folder = opening.launched.world_size, opening.folder
        plan = plan_of(settings, len(opening.case_ids), world_size)
        identity = Identity(
            opening.suite_digest, opening.code_digest, self.codec().digest, world_size
        )
        with _quiet():
            trainer = PolicyTrainer(
                opening,
                plan,
                Checkpoints(
                    folder.checkpoints,
                    identity,
                    boundary=plan.boundary,
                    kept=settings.save_total_limit,
                ),
                model=model,
                args=grpo_config(settings, plan, folder.path / "engine"),
                train_dataset=Dataset.from_dict({"prompt": opening.case_ids}),
                processing_class=self.tokenizer,
                peft_config=self.peft,
                optimizers=self.optimizers,
            )
        if trainer.ref_model is not None and not trainer.is_sharded():
            use_as_reference(trainer)  # TRL loads it by name; the model may have changed since
        return trainer

    def _sample_with_servers(
        self, trainer: PolicyTrainer, opening: Opening, sampling: SamplingServers
    ) -> None:
        """Have servers sample: a publisher brings them the weights, and a gap that is too large is
        explained by their faults."""
        folder, settings = opening.folder, opening.settings
        servers = server_addresses(folder, sampling)
        policy = ServerPolicy(
            servers.read,
            self.tokenizer,
            self.family,
            name=self.name,
            key=servers.key,
            wait_seconds=sampling.wait_seconds,
        )
        trainer.policy = trainer.versions = policy
        trainer.publisher = Publisher(
            trainer, policy, folder.policies, folder.id, max_staleness=settings.max_staleness
        )
        is_tied = bool(getattr(self.model.config, "tie_word_embeddings", False))
        trainer.find_fault = ServerFaults(
            sample_again=lambda request, salt: opening.run(
                policy.sample_again(request, salt=salt, weights=trainer.sampling_weights)
            ),
            case_of_row=trainer.case_of_row,
            temperature=settings.temperature,
            is_adapter=self.is_adapter,
            is_tied=is_tied and not self.is_adapter,
        )


def load(
    spec: PolicySpec,
    settings: TrainSettings,
    *,
    agent_model: object = None,
    model: Any = None,
    tokenizer: Any = None,
    declared: Family | None = None,
    optimizers: tuple[Any, Any] = (None, None),
) -> Loaded:
    """Load the model that the spec or else the agent names, or prepare `model` and `tokenizer`.

    Sets the tokenizer's chat template to that of its family.
    """
    if spec.kind != "transformers":
        raise SettingError(
            f"a policy of kind {spec.kind!r} cannot be trained: training would not update its "
            "weights; train a model in this process, which servers may sample for (`sampling`)"
        )
    peft = lora_config(settings)
    name = spec.model or (agent_model if isinstance(agent_model, str) else None)
    if model is None:
        if name is None:
            raise InvalidInput(
                "no model to train: pass model=… or --model (a hub name, a folder, tiny or "
                "smollm2), or give the agent one, as in Agent(model='Qwen/Qwen3-0.6B')"
            )
        model, own_tokenizer = _from_pretrained(name, settings)
        tokenizer = tokenizer or own_tokenizer
    if hasattr(model, "peft_config"):
        _prepare_adapter(model, settings, peft)
    elif peft is None:
        model = model.float()  # an update of 1e-5 is lost in a bfloat16 weight
    if tokenizer is None:
        raise InvalidInput("a loaded model needs its tokenizer: pass tokenizer=…")
    family = family_of(spec, tokenizer, declared)
    own_template = getattr(tokenizer, "chat_template", None)
    tokenizer.chat_template = family.template  # saved with every checkpoint
    return Loaded(
        name=name or "a loaded model",
        tokenizer=tokenizer,
        family=family,
        vocabulary=model.config.get_text_config().vocab_size,
        positions=max_positions_of(model.config),
        one_row_reason=why_one_row(settings),
        own_template=own_template if isinstance(own_template, str) else None,
        model=model,
        peft=peft,
        optimizers=optimizers,
    )


def _from_pretrained(name: str, settings: TrainSettings) -> tuple[Any, Any]:
    options: dict[str, Any] = {"dtype": weights_dtype(settings)}
    if (quantization := quantization_config(settings)) is not None:
        options["quantization_config"] = quantization
    tokenizer = load_tokenizer(name)
    model = load_weights(name, to_train=True, **options)
    _compute_in_one_way(model)
    if quantization is None and not device_of(settings).startswith("cuda"):
        model = model.to(device_of(settings))
    return model, tokenizer


def _compute_in_one_way(model: Any) -> None:
    """Have bitsandbytes compute 4-bit layers on a CPU as in training also while sampling. On CPUs
    with AVX512-BF16 it would sample with another kernel, whose results differ."""
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def _prepare_adapter(model: Any, settings: TrainSettings, peft: Any) -> None:
    """Refuse what a model that has an adapter already cannot be used with, and make the adapter
    trainable if it was loaded for inference, which freezes all weights."""
    if peft is not None:
        raise SettingError("the model already has an adapter; remove the setting `lora`")
    if settings.sampling is not None and not isinstance(settings.sampling.servers, tuple):
        raise SettingError(
            "the sampling servers that a run starts load whole models, and this one has an "
            "adapter: start servers of its base with --enable-lora and give their addresses, "
            "or merge it first, as in `sparring ship RUN --to merged --form merged`, and train "
            "merged/merged"
        )
    if not any(weights.requires_grad for weights in model.parameters()):
        for name, weights in model.named_parameters():
            if "lora_" in name:
                weights.requires_grad_(True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence TRL's log below errors."""
    log = logging.getLogger("trl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
