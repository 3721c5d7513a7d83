"""Loads weights, tokenizers and configurations from the hub or a folder. Code that comes with a
model is never run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparring.contracts.errors import UnknownModel
from sparring.policies.model_names import locate
from sparring.policies.quantized_base import load_adapted, quantization_of


def load_tokenizer(name: str) -> Any:
    """Load the tokenizer of a model. Raises UnknownModel if it cannot be loaded."""
    from transformers import AutoTokenizer

    with _translated_errors(name):
        return AutoTokenizer.from_pretrained(locate(name), trust_remote_code=False)


def max_positions_of(config: Any) -> int | None:
    """Return the maximum sequence length in tokens; None if the configuration states none."""
    text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
    positions = getattr(text_config, "max_position_embeddings", None)
    return int(positions) if positions else None


def load_positions(name: str) -> int | None:
    """Return the maximum sequence length of a model in tokens; None if its configuration states
    none."""
    from transformers import AutoConfig

    with _translated_errors(name):
        return max_positions_of(AutoConfig.from_pretrained(locate(name), trust_remote_code=False))


def load_weights(name: str, *, to_train: bool = False, **options: Any) -> Any:
    """Load a causal language model. If its folder holds an adapter, load the adapter on its base; a
    base that was quantized in training is rounded in the same way. With `to_train`, an adapter is
    loaded with PEFT, so that it can be trained further."""
    from transformers import AutoModelForCausalLM

    path = locate(name)
    with _translated_errors(name):
        if (quantization := quantization_of(Path(path))) is not None:
            return load_adapted(Path(path), quantization, **options)
        if to_train and (Path(path) / "adapter_config.json").is_file():
            from peft import AutoPeftModelForCausalLM as AutoModelForCausalLM
        return AutoModelForCausalLM.from_pretrained(path, trust_remote_code=False, **options)


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    """Convert OSError and ValueError into UnknownModel, with the model's name."""
    try:
        yield
    except (OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise UnknownModel(
                f"the model {name!r} requires its own code, which Sparring does not run; use a "
                "model that transformers supports"
            ) from error
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UnknownModel(
            f"the model {name!r} cannot be loaded: {reason}. Check its name, or download it and "
            "pass its folder"
        ) from error
