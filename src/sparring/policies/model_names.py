"""The several ways people write a model's name, brought to one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import UnknownModel
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import best_of, list_checkpoints

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
    """One Hugging Face model: a folder on this machine, or a repository of the hub."""

    text: str
    is_development: bool = False


def resolve_model_name(name: str) -> ModelName:
    """`Qwen/Qwen3-0.6B`, a folder, `hf.co/…-GGUF:Q8_0`, `litellm/ollama_chat/hf.co/…`.

    A folder holds a model, an adapter, or a training run, which means its best checkpoint.

    A GGUF repository means the model that it was made from: weights are trained from the
    original, and exported to GGUF again afterwards.
    """
    if name in DEVELOPMENT_MODELS:
        return ModelName(name, is_development=True)
    folder = _checkpoint_of(Path(name).expanduser())
    if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file():
        return ModelName(str(folder.resolve()))
    if folder.is_dir() and _REPOSITORY.fullmatch(name) is None:
        raise UnknownModel(
            f"the folder {folder.resolve()} holds no model: it has no config.json. Models are "
            "written by save_pretrained, or named as in Qwen/Qwen3-0.6B"
        )
    bare = name
    while prefix := next((each for each in _PREFIXES if bare.startswith(each)), None):
        bare = bare.removeprefix(prefix)
    bare = bare.partition(":")[0]
    bare = re.sub(r"[-_]GGUF$", "", bare, flags=re.IGNORECASE)
    if not _REPOSITORY.fullmatch(bare):
        raise UnknownModel(
            f"{name!r} is neither a folder nor a model of the hub. Write it as Qwen/Qwen3-0.6B, "
            "as a folder, as hf.co/Qwen/Qwen3-0.6B-GGUF:Q8_0, or as one of the development "
            f"models ({', '.join(DEVELOPMENT_MODELS)}); for a model behind a server, "
            "evaluate it with --endpoint URL"
        )
    return ModelName(bare)


def _checkpoint_of(folder: Path) -> Path:
    """The best checkpoint of a training run, where the folder is one; else its last."""
    if not (folder / "spec.json").is_file():
        return folder
    there = list_checkpoints(RunFolder(folder).checkpoints)
    if not there:
        raise UnknownModel(
            f"the run {folder} has no checkpoint yet; wait for one, or go on with it"
        )
    return (best_of(there) or there[-1]).path


def locate(name: str) -> str:
    """What transformers loads for a name; a development model is built on first use."""
    resolved = resolve_model_name(name)
    if not resolved.is_development:
        return resolved.text
    from sparring.models.cache import development_model

    return str(development_model(resolved.text))
