"""A policy from its description."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparring.contracts.errors import InvalidInput, MissingPackage
from sparring.contracts.policies import Policy
from sparring.contracts.specs import PolicySpec
from sparring.policies.families import Family, family_named, recognise
from sparring.policies.pretrained import load_tokenizer, model_type_of

if TYPE_CHECKING:
    from sparring.policies.codec import ChatCodec


def load_codec(model: str, declared: Family | None = None) -> ChatCodec:
    """How a model is spoken to, without its weights."""
    from sparring.policies.codec import ChatCodec

    tokenizer = load_tokenizer(model)
    return ChatCodec(tokenizer, declared or recognise(model_type_of(model), tokenizer))


def load_policy(
    spec: PolicySpec, agent_model: object = None, declared: Family | None = None
) -> Policy:
    """Weights in this process, a vLLM server, or chat endpoints.

    Without a model in the spec, the agent's own is taken, where it is written as a name. A
    family named in the spec goes before one that the environment declared.
    """
    if spec.kind == "endpoint":
        from sparring.policies.endpoint_policy import EndpointPolicy

        return EndpointPolicy(spec.endpoints)
    model = spec.model or (agent_model if isinstance(agent_model, str) else None)
    if model is None:
        raise InvalidInput(
            "no model to play with: pass --model, or model= in Python (a hub name, a folder, tiny "
            "or smollm2), or give the agent one, as in Agent(model='Qwen/Qwen3-0.6B')"
        )
    family = family_named(spec.family) if spec.family else declared
    try:
        if spec.kind == "vllm":
            from sparring.policies.vllm_policy import VllmPolicy

            return VllmPolicy.load(spec.endpoints[0], model, family=family)
        from sparring.policies.transformers_policy import TransformersPolicy

        return TransformersPolicy.load(model, family=family, dtype=spec.dtype, device=spec.device)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers", "accelerate"):
            raise
        raise MissingPackage(
            f"playing {model} in this process needs {error.name}: pip install 'sparring[local]', "
            "or play a model behind a server with --endpoint URL"
        ) from error
