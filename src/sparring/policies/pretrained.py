"""Finds models by name, and loads their tokenizers, configurations and weights.

A name is a repository of the hub, a folder, a run, a GGUF name or a development model. Code that
comes with a model is never run.

bitsandbytes rounds the weights of a 4-bit base while loading them, and the adapter is trained on
the rounded weights. The checkpoint records how the base was rounded, so that `prove`, `chat` and
`ship` load the adapter on the same weights, dequantized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from sparring.contracts.errors import MissingPackage, UnknownModel
from sparring.contracts.specs import Table
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import chosen_of, list_checkpoints
from sparring.run_folder.files import read_json, write_json
from sparring.run_folder.layout import trainings_named

_QUANTIZATION_FILE = "base_quantization.json"
_TOKENIZER = "tokenizer.json"
_HUB_SECONDS = 5.0
_METHOD = "bitsandbytes"  # with other methods, the stored base is already quantized
DEVELOPMENT_MODELS = ("tiny", "smollm2")
_PREFIXES = (
    "litellm/",
    "ollama_chat/",
    "ollama/",
    "huggingface/",
    "https://",
    "hf.co/",
    "huggingface.co/",
)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*")


@dataclass(frozen=True, slots=True)
class ModelName:
    """A resolved name: a folder, a repository of the hub, or the name of a development model."""

    text: str
    is_development: bool = False


def resolve_model_name(name: str) -> ModelName:
    """Resolve `Qwen/Qwen3-0.6B`, a folder, `hf.co/…-GGUF:Q8_0` or `litellm/ollama_chat/hf.co/…`.

    A folder holds a model, an adapter or a training run. A training run resolves to its best
    checkpoint, else its last. A GGUF repository resolves to the repository without the suffix
    `-GGUF`, because training needs the original weights. Raises UnknownModel for other names.
    """
    if name in DEVELOPMENT_MODELS:
        return ModelName(name, is_development=True)
    folder = _checkpoint_of(Path(name).expanduser())
    if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file():
        return ModelName(str(folder.resolve()))
    if folder.is_dir() and _REPOSITORY.fullmatch(name) is None:
        raise UnknownModel(
            f"the folder {folder.resolve()} holds no model: it has no config.json. Pass a folder "
            "written by save_pretrained, or a name such as Qwen/Qwen3-0.6B"
        )
    repository = name
    while prefix := next(
        (candidate for candidate in _PREFIXES if repository.startswith(candidate)), None
    ):
        repository = repository.removeprefix(prefix)
    repository = repository.partition(":")[0]
    repository = re.sub(r"[-_]GGUF$", "", repository, flags=re.IGNORECASE)
    if not _REPOSITORY.fullmatch(repository):
        raise UnknownModel(
            f"{name!r} is neither a folder nor a model of the hub. Write it as Qwen/Qwen3-0.6B, "
            "as a folder, as hf.co/Qwen/Qwen3-0.6B-GGUF:Q8_0, or as one of the development "
            f"models ({', '.join(DEVELOPMENT_MODELS)}); for a model behind a server, "
            "evaluate it with --endpoint URL"
        )
    return ModelName(repository)


def _checkpoint_of(folder: Path) -> Path:
    """Return the best checkpoint, else the last, of a training run, also for the end of its id, as
    in runs/8542; return other folders unchanged."""
    folder = _whole_path(folder)
    if not (folder / "spec.json").is_file():
        return folder
    chosen = chosen_of(list_checkpoints(RunFolder(folder).checkpoints))
    if chosen is None:
        raise UnknownModel(
            f"the run {folder} has no checkpoint yet; wait for one, or resume the run"
        )
    return chosen.path


def _whole_path(folder: Path) -> Path:
    """Return the training run that the end of an id names. Raise UnknownModel if several or none
    of the runs beside it match."""
    named = trainings_named(folder)
    if len(named) == 1:
        return named[0]
    if folder.exists() or not _has_runs(folder.parent):
        return folder
    names = ", ".join(each.name for each in named) or "none"
    raise UnknownModel(
        f"{folder} names no training run; runs in {folder.parent} whose id ends with "
        f"{folder.name}: {names}"
    )


def _has_runs(folder: Path) -> bool:
    return folder.is_dir() and any((each / "spec.json").is_file() for each in folder.iterdir())


def locate(name: str) -> str:
    """Return the folder or repository to load for a name; build a development model on first
    use."""
    resolved = resolve_model_name(name)
    if not resolved.is_development:
        return resolved.text
    from sparring.models.cache import development_model

    return str(development_model(resolved.text))


def load_tokenizer(name: str) -> Any:
    """Load the tokenizer of a model. Raises UnknownModel if it cannot be loaded."""
    from transformers import AutoTokenizer

    path = locate(name)
    with _translated_errors(name):
        return AutoTokenizer.from_pretrained(path, trust_remote_code=False, **_source(path))


def origin_of(tokenizer: Any) -> dict[str, str]:
    """Return where a tokenizer was loaded from: its file and, for a model of the hub, the revision;
    empty if it has no file."""
    from huggingface_hub import try_to_load_from_cache

    name = str(getattr(tokenizer, "name_or_path", ""))
    own = Path(name).expanduser() / _TOKENIZER
    if own.is_file():
        return {"tokenizer": str(own.resolve())}
    cached = try_to_load_from_cache(name, _TOKENIZER) if _REPOSITORY.fullmatch(name) else None
    if not isinstance(cached, str):
        return {}
    return {"tokenizer": cached, "revision": Path(cached).parent.name}


def _source(path: str) -> dict[str, bool]:
    """Return the arguments that keep transformers from waiting for a hub that does not answer,
    which it tries for more than a minute. Raises UnknownModel if nothing of the model is here."""
    from huggingface_hub import constants, get_session, try_to_load_from_cache

    if Path(path).is_dir():
        return {}
    try:
        get_session().head(constants.ENDPOINT, timeout=_HUB_SECONDS)
    except (httpx2.HTTPError, OSError) as error:
        if not isinstance(try_to_load_from_cache(path, "config.json"), str):
            raise UnknownModel(
                f"the model {path!r} is not on this machine, and {constants.ENDPOINT} does not "
                f"answer: {error}. Check the name and the network, or download the model "
                "elsewhere and pass its folder"
            ) from error
        return {"local_files_only": True}
    return {}


def max_positions_of(config: Any) -> int | None:
    """Return the maximum sequence length in tokens; None if the configuration states none."""
    text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
    positions = getattr(text_config, "max_position_embeddings", None)
    return int(positions) if positions else None


def load_positions(name: str) -> int | None:
    """Return the maximum sequence length of a model in tokens; None if its configuration states
    none."""
    from transformers import AutoConfig

    path = locate(name)
    with _translated_errors(name):
        config = AutoConfig.from_pretrained(path, trust_remote_code=False, **_source(path))
    return max_positions_of(config)


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
        return AutoModelForCausalLM.from_pretrained(
            path, trust_remote_code=False, **_source(path), **options
        )


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


def record_quantization(model: Any, checkpoint: Path) -> None:
    """Write to a checkpoint how bitsandbytes rounded its base; do nothing for other models."""
    config = getattr(model.config, "quantization_config", None)
    if config is None or isinstance(config, dict):
        return
    fields = {name: _plain(value) for name, value in config.to_dict().items()}
    if fields.get("quant_method") == _METHOD:
        write_json(checkpoint / _QUANTIZATION_FILE, {"format": 1, "quantization": fields})


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
    file = checkpoint / _QUANTIZATION_FILE
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
