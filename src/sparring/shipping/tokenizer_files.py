"""Writes tokenizer files and generation configs that other programs can load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparring.run_folder.files import read_json, write_json, write_text
from sparring.shipping.template import shipped_template

TEMPLATE = "chat_template.jinja"
SAMPLING = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}


def write_tokenizer(tokenizer: Any, folder: Path, template: str) -> None:
    """Write a tokenizer with a template that every Jinja implementation renders, and with a
    tokenizer class that exists in transformers 4 and 5."""
    tokenizer.save_pretrained(folder)
    config = read_json(folder / "tokenizer_config.json")
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    for name in (
        "name_or_path",
        "backend",
        "is_local",
        "local_files_only",
    ):  # specific to this machine or version
        config.pop(name, None)
    shipped = shipped_template(template)
    config["chat_template"] = shipped  # for loaders that do not read chat_template.jinja
    write_json(folder / "tokenizer_config.json", config)
    write_text(folder / TEMPLATE, shipped)


def generation_config(
    temperature: float, stop_ids: Sequence[int], tokenizer: Any
) -> dict[str, Any]:
    """Return the generation config: sampling as in the proof, and all tokens that end a turn. It
    sets every sampling parameter, because servers have other defaults."""
    config: dict[str, Any] = {
        "do_sample": temperature > 0,
        "temperature": temperature if temperature > 0 else 1.0,
        **SAMPLING,
        "eos_token_id": list(stop_ids),
    }
    for name in ("pad_token_id", "bos_token_id"):
        if (number := getattr(tokenizer, name, None)) is not None:
            config[name] = int(number)
    return config
