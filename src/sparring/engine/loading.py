"""Model and tokenizer for training, from names or from objects of the user's."""

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
from sparring.policies.families import Family, family_named, recognise
from sparring.policies.pretrained import load_tokenizer, load_weights


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is trained, and how it is spoken to."""

    model: Any
    tokenizer: Any
    family: Family
    name: str
    peft: Any = None
    own_template: str | None = None

    def codec(self) -> ChatCodec:
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
    """By name, from the spec or the agent; or the objects given."""
    if spec.kind != "transformers":
        raise SettingError(
            "a server whose weights nobody updates would go on sampling with the first ones; "
            "train weights in this process, or sample through vllm='server', which TRL keeps in "
            "sync"
        )
    peft = lora_config(settings)
    name = spec.model or (agent_model if isinstance(agent_model, str) else None)
    if model is None:
        if name is None:
            raise InvalidInput(
                "no model to train: pass model=… or --model (a hub name, a folder, tiny or "
                "smollm2), or give the agent one, as in Agent(model='Qwen/Qwen3-0.6B')"
            )
        model, found = _from_pretrained(name, settings)
        tokenizer = tokenizer or found
    if hasattr(model, "peft_config"):
        if peft is not None:
            raise SettingError("the model has an adapter already; leave `lora` out")
        _unfreeze_adapter(model)
    elif peft is None:
        model = model.float()  # an update of 1e-5 is lost in a bfloat16 weight
    if tokenizer is None:
        raise InvalidInput("a loaded model needs its tokenizer: pass tokenizer=…")
    family = family_named(spec.family) if spec.family else declared
    family = family or recognise(model.config.model_type, tokenizer)
    own = getattr(tokenizer, "chat_template", None)
    tokenizer.chat_template = family.template  # saved with every checkpoint
    own = own if isinstance(own, str) else None
    return Loaded(model, tokenizer, family, name or "a loaded model", peft, own)


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
    """An adapter that was loaded for inference is frozen, and would learn nothing."""
    if not any(weights.requires_grad for weights in model.parameters()):
        for name, weights in model.named_parameters():
            if "lora_" in name:
                weights.requires_grad_(True)
