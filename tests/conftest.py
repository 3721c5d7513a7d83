"""What many tests share: codecs of every family, the tiny model, a fake chat server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import pytest

from sparring.models.cache import development_model
from sparring.models.tiny import CHATML, LLAMA, build_tokenizer
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family, family_named
from tests.families import FORGETFUL
from tests.servers import ChatServer

FAMILIES = ("qwen3", "qwen2.5", "llama3", "smollm2", "forgetful")


# A busy machine is not a fault; what must be quick is measured beside something else.
hypothesis.settings.register_profile("sparring", deadline=None)
hypothesis.settings.load_profile("sparring")


@pytest.fixture(scope="session")
def codecs() -> dict[str, ChatCodec]:
    tokenizers = {special: build_tokenizer(special) for special in (CHATML, LLAMA)}

    def codec(name: str) -> ChatCodec:
        family: Family = FORGETFUL if name == "forgetful" else family_named(name)
        return ChatCodec(tokenizers[LLAMA if name == "llama3" else CHATML], family)

    return {name: codec(name) for name in FAMILIES}


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return development_model("tiny", tmp_path_factory.mktemp("cache"))


@pytest.fixture
def tiny_policy(tiny_folder: Path) -> Any:
    from sparring.policies.transformers_policy import TransformersPolicy

    return TransformersPolicy.load(str(tiny_folder))


@pytest.fixture
def chat_server() -> Any:
    with ChatServer() as server:
        yield server
