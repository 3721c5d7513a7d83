from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput, MissingPackage, UnknownModel
from sparring.contracts.kinds import Form
from sparring.policies.pretrained import (
    load_positions,
    load_rounded,
    load_tokenizer,
    load_weights,
    origin_of,
    quantization_of,
    record_quantization,
    resolve_model_name,
)
from sparring.run_folder.files import write_json
from sparring.shipping.artefacts import chosen_forms

CODE = "raise SystemExit('this must never run')\n"


@pytest.fixture
def bringing_code(tiny_folder, tmp_path):
    """A model folder that names classes of its own, and holds the file that has them."""
    place = tmp_path / "model"
    shutil.copytree(tiny_folder, place)
    config = json.loads((place / "config.json").read_text())
    own = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    config |= {"model_type": "own", "auto_map": own}
    (place / "config.json").write_text(json.dumps(config))
    (place / "own.py").write_text(CODE)
    return str(place)


@pytest.mark.parametrize("load", [load_weights, load_positions])
def test_a_model_with_code_of_its_own_is_refused_without_a_question(bringing_code, load):
    with pytest.raises(UnknownModel, match="requires its own code"):
        load(bringing_code)


def test_a_model_that_is_not_there_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UnknownModel, match="cannot be loaded"):
        load_tokenizer(str(tmp_path))


def test_a_model_that_is_nowhere_fails_at_once_when_the_hub_does_not_answer(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens
    started = time.monotonic()
    with pytest.raises(UnknownModel, match=r"'me/none' is not on this machine.*pass its folder"):
        load_tokenizer("me/none")
    assert time.monotonic() - started < 10


def test_a_model_of_the_hub_that_is_here_is_loaded_without_the_hub(
    tiny_folder, tmp_path, monkeypatch
):
    from huggingface_hub import constants

    revision = "0" * 40
    cached = tmp_path / "models--me--tiny"
    shutil.copytree(tiny_folder, cached / "snapshots" / revision)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(revision)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    tokenizer = load_tokenizer("me/tiny")
    file = cached / "snapshots" / revision / "tokenizer.json"
    assert origin_of(tokenizer) == {"tokenizer": str(file), "revision": revision}


def test_a_tokenizer_comes_from_its_folder(tiny_folder):
    tokenizer = load_tokenizer(str(tiny_folder))
    assert origin_of(tokenizer) == {"tokenizer": str((tiny_folder / "tokenizer.json").resolve())}
    assert origin_of(object()) == {}


@pytest.mark.parametrize(
    "written",
    [
        "Qwen/Qwen3-0.6B",
        "hf.co/Qwen/Qwen3-0.6B-GGUF:Q8_0",
        "litellm/ollama_chat/hf.co/Qwen/Qwen3-0.6B-GGUF:Q8_0",
        "ollama_chat/hf.co/Qwen/Qwen3-0.6B-GGUF",
        "https://huggingface.co/Qwen/Qwen3-0.6B",
    ],
)
def test_every_way_of_writing_a_name_means_one_model(written):
    assert resolve_model_name(written).text == "Qwen/Qwen3-0.6B"


def test_a_folder_with_a_model_is_taken_as_it_is(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model_name(str(tmp_path)).text == str(tmp_path)


@pytest.mark.parametrize("written", ["gpt-5", "", "a/b/c", "../../etc", "Qwen/"])
def test_a_model_name_of_no_known_form_is_refused_with_the_known_forms(written):
    with pytest.raises(UnknownModel, match=r"Qwen/Qwen3-0\.6B"):
        resolve_model_name(written)


def run_folder(runs, name, kind="train"):
    (runs / name).mkdir(parents=True)
    (runs / name / "spec.json").write_text(json.dumps({"kind": kind}))


def test_the_end_of_a_run_s_id_means_the_training_and_not_its_proof(tmp_path):
    run_folder(tmp_path, "talk-20261116-184334-8542")
    run_folder(tmp_path, "proof-talk-20261116-184334-8542", kind="prove")
    with pytest.raises(UnknownModel, match="talk-20261116-184334-8542 has no checkpoint yet"):
        resolve_model_name(f"{tmp_path}/8542")


def test_an_id_that_several_runs_or_none_end_with_is_refused(tmp_path):
    for day in ("16", "17"):
        run_folder(tmp_path, f"talk-202611{day}-184334-8542")
    with pytest.raises(UnknownModel, match=r"8542: talk-20261116.*, talk-20261117"):
        resolve_model_name(f"{tmp_path}/8542")
    with pytest.raises(UnknownModel, match=r"names no training run; .* 77fe: none"):
        resolve_model_name(f"{tmp_path}/77fe")


FOUR_BITS = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


def model(config: dict[str, Any] | None) -> Any:
    own = SimpleNamespace(to_dict=lambda: config) if config else None
    return SimpleNamespace(config=SimpleNamespace(quantization_config=own))


def test_a_checkpoint_states_how_its_base_was_rounded(tmp_path: Path) -> None:
    record_quantization(model(FOUR_BITS), tmp_path)
    assert quantization_of(tmp_path) == FOUR_BITS


def test_a_checkpoint_of_an_unrounded_base_states_nothing(tmp_path: Path) -> None:
    record_quantization(model(None), tmp_path)
    record_quantization(SimpleNamespace(config=SimpleNamespace()), tmp_path)
    record_quantization(model({"quant_method": "gptq", "bits": 4}), tmp_path)
    own = SimpleNamespace(quantization_config={"quant_method": "fp8"})
    record_quantization(SimpleNamespace(config=own), tmp_path)
    assert quantization_of(tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_without_bitsandbytes_the_package_is_named_and_nothing_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    record_quantization(model(FOUR_BITS), tmp_path)
    write_json(tmp_path / "adapter_config.json", {"base_model_name_or_path": "nobody/nothing"})
    for load in (
        lambda: load_rounded("nobody/nothing", FOUR_BITS),
        lambda: load_weights(str(tmp_path)),
    ):
        with pytest.raises(MissingPackage, match=r"trained on a 4-bit base.*bitsandbytes"):
            load()


def test_the_adapter_of_a_rounded_base_is_shipped_merged_only(tmp_path: Path) -> None:
    record_quantization(model(FOUR_BITS), tmp_path)
    source: Any = SimpleNamespace(checkpoint=tmp_path, is_adapter=True)
    assert chosen_forms([], source) == (Form.MERGED, Form.GGUF)
    with pytest.raises(InvalidInput, match="use --form merged,gguf"):
        chosen_forms([Form.ADAPTER], source)
