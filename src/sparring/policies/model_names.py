"""Resolves model names: repositories of the hub, folders, runs, GGUF names, development models."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.errors import UnknownModel
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import chosen_of, list_checkpoints
from sparring.run_folder.layout import trainings_named

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
