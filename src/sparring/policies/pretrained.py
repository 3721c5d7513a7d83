"""Weights, tokenizers and configurations from a hub or a folder. Code that a model brings along is
never run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparring.contracts.errors import UnknownModel
from sparring.policies.model_names import locate


def load_tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    with _refused_by_name(name):
        return AutoTokenizer.from_pretrained(locate(name), trust_remote_code=False)


def model_type_of(name: str) -> str:
    """The architecture that a model's configuration names."""
    from transformers import AutoConfig

    with _refused_by_name(name):
        return str(AutoConfig.from_pretrained(locate(name), trust_remote_code=False).model_type)


def load_weights(name: str, *, to_train: bool = False, **options: Any) -> Any:
    """A causal language model. An adapter in the folder comes with it: as one of PEFT's models
    where it is to be trained."""
    from transformers import AutoModelForCausalLM

    place = locate(name)
    with _refused_by_name(name):
        if to_train and (Path(place) / "adapter_config.json").is_file():
            from peft import AutoPeftModelForCausalLM as AutoModelForCausalLM
        return AutoModelForCausalLM.from_pretrained(place, trust_remote_code=False, **options)


@contextmanager
def _refused_by_name(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise UnknownModel(
                f"the model {name!r} brings code of its own, which Sparring does not run; use a "
                "model that transformers knows"
            ) from error
        raise UnknownModel(
            f"the model {name!r} cannot be loaded: {str(error).splitlines()[0]} "
            "Check its name, or download it and give its folder"
        ) from error
