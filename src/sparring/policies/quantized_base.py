"""Loads adapters of a 4-bit base on the weights that they were trained on.

bitsandbytes rounds the weights of the base while loading them, and the adapter is trained on the
rounded weights. The checkpoint records how the base was rounded, so that `prove`, `chat` and `ship`
load the adapter on the same weights, dequantized.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparring.contracts.errors import MissingPackage
from sparring.contracts.specs import Table
from sparring.policies.model_names import locate
from sparring.run_folder.files import read_json, write_json

_FILE = "base_quantization.json"
_METHOD = "bitsandbytes"  # with other methods, the stored base is already quantized


def record_quantization(model: Any, checkpoint: Path) -> None:
    """Write to a checkpoint how bitsandbytes rounded its base; do nothing for other models."""
    config = getattr(model.config, "quantization_config", None)
    if config is None or isinstance(config, dict):
        return
    fields = {name: _plain(value) for name, value in config.to_dict().items()}
    if fields.get("quant_method") == _METHOD:
        write_json(checkpoint / _FILE, {"format": 1, "quantization": fields})


def widen_adapter(model: Any) -> None:
    """Cast trainable bfloat16 weights to float32. TRL casts the adapter of a 4-bit base to
    bfloat16, in which an update of 1e-5 is lost. Resuming, which loads float32, would also change
    the run."""
    import torch

    for weights in model.parameters():
        if weights.requires_grad and weights.dtype is torch.bfloat16:
            weights.data = weights.data.float()


def quantization_of(checkpoint: Path) -> Table | None:
    """Return the recorded quantization of a checkpoint's base; None if there is none."""
    file = checkpoint / _FILE
    return dict(read_json(file)["quantization"]) if file.is_file() else None


def load_rounded(base: str, quantization: Table, **options: Any) -> Any:
    """Load a base, quantize it and dequantize it, which gives the weights of a 4-bit training."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    try:
        import bitsandbytes  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "this checkpoint was trained on a 4-bit base, and rounding the base in the same way "
            "needs bitsandbytes: pip install bitsandbytes"
        ) from error
    fields = {name: value for name, value in quantization.items() if not name.startswith("_")}
    config = BitsAndBytesConfig.from_dict(fields)
    model = AutoModelForCausalLM.from_pretrained(
        locate(base), trust_remote_code=False, quantization_config=config, **options
    )
    return model.dequantize()


def load_adapted(checkpoint: Path, quantization: Table, **options: Any) -> Any:
    """Load the adapter of a checkpoint on its rounded base, as a PEFT model."""
    from peft import PeftModel

    base = str(read_json(checkpoint / "adapter_config.json")["base_model_name_or_path"])
    return PeftModel.from_pretrained(load_rounded(base, quantization, **options), checkpoint)


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)
