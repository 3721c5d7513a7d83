"""llama.cpp is found where it may be, and its server tokenises, renders and computes as we do."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from sparring.contracts.errors import (
    FaultyArtefact,
    InfrastructureError,
    InvalidInput,
    MissingPackage,
)
from sparring.shipping import llama_cpp
from sparring.shipping.artefacts import Artefact
from sparring.shipping.llama_cpp import (
    VARIABLE,
    LlamaCpp,
    LlamaServer,
    find_llama_cpp,
    quantize,
    served,
)
from sparring.shipping.source import Source
from tests.shipping.made import has_server

ALPHABET = (
    "abcdefghij ABC  0123456789\n\t.,;:!?'\"{}[]()<>|/\\_-+=*&^%$#@~`"
    "äöüßéñçøåλπωжщю我想在工作アイウ한국어🚀😁\u200d\u00a0\u2003"
)


def program(folder: Path, name: str, text: str = "#!/bin/sh\nexit 0\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return folder / name


def test_llama_cpp_is_found_by_argument_before_variable_and_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("argument/build/bin", "variable", "path"):
        program(tmp_path / place, "llama-server")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert find_llama_cpp().server[0].startswith(str(tmp_path / "path"))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "variable"))
    assert find_llama_cpp().server[0].startswith(str(tmp_path / "variable"))
    found = find_llama_cpp(str(tmp_path / "argument"))
    assert found.server[0].startswith(str(tmp_path / "argument"))
    (tmp_path / "variable" / "convert_hf_to_gguf.py").write_text("")
    assert find_llama_cpp().converter == (
        sys.executable, str(tmp_path / "variable" / "convert_hf_to_gguf.py")
    )  # fmt: skip


def test_a_relative_folder_is_not_looked_up_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = program(tmp_path / "mine", "llama-server")
    program(tmp_path / "path", "llama-server")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.chdir(tmp_path / "mine")
    found = find_llama_cpp(".")
    assert found.server == (str(mine),)
    assert found.about == "llama-server", "reports name no path of this machine"


def test_a_named_folder_without_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no llama-server, llama-quantize or"):
        find_llama_cpp(str(tmp_path))


def test_without_it_the_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingPackage, match=r"pip install .*\[ship\]'"):  # noqa: SIM117
        with served(LlamaCpp(), tmp_path / "x.gguf", tmp_path / "log"):
            pass
    with pytest.raises(MissingPackage, match=r"q4_k_m needs llama.cpp's quantiser"):
        quantize(LlamaCpp(), tmp_path / "a", tmp_path / "b", "q4_k_m")


def test_a_quantiser_that_fails_is_quoted(tmp_path: Path) -> None:
    broken = program(tmp_path, "llama-quantize", "#!/bin/sh\necho no such type >&2\nexit 3\n")
    with pytest.raises(InfrastructureError, match="q4_k_m ended with exit code 3: no such type"):
        quantize(LlamaCpp(quantize=(str(broken),)), tmp_path / "a", tmp_path / "b", "q4_k_m")


@pytest.mark.skipif(not has_server(), reason="no llama.cpp server is installed")
def test_a_thousand_fuzzed_strings_have_the_same_ids(
    artefacts: dict[str, Artefact], source: Source, tmp_path: Path
) -> None:
    draw = random.Random(7)
    texts = ["".join(draw.choices(ALPHABET, k=draw.randint(1, 60))) for _ in range(1000)]
    backend = source.tokenizer.backend_tokenizer
    place = artefacts["gguf f16"].place
    with served(find_llama_cpp(), place, tmp_path / "log") as server:
        different = [
            text
            for text in texts
            if server.tokenize(text) != backend.encode(text, add_special_tokens=False).ids
        ]
        assert different == []
        with pytest.raises(FaultyArtefact, match=r"llama.cpp refuses /apply-template"):
            server.post("/apply-template", {"messages": "none"})


@pytest.mark.skipif(not has_server(), reason="no llama.cpp server is installed")
def test_greedy_tokens_are_those_of_transformers(
    artefacts: dict[str, Artefact], source: Source, tmp_path: Path
) -> None:
    import torch

    from sparring.policies.pretrained import load_weights

    model = load_weights(str(artefacts["merged"].place), dtype=torch.float32).eval()
    ids = source.codec().tokenizer("What is 12 + 34?")["input_ids"]
    ours = list(ids)
    with torch.inference_mode():
        for _ in range(24):
            ours.append(int(model(torch.tensor([ours])).logits[0, -1].argmax()))
    body = {"prompt": ids, "n_predict": 24, "temperature": 0, "return_tokens": True}
    body["ignore_eos"] = True
    with served(find_llama_cpp(), artefacts["gguf f32"].place, tmp_path / "log") as server:
        theirs = server.post("/completion", body)["tokens"]
    end = source.codec().end_of_turn
    assert theirs[:12] == [each for each in ours[len(ids) :] if each != end][:12]


def test_a_server_that_is_gone_is_an_infrastructure_error() -> None:
    with pytest.raises(InfrastructureError, match="did not answer /props"):
        LlamaServer("http://127.0.0.1:9").get("/props")


def test_the_module_that_serves_a_package_is_a_command_of_this_python() -> None:
    assert llama_cpp.LlamaCpp((sys.executable, "-m", "x")).about == "xllamacpp"
    assert LlamaCpp(("/opt/llama-server",)).about == "llama-server"
    assert LlamaCpp().about == "none"
