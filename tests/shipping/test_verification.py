"""Sound artefacts pass, with figures; every planted fault is refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import FaultyArtefact
from sparring.shipping.artefacts import Artefact
from sparring.shipping.gguf_file import GgufFacts, write_gguf
from sparring.shipping.llama_cpp import find_llama_cpp, served
from sparring.shipping.source import Source
from sparring.shipping.tokenizer_files import SAMPLING
from sparring.shipping.verification import Reference, verify_folder, verify_server
from tests.shipping.made import TEMPERATURE, edit_json, has_server, made_source, written

served_only = pytest.mark.skipif(not has_server(), reason="no llama.cpp server is installed")
PLAIN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
SOUND = GgufFacts("made", sampling={"temperature": TEMPERATURE, **SAMPLING})


@pytest.fixture
def copies(artefacts: dict[str, Artefact], tmp_path: Path) -> Any:
    """A copy of an artefact's folder, to be damaged."""

    def copy(name: str) -> Path:
        return shutil.copytree(artefacts[name].place, tmp_path / name)

    return copy


def verify_file(path: Path, reference: Reference, quantization: str) -> dict[str, Any]:
    with served(find_llama_cpp(), path, path.with_suffix(".log"), context=2048) as server:
        return verify_server(server, reference, quantization=quantization, about="test")


# ---------------------------------------------------------------------- sound ones


@pytest.mark.parametrize("name", ["adapter", "merged"])
def test_a_sound_folder_gives_the_prompts_and_probabilities_of_its_checkpoint(
    name: str, artefacts: dict[str, Artefact], reference: Reference
) -> None:
    found = verify_folder(artefacts[name].place, reference, dtype="float32")
    assert found["prompts"]["conversations"] == 11
    assert found["gap"]["largest"] < 1e-4
    assert found["gap"]["same_best"] == found["gap"]["positions"] == 24
    assert found["learned"] > 0.01
    assert not found["warning"]


@served_only
@pytest.mark.parametrize(("quantization", "largest"), [("f32", 1e-2), ("f16", 2e-2), ("q8_0", 0.2)])
def test_a_sound_gguf_file_does_so_in_the_server_of_llama_cpp(
    quantization: str,
    largest: float,
    artefacts: dict[str, Artefact],
    reference: Reference,
) -> None:
    found = verify_file(artefacts[f"gguf {quantization}"].place, reference, quantization)
    assert found["prompts"]["conversations"] == 11
    assert found["gap"]["largest"] < largest
    assert found["gap"]["unseen"] <= 1  # half of a character, of which the server says nothing


# ---------------------------------------------------------------------- planted faults


def test_an_adapter_with_a_wrong_prefix_is_refused(copies: Any, reference: Reference) -> None:
    from safetensors.torch import load_file, save_file

    folder = copies("adapter")
    tensors = load_file(folder / "adapter_model.safetensors")
    renamed = {
        name.replace("base_model.model.model", "model.model"): each
        for name, each in tensors.items()
    }
    save_file(renamed, folder / "adapter_model.safetensors")
    with pytest.raises(FaultyArtefact, match=r"name no module of the base.*serves the base model"):
        verify_folder(folder, reference, dtype="float32")


def test_an_adapter_that_lacks_a_module_is_refused(copies: Any, reference: Reference) -> None:
    from safetensors.torch import load_file, save_file

    folder = copies("adapter")
    tensors = load_file(folder / "adapter_model.safetensors")
    kept = {name: each for name, each in tensors.items() if "q_proj" not in name}
    save_file(kept, folder / "adapter_model.safetensors")
    with pytest.raises(FaultyArtefact, match="has no tensors for q_proj"):
        verify_folder(folder, reference, dtype="float32")


