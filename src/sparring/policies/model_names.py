"""Resolves the ways in which people write a model's name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import UnknownModel
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import chosen_of, list_checkpoints

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
    """A Hugging Face model: a folder on this machine, or a repository of the hub."""

    text: str
    is_development: bool = False


def resolve_model_name(name: str) -> ModelName:
    """Resolve `Qwen/Qwen3-0.6B`, a folder, `hf.co/…-GGUF:Q8_0` or `litellm/ollama_chat/hf.co/…`.

    A folder holds a model, an adapter, or a training run, which stands for its best checkpoint.
    A GGUF repository stands for the model that it was converted from: training starts from the
    original weights, and the result is exported to GGUF again.
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
    """Return the best checkpoint, else the last, if the folder is a training run; else the
    folder."""
    if not (folder / "spec.json").is_file():
        return folder
    chosen = chosen_of(list_checkpoints(RunFolder(folder).checkpoints))
    if chosen is None:
        raise UnknownModel(
            f"the run {folder} has no checkpoint yet; wait for one, or resume the run"
        )
    return chosen.path


def locate(name: str) -> str:
    """Return what transformers loads for a name; builds a development model on first use."""
    resolved = resolve_model_name(name)
    if not resolved.is_development:
        return resolved.text
    from sparring.models.cache import development_model

    return str(development_model(resolved.text))
