"""What many tests share: codecs of every family, tiny models, a fake chat server."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from filelock import FileLock

from sparring.models.cache import development_model
from sparring.models.tiny import CHATML, LLAMA, build_tokenizer
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family, family_named
from tests.families import FORGETFUL
from tests.servers import ChatServer

FAMILIES = ("qwen3", "qwen2.5", "llama3", "smollm2", "forgetful")


# A shell that starts us in the background ignores SIGINT, and so would every program we start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is not a fault; what must be quick is measured beside something else.
hypothesis.settings.register_profile("sparring", deadline=None)
hypothesis.settings.load_profile("sparring")


@pytest.fixture(scope="session")
def codecs() -> dict[str, ChatCodec]:
    """Codecs that keep the thinking of earlier turns, so that every turn continues its row."""
    tokenizers = {special: build_tokenizer(special) for special in (CHATML, LLAMA)}

    def codec(name: str) -> ChatCodec:
        family: Family = FORGETFUL if name == "forgetful" else family_named(name)
        kept = family.adapted(history_thinking="keep")
        return ChatCodec(tokenizers[LLAMA if name == "llama3" else CHATML], kept)

    return {name: codec(name) for name in FAMILIES}


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return development_model("tiny", tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def warm_folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that calls tools: built once for all test processes, in a process of its own."""
    from tests.jobs.porter import warm_model

    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if base.name.startswith("popen-") else base) / "warm-model"
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            context = multiprocessing.get_context("spawn")
            building = context.Process(target=warm_model, args=(tiny_folder, base / "warm-build"))
            building.start()
            building.join()
            assert building.exitcode == 0
            (base / "warm-build").rename(shared)
    return shared / "warm" / "checkpoints" / "step-0"


@pytest.fixture
def tiny_policy(tiny_folder: Path) -> Any:
    from sparring.policies.transformers_policy import TransformersPolicy

    return TransformersPolicy.load(str(tiny_folder))


@pytest.fixture
def chat_server() -> Any:
    with ChatServer() as server:
        yield server
