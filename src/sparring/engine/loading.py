"""Loads model and tokenizer by name for training, or prepares the user's objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparring.contracts.errors import InvalidInput, SettingError
from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings
from sparring.engine.configuration import (
    device_of,
    lora_config,
    quantization_config,
    weights_dtype,
)
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family
from sparring.policies.loading import family_of
from sparring.policies.pretrained import load_tokenizer, load_weights


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model to train, with its tokenizer, chat family and adapter configuration.

    `own_template` is the chat template that the tokenizer was loaded with; None if it had none.
    """

    model: Any
    tokenizer: Any
    family: Family
    name: str
    peft: Any = None
    own_template: str | None = None

    def codec(self) -> ChatCodec:
        """Return a codec for this tokenizer and family."""
        return ChatCodec(self.tokenizer, self.family)


def load(
    spec: PolicySpec,
    settings: TrainSettings,
    *,
    agent_model: object = None,
    model: Any = None,
    tokenizer: Any = None,
    declared: Family | None = None,
) -> Loaded:
    """Load the model that the spec or else the agent names, or prepare `model` and `tokenizer`.

    Sets the tokenizer's chat template to that of its family.
    """
    if spec.kind != "transformers":
        raise SettingError(
            f"a policy of kind {spec.kind!r} cannot be trained: training would not update its "
            "weights; train a model in this process, or sample through vllm='server', which TRL "
            "keeps in sync"
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
        if peft is not None:
            raise SettingError("the model already has an adapter; remove the setting `lora`")
        if settings.sampling is not None and not isinstance(settings.sampling.servers, tuple):
            raise SettingError(
                "the sampling servers that a run starts load whole models, and this one has an "
                "adapter: start servers of its base with --enable-lora and give their addresses, "
                "or merge it first, as in `sparring ship RUN --to merged --form merged`, and train "
                "merged/merged"
            )
        _unfreeze_adapter(model)
    elif peft is None:
        model = model.float()  # an update of 1e-5 is lost in a bfloat16 weight
    if tokenizer is None:
        raise InvalidInput("a loaded model needs its tokenizer: pass tokenizer=…")
    family = family_of(spec, tokenizer, declared)
    own_template = getattr(tokenizer, "chat_template", None)
    tokenizer.chat_template = family.template  # saved with every checkpoint
    own_template = own_template if isinstance(own_template, str) else None
    return Loaded(model, tokenizer, family, name or "a loaded model", peft, own_template)


def _from_pretrained(name: str, settings: TrainSettings) -> tuple[Any, Any]:
    options: dict[str, Any] = {"dtype": weights_dtype(settings)}
    if (quantization := quantization_config(settings)) is not None:
        options["quantization_config"] = quantization
    tokenizer = load_tokenizer(name)
    model = load_weights(name, to_train=True, **options)
    if quantization is None and not device_of(settings).startswith("cuda"):
        model = model.to(device_of(settings))
    return model, tokenizer


def _unfreeze_adapter(model: Any) -> None:
    """Make an adapter trainable if it was loaded for inference, which freezes all weights."""
    if not any(weights.requires_grad for weights in model.parameters()):
        for name, weights in model.named_parameters():
            if "lora_" in name:
                weights.requires_grad_(True)
