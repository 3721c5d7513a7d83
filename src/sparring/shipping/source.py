"""Opens the checkpoint of a shipment: its weights, base, tokenizer and training template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput, UnknownFamily
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family
from sparring.policies.pretrained import (
    load_rounded,
    load_tokenizer,
    load_weights,
    locate,
    max_positions_of,
    quantization_of,
)
from sparring.run_folder.layout import existing_folder

ADAPTER_CONFIG = "adapter_config.json"
_DTYPES = ("float32", "bfloat16", "float16")


def read_front_matter(text: str) -> dict[str, Any]:
    """Return the metadata of a model card; empty if the YAML block is missing or invalid."""
    import yaml

    if not text.startswith("---"):
        return {}
    block, end, _ = text[3:].partition("\n---")
    if not end:
        return {}
    try:
        value = yaml.safe_load(block)
    except yaml.YAMLError:
        return {}
    return value if isinstance(value, dict) else {}


def with_front_matter(metadata: Mapping[str, Any], text: str) -> str:
    """Return `text` with `metadata` as a YAML block at its top."""
    import yaml

    block = yaml.safe_dump(dict(metadata), sort_keys=False, allow_unicode=True)
    return f"---\n{block}---\n\n{text}"


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint with its base, tokenizer and training template. `base` is the name of the model
    that training started from; `base_place` is its local folder or its name on the hub."""

    checkpoint: Path
    base: str
    base_place: str
    tokenizer: Any
    family: Family
    template: str

    @property
    def is_adapter(self) -> bool:
        """Whether the checkpoint holds an adapter; otherwise it holds a whole model."""
        return (self.checkpoint / ADAPTER_CONFIG).is_file()

    @property
    def base_name(self) -> str:
        """The base without local paths: its repository on the hub, or the name of its folder."""
        return self.base if is_public(self.base) else Path(self.base).name

    def codec(self) -> ChatCodec:
        """Return a codec with the training template."""
        return ChatCodec(self.tokenizer, replace(self.family, template=self.template))


def open_source(checkpoint: Path, base: str, family: Family | None) -> Source:
    """Open a checkpoint. The template saved with it takes precedence over the family's, which may
    have changed since training."""
    tokenizer = load_tokenizer(str(checkpoint))
    place = locate(base)
    chosen = family or _family_of(tokenizer, place)
    saved = tokenizer.chat_template
    template = saved if isinstance(saved, str) else chosen.template
    return Source(checkpoint, base, place, tokenizer, chosen, template)


def _family_of(tokenizer: Any, base: str) -> Family:
    """Recognise the family by the checkpoint's template, or by the base's template if the former is
    unknown."""
    from sparring.policies.families import recognise

    try:
        return recognise(tokenizer)
    except UnknownFamily:
        return recognise(load_tokenizer(base))


def is_public(name: str) -> bool:
    """Return whether a name has the form OWNER/NAME of the hub and is not a local folder."""
    is_name = name.count("/") == 1 and not name.startswith((".", "/", "~"))
    return is_name and existing_folder(Path(name)) is None


def load_trained(source: Source) -> Any:
    """Load the trained model in float32: an adapter on its base, or the whole model. The base of a
    4-bit training is quantised as in training, then dequantised."""
    import torch

    if not source.is_adapter:
        return load_weights(str(source.checkpoint), dtype=torch.float32).eval()
    quantization = quantization_of(source.checkpoint)
    if quantization is None:
        return adapted(load_base(source), source.checkpoint)
    rounded = load_rounded(source.base_place, quantization, dtype=torch.float32)
    return adapted(rounded, source.checkpoint)


def load_base(source: Source) -> Any:
    """Load the model that the training started from, in float32."""
    import torch

    return load_weights(source.base_place, dtype=torch.float32).eval()


def adapted(base: Any, folder: Path) -> Any:
    """Apply the adapter stored in `folder` to a loaded base model."""
    from peft import PeftModel

    return PeftModel.from_pretrained(base, folder).eval()


def shipped_dtype(source: Source) -> str:
    """Return the dtype of merged weights, which is the dtype in the base's config."""
    place = Path(source.base_place) / "config.json"
    if place.is_file():
        config = json.loads(place.read_text(encoding="utf-8"))
        name = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    else:
        from transformers import AutoConfig

        name = str(AutoConfig.from_pretrained(source.base_place).dtype or "float32")
    name = name.removeprefix("torch.")
    if name not in _DTYPES:
        raise InvalidInput(
            f"the base {source.base} is stored as {name}; merged weights can only be written as "
            f"{', '.join(_DTYPES)}. Ship the adapter alone with --form adapter"
        )
    return name


def adapter_rank(source: Source) -> int:
    """Return the largest rank in the adapter; 0 if the checkpoint has none."""
    if not source.is_adapter:
        return 0
    config = json.loads((source.checkpoint / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    return max([int(config.get("r") or 0), *map(int, (config.get("rank_pattern") or {}).values())])


def context_length(source: Source) -> int:
    """Return the base's maximum sequence length in tokens; 4096 if its config has none."""
    from transformers import AutoConfig

    return max_positions_of(AutoConfig.from_pretrained(source.base_place)) or 4096


def base_licence(source: Source) -> str:
    """Return the licence of the base from a model card on this machine, or of smollm2 from a
    constant; empty if unknown."""
    card = Path(source.base_place) / "README.md"
    if card.is_file():
        return str(read_front_matter(card.read_text(encoding="utf-8")).get("license") or "")
    if source.base == "smollm2":
        return "apache-2.0"
    if is_public(source.base):
        return _hub_licence(source.base)
    return ""


def _hub_licence(name: str) -> str:
    """Return the licence in the model card in the local hub cache; downloads nothing."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "README.md")
    if not isinstance(found, str):
        return ""
    return str(read_front_matter(Path(found).read_text(encoding="utf-8")).get("license") or "")
