"""Loads policies from their specs, and codecs by model name."""

from __future__ import annotations

from typing import Any

from sparring.contracts.errors import InvalidInput, MissingPackage
from sparring.contracts.policies import Policy
from sparring.contracts.specs import PolicySpec
from sparring.installed import how_to_install
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family, family_named, recognise
from sparring.policies.pretrained import load_tokenizer


def load_codec(model: str, declared: Family | None = None) -> ChatCodec:
    """Load a model's tokenizer and chat format, without its weights."""
    tokenizer = load_tokenizer(model)
    return ChatCodec(tokenizer, declared or recognise(tokenizer))


def family_of(spec: PolicySpec, tokenizer: Any, declared: Family | None) -> Family:
    """Return the family that the spec names, else the family that the environment declares, else
    the family recognised from the tokenizer, with the spec's thinking settings applied. The default
    settings, "auto" and "drop", leave the family unchanged."""
    family = family_named(spec.family) if spec.family else declared
    family = family or recognise(tokenizer)
    if (spec.thinking, spec.history_thinking) == ("auto", "drop"):
        return family
    return family.adapted(spec.thinking, spec.history_thinking)


def load_policy(
    spec: PolicySpec,
    agent_model: object = None,
    declared: Family | None = None,
    *,
    kv_cache_memory: float = 1.0,
) -> Policy:
    """Load in-process weights, or connect to a vLLM server or chat endpoints.

    If the spec names no model, the policy uses the agent's model, which must then be a name. A
    family in the spec overrides `declared`, the environment's family. `kv_cache_memory` is the
    memory in GiB for key/value caches that are kept between the turns of a rollout.
    """
    if spec.kind == "endpoint":
        from sparring.policies.endpoint_policy import EndpointPolicy

        return EndpointPolicy(spec.endpoints)
    model = spec.model or (agent_model if isinstance(agent_model, str) else None)
    if model is None:
        raise InvalidInput(
            "no model given: pass --model, or model= in Python (a hub name, a folder, tiny "
            "or smollm2), or give the agent one, as in Agent(model='Qwen/Qwen3-0.6B')"
        )
    try:
        tokenizer = load_tokenizer(model)
        family = family_of(spec, tokenizer, declared)
        if spec.kind == "vllm":
            from sparring.policies.vllm_server import VllmPolicy

            return VllmPolicy(spec.endpoints[0], tokenizer, family)
        from sparring.policies.transformers_policy import TransformersPolicy

        return TransformersPolicy.load(
            model,
            family=family,
            dtype=spec.dtype,
            device=spec.device,
            kv_cache_memory=kv_cache_memory,
        )
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers", "accelerate"):
            raise
        raise MissingPackage(
            f"loading {model} needs {error.name}: {how_to_install('local')}, "
            "or use a model behind a server with --endpoint URL"
        ) from error
