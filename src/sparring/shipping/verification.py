"""Verifies an artefact against its checkpoint: stop tokens, default sampling parameters, prompts,
log-probabilities.

A fault raises FaultyArtefact, whose message names the cause. `jobs/ship/behaviour.py` compares the
rollouts of artefact and checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.errors import FaultyArtefact
from sparring.contracts.summaries import Gap
from sparring.policies.codec import ChatCodec
from sparring.shipping.conversations import EncodedChat
from sparring.shipping.distribution import (
    BOUNDS,
    INFORMATION,
    Position,
    check_gap,
    gap_between,
    gap_to_server,
    log_probabilities,
)
from sparring.shipping.llama_cpp import LlamaServer
from sparring.shipping.prompt_check import FolderTarget, ServerTarget, check_prompts
from sparring.shipping.source import Source, adapted, load_base, load_trained
from sparring.shipping.tokenizer_files import SAMPLING
from sparring.shipping.weights import check_adapter_names

_CLOSE = 1e-3
_UNMOVED = 1e-6
_SUSPICIOUS = 0.1  # above this share of training's KL, an artefact is also compared with the base


@dataclass(frozen=True, slots=True)
class Reference:
    """The checkpoint's prompts and log-probabilities, with which artefacts are compared. `learned`
    is the mean KL divergence between checkpoint and base."""

    source: Source
    codec: ChatCodec
    conversations: Sequence[EncodedChat]
    positions: Sequence[Position]
    trained: Any
    base: Any
    learned: float
    temperature: float


def make_reference(
    source: Source,
    conversations: Sequence[EncodedChat],
    positions: Sequence[Position],
    temperature: float,
) -> Reference:
    """Compute the log-probabilities of the checkpoint and of its base at all positions."""
    trained, base = None, None
    learned = 0.0
    if positions:
        trained = log_probabilities(load_trained(source), positions)
        base = log_probabilities(load_base(source), positions)
        learned = gap_between(trained, base, positions).kl
    return Reference(
        source, source.codec(), conversations, positions, trained, base, learned, temperature
    )


def verify_folder(folder: Path, reference: Reference, *, dtype: str) -> dict[str, Any]:
    """Verify an adapter or a merged model, loaded with transformers. Returns the counts of compared
    prompts and the gap to the checkpoint."""
    if (folder / "generation_config.json").is_file():
        _check_generation_config(folder, reference)
    prompts = check_prompts(reference.conversations, FolderTarget(folder), reference.codec)
    model = _load_folder(folder, reference.source)
    found: dict[str, Any] = {"prompts": asdict(prompts), "server": "transformers"}
    if reference.positions:
        theirs = log_probabilities(model, reference.positions)
        gap = gap_between(reference.trained, theirs, reference.positions)
        to_base = gap_between(reference.base, theirs, reference.positions)
        found |= _checked(gap, to_base, dtype, reference)
    return found


def verify_server(
    server: LlamaServer, reference: Reference, *, quantization: str, about: str
) -> dict[str, Any]:
    """Verify a GGUF file, served by llama.cpp. Returns the counts of compared prompts and the gap
    to the checkpoint."""
    _check_server_settings(server, reference)
    prompts = check_prompts(reference.conversations, ServerTarget(server), reference.codec)
    found: dict[str, Any] = {"prompts": asdict(prompts), "server": f"llama.cpp ({about})"}
    if reference.positions:
        gap = gap_to_server(reference.trained, server, reference.positions)
        to_base = None
        if gap.kl > reference.learned * _SUSPICIOUS:
            to_base = gap_to_server(reference.base, server, reference.positions)
        found |= _checked(gap, to_base, quantization, reference)
    return found


def _load_folder(folder: Path, source: Source) -> Any:
    import torch

    from sparring.policies.pretrained import load_weights

    if (folder / "adapter_config.json").is_file():
        base = load_base(source)
        check_adapter_names(folder, {name for name, _ in base.named_modules()})
        return adapted(base, folder)
    return load_weights(str(folder), dtype=torch.float32).eval()


def _checked(gap: Gap, to_base: Gap | None, precision: str, reference: Reference) -> dict[str, Any]:
    """Return the gap and its warning. Raises FaultyArtefact if the artefact is closer to the base
    than to the checkpoint, or if the gap exceeds the bound of its precision."""
    is_moved = reference.learned > _UNMOVED
    if to_base is not None and is_moved and to_base.kl < gap.kl:
        raise FaultyArtefact(
            f"the training is lost: the artefact is closer to the base model (KL {to_base.kl:.2g}) "
            f"than to the checkpoint (KL {gap.kl:.2g})"
        )
    bound = BOUNDS.get(precision, INFORMATION)
    warning = check_gap(gap, bound, trained_from_base=reference.learned)
    return {"gap": asdict(gap), "learned": reference.learned, "warning": warning}


def _check_generation_config(folder: Path, reference: Reference) -> None:
    config = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    stops = config.get("eos_token_id")
    found = set(stops if isinstance(stops, list) else [stops])
    if missing := reference.codec.stop_ids - found:
        names = [reference.codec.tokenizer.convert_ids_to_tokens(each) for each in sorted(missing)]
        raise FaultyArtefact(
            f"generation_config.json lacks the stop token {', '.join(names)}: the model would not "
            "end its turn"
        )
    for name, value in SAMPLING.items():
        if config.get(name) != value:
            raise FaultyArtefact(
                f"generation_config.json sets {name}={config.get(name)}, but the model was proved "
                f"with {value}"
            )


def _check_server_settings(server: LlamaServer, reference: Reference) -> None:
    """Check that the server ends turns with the trained token, and that its default sampling
    parameters are those of the proof."""
    end = reference.codec.family.end_of_turn
    properties = server.get("/props")
    if properties.get("eos_token") not in (end, *reference.codec.family.also_stops):
        raise FaultyArtefact(
            f"the GGUF file ends a turn with {properties.get('eos_token')!r}, but the model was "
            f"trained to end it with {end!r}: the stop token is missing"
        )
    defaults = properties["default_generation_settings"]["params"]
    wanted = {"temperature": reference.temperature, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    for name, value in wanted.items():
        if abs(float(defaults[name]) - value) > _CLOSE:
            raise FaultyArtefact(
                f"the GGUF file makes servers sample with {name}={defaults[name]:g}, but the model "
                f"was proved with {value:g}"
            )