def test_an_adapter_that_changes_nothing_is_refused(copies: Any, reference: Reference) -> None:
    """Its names are right and its second matrices zero, as before any step of training."""
    from safetensors.torch import load_file, save_file

    folder = copies("adapter")
    tensors = load_file(folder / "adapter_model.safetensors")
    empty = {name: each * 0 if "lora_B" in name else each for name, each in tensors.items()}
    save_file(empty, folder / "adapter_model.safetensors")
    with pytest.raises(FaultyArtefact, match=r"the training is lost: .* closer to the base model"):
        verify_folder(folder, reference, dtype="float32")


def test_an_adapter_with_another_scale_is_refused(copies: Any, reference: Reference) -> None:
    folder = copies("adapter")
    edit_json(folder / "adapter_config.json", lora_alpha=12)
    with pytest.raises(FaultyArtefact, match="other weights"):
        verify_folder(folder, reference, dtype="float32")


def test_a_merge_without_the_adapter_is_refused(
    copies: Any, reference: Reference, tiny_folder: Path
) -> None:
    folder = copies("merged")
    shutil.copyfile(tiny_folder / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(FaultyArtefact, match=r"the training is lost: .* closer to the base model"):
        verify_folder(folder, reference, dtype="float32")


def test_the_weights_of_another_checkpoint_are_refused(
    copies: Any, reference: Reference, tiny_folder: Path, tmp_path: Path
) -> None:
    other = written(made_source(tiny_folder, tmp_path / "other", seed=1), tmp_path / "at")
    folder = copies("merged")
    shutil.copyfile(other["merged"].place / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(FaultyArtefact, match=r"other weights|training is lost"):
        verify_folder(folder, reference, dtype="float32")


def test_a_template_without_tools_is_refused(copies: Any, reference: Reference) -> None:
    folder = copies("merged")
    (folder / "chat_template.jinja").write_text(PLAIN)
    with pytest.raises(FaultyArtefact, match=r"template leaves out the tools .*ring, search"):
        verify_folder(folder, reference, dtype="float32")


def test_a_template_with_one_other_character_is_refused_with_its_place(
    copies: Any, reference: Reference
) -> None:
    folder = copies("merged")
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text().replace("# Tools", "# tools"))
    with pytest.raises(
        FaultyArtefact, match=r"renders a different prompt: case case 0 differs at character 2\d"
    ):
        verify_folder(folder, reference, dtype="float32")


def test_a_missing_stop_token_is_refused(copies: Any, reference: Reference) -> None:
    folder = copies("merged")
    edit_json(folder / "generation_config.json", eos_token_id=502)
    with pytest.raises(FaultyArtefact, match=r"lacks the stop token <\|im_end\|>"):
        verify_folder(folder, reference, dtype="float32")


def test_other_sampling_than_that_of_the_proof_is_refused(
    copies: Any, reference: Reference
) -> None:
    folder = copies("merged")
    edit_json(folder / "generation_config.json", top_k=40)
    with pytest.raises(FaultyArtefact, match="top_k=40, but the model was proved with 0"):
        verify_folder(folder, reference, dtype="float32")


def test_a_tokenizer_with_a_shifted_vocabulary_is_refused(
    copies: Any, reference: Reference
) -> None:
    folder = copies("merged")
    content = json.loads((folder / "tokenizer.json").read_text())
    words = content["model"]["vocab"]
    names = sorted(words, key=lambda word: words[word])
    content["model"]["vocab"] = {name: (at + 1) % len(names) for at, name in enumerate(names)}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(
        FaultyArtefact, match="tokenizer splits or numbers the same text differently"
    ):
        verify_folder(folder, reference, dtype="float32")


def test_a_tokenizer_that_lost_a_token_is_refused(copies: Any, reference: Reference) -> None:
    """`<tool_call>` is then spelt out, in pieces that the model was never trained on."""
    folder = copies("merged")
    content = json.loads((folder / "tokenizer.json").read_text())
    added = content["added_tokens"]
    content["added_tokens"] = [each for each in added if each["content"] != "<tool_call>"]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    known = config.get("added_tokens_decoder") or {}
    kept = {key: each for key, each in known.items() if each["content"] != "<tool_call>"}
    edit_json(folder / "tokenizer_config.json", added_tokens_decoder=kept or None)
    with pytest.raises(
        FaultyArtefact, match="tokenizer splits or numbers the same text differently"
    ):
        verify_folder(folder, reference, dtype="float32")


@served_only
def test_a_gguf_file_of_another_checkpoint_is_refused(
    reference: Reference, tiny_folder: Path, tmp_path: Path
) -> None:
    other = written(made_source(tiny_folder, tmp_path / "other", seed=1), tmp_path / "at", "q8_0")
    with pytest.raises(FaultyArtefact, match=r"other weights|training is lost"):
        verify_file(other["gguf q8_0"].place, reference, "q8_0")


@served_only
def test_a_gguf_file_whose_template_has_no_tools_is_refused(
    copies: Any, reference: Reference, tmp_path: Path
) -> None:
    folder = copies("merged")
    (folder / "chat_template.jinja").write_text(PLAIN)
    edit_json(folder / "tokenizer_config.json", chat_template=PLAIN)
    write_gguf(folder, tmp_path / "plain.gguf", "f16", SOUND)
    with pytest.raises(FaultyArtefact, match=r"template leaves out the tools .*ring, search"):
        verify_file(tmp_path / "plain.gguf", reference, "f16")


@served_only
def test_a_gguf_file_of_the_base_is_refused(
    copies: Any, reference: Reference, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = copies("merged")
    shutil.copyfile(tiny_folder / "model.safetensors", folder / "model.safetensors")
    write_gguf(folder, tmp_path / "base.gguf", "q8_0", SOUND)
    with pytest.raises(FaultyArtefact, match="the training is lost"):
        verify_file(tmp_path / "base.gguf", reference, "q8_0")


@served_only
def test_a_gguf_file_with_the_default_sampling_of_servers_is_refused(
    copies: Any, reference: Reference, tmp_path: Path
) -> None:
    write_gguf(copies("merged"), tmp_path / "plain.gguf", "f16", GgufFacts("made"))
    with pytest.raises(FaultyArtefact, match="makes servers sample with top_k=40"):
        verify_file(tmp_path / "plain.gguf", reference, "f16")


@served_only
def test_a_gguf_file_with_another_end_of_turn_is_refused(
    copies: Any, reference: Reference, tmp_path: Path
) -> None:
    folder = copies("merged")
    edit_json(folder / "tokenizer_config.json", eos_token="<tool_call>")
    edit_json(folder / "config.json", eos_token_id=505)
    write_gguf(folder, tmp_path / "endless.gguf", "f16", SOUND)
    with pytest.raises(FaultyArtefact, match="the stop token is missing"):
        verify_file(tmp_path / "endless.gguf", reference, "f16")


@served_only
def test_a_gguf_file_with_another_pre_tokenizer_is_refused(
    copies: Any, reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparring.shipping.gguf_vocabulary.pre_tokenizer_of", lambda _: "smollm")
    write_gguf(copies("merged"), tmp_path / "digits.gguf", "f16", SOUND)
    with pytest.raises(
        FaultyArtefact, match="tokenizer splits or numbers the same text differently"
    ):
        verify_file(tmp_path / "digits.gguf", reference, "f16")


def test_too_coarse_a_quantisation_is_warned_about(
    source: Source, reference: Reference, copies: Any
) -> None:
    """Weights rounded to a few values: closer to the checkpoint than to the base, and damaged."""
    from safetensors.torch import load_file, save_file

    folder = copies("merged")
    tensors = load_file(folder / "model.safetensors")
    rounded = {
        name: (each / each.abs().max() * 7).round() / 7 * each.abs().max()
        if each.ndim > 1
        else each
        for name, each in tensors.items()
    }
    save_file(rounded, folder / "model.safetensors", metadata={"format": "pt"})
    found = verify_folder(folder, reference, dtype="q2_k")
    assert "may have undone part of the training" in found["warning"]
