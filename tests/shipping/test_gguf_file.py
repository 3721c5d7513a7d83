"""GGUF files hold the weights they were made of, as llama.cpp's own converter writes them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparring.contracts.errors import UnknownArchitecture, UnknownTokenizer
from sparring.models.tiny import CHATML, LLAMA, build_tokenizer
from sparring.shipping.gguf_file import (
    _LLAMA3,
    _QWEN2,
    GgufFacts,
    pre_tokenizer_of,
    rope_factors,
    rope_of,
    write_gguf,
)
from sparring.shipping.llama_cpp import VARIABLE, find_llama_cpp, served
from sparring.shipping.template import SAMPLING
from tests.shipping.made import has_server

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PLAIN = {**BYTES, "use_regex": False}
DIGITS = {"type": "Digits", "individual_digits": True}
LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
}  # fmt: skip
KINDS = ("llama", "llama3", "qwen2", "qwen3")


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def content(*steps: dict[str, Any], kind: str = "BPE") -> dict[str, Any]:
    pre = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": list(steps)}
    return {"model": {"type": kind}, "pre_tokenizer": pre}


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        ((BYTES,), "gpt-2"),
        ((DIGITS, BYTES), "smollm"),
        ((split(_LLAMA3), PLAIN), "smaug-bpe"),
        ((split(_QWEN2), PLAIN), "qwen2"),
    ],
)
def test_a_known_structure_has_llama_cpps_name(steps: Any, name: str) -> None:
    assert pre_tokenizer_of(content(*steps)) == name


def test_llama_3_does_not_merge_words_of_its_vocabulary() -> None:
    llama = content(split(_LLAMA3), PLAIN)
    llama["model"]["ignore_merges"] = True
    assert pre_tokenizer_of(llama) == "llama-bpe"


@pytest.mark.parametrize(
    "unknown",
    [
        content({**BYTES, "add_prefix_space": True}),
        content(split("[a-z]+"), PLAIN),
        content(BYTES, DIGITS),
        content(BYTES, kind="Unigram"),
        {"model": {"type": "BPE"}, "pre_tokenizer": None},
    ],
)
def test_an_unknown_structure_is_refused_with_a_way_out(unknown: Any) -> None:
    with pytest.raises(UnknownTokenizer, match="--llama-cpp, or leave out the form gguf"):
        pre_tokenizer_of(unknown)


def build(kind: str, folder: Path, dtype: str = "float32", **options: Any) -> Path:
    """A random model of a family's architecture, with a head of its own except for qwen3."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = build_tokenizer(LLAMA if kind == "llama3" else CHATML)
    given: dict[str, Any] = {
        "vocab_size": len(tokenizer) + 5, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 512, "tie_word_embeddings": kind == "qwen3",
        "eos_token_id": tokenizer.eos_token_id,
    }  # fmt: skip
    if kind == "qwen3":
        given["head_dim"] = 32
    if kind == "llama3":
        given["rope_parameters"] = LLAMA3_ROPE
    config = AutoConfig.for_model("llama" if kind == "llama3" else kind, **given)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype))
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                weights.add_(torch.randn_like(weights) * 0.1)
    model.save_pretrained(folder, **options)
    tokenizer.save_pretrained(folder)
    return folder


def tensors_of(path: Path) -> dict[str, tuple[str, bytes]]:
    import gguf

    reader = gguf.GGUFReader(path)
    return {each.name: (each.tensor_type.name, each.data.tobytes()) for each in reader.tensors}


def keys_of(path: Path) -> dict[str, Any]:
    import gguf

    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


@pytest.mark.skipif(not has_server(), reason="no llama.cpp server is installed")
@pytest.mark.parametrize("kind", KINDS)
def test_llama_cpp_computes_what_transformers_computes(kind: str, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    folder = build(kind, tmp_path / "model")
    write_gguf(folder, tmp_path / "model.gguf", "f32", GgufFacts(kind))
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = list(range(20, 60))
    with torch.inference_mode():
        ours = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1], -1)
    with served(find_llama_cpp(), tmp_path / "model.gguf", tmp_path / "log") as server:
        theirs = server.next_logprobs(ids, 70, 50)
    assert max(abs(float(ours[token]) - value) for token, value in theirs.items()) < 5e-3


@pytest.mark.parametrize("quantization", ["f16", "q8_0"])
def test_sharded_and_bfloat16_weights_give_the_same_file(tmp_path: Path, quantization: str) -> None:
    whole = build("llama", tmp_path / "whole", "bfloat16")
    shards = build("llama", tmp_path / "shards", "bfloat16", max_shard_size="100KB")
    assert len(list(shards.glob("*.safetensors"))) > 1
    for folder in (whole, shards):
        write_gguf(folder, tmp_path / f"{folder.name}.gguf", quantization, GgufFacts("x"))
    assert tensors_of(tmp_path / "whole.gguf") == tensors_of(tmp_path / "shards.gguf")


def test_rows_that_do_not_fill_a_block_of_q8_0_become_f16(tmp_path: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(build_tokenizer()), hidden_size=40, intermediate_size=64,
        num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    write_gguf(tmp_path, tmp_path / "m.gguf", "q8_0", GgufFacts("x"))
    types = {name: kind for name, (kind, _) in tensors_of(tmp_path / "m.gguf").items()}
    assert types["blk.0.attn_q.weight"] == "F16"
    assert types["blk.0.ffn_down.weight"] == "Q8_0"
    assert types["blk.0.attn_norm.weight"] == "F32"


def test_the_file_says_what_it_is_and_how_to_sample(tmp_path: Path) -> None:
    folder = build("qwen3", tmp_path / "model")
    facts = GgufFacts("porter", "Qwen/Qwen3-0.6B", "apache-2.0", {"temperature": 0.8, **SAMPLING})
    write_gguf(folder, tmp_path / "m.gguf", "q8_0", facts)
    keys = keys_of(tmp_path / "m.gguf")
    assert keys["general.name"] == "porter"
    assert keys["general.license"] == "apache-2.0"
    assert keys["general.base_model.0.organization"] == "Qwen"
    assert keys["general.sampling.temp"] == pytest.approx(0.8)
    assert keys["general.sampling.top_k"] == 0
    assert keys["tokenizer.ggml.pre"] == "gpt-2"


def test_llama_3s_rope_factors_keep_high_frequencies_and_divide_low_ones() -> None:
    factors = rope_factors(LLAMA3_ROPE, 64)
    assert len(factors) == 32
    assert factors[0] == 1.0
    assert factors[-1] == 32.0
    assert np.all(np.diff(factors) >= 0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "this model is a MambaForCausalLM"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "rope scaling 'yarn'"),
    ],
)
def test_a_model_that_gguf_cannot_hold_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    folder = build("qwen3", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(UnknownArchitecture, match=named):
        write_gguf(folder, tmp_path / "m.gguf", "f16", GgufFacts("x"))
    assert not (tmp_path / "m.gguf").exists()


def test_rope_parameters_of_both_versions_of_transformers_are_read() -> None:
    assert rope_of({"rope_theta": 1e4, "rope_scaling": None})["rope_theta"] == 1e4
    assert (
        rope_of({"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}})["rope_theta"] == 5
    )
    assert (
        rope_of({"rope_theta": 2.0, "rope_scaling": {"type": "linear", "factor": 2}})["factor"] == 2
    )


# ---------------------------------------------------------------------- beside llama.cpp's own

VOCABULARIES = {"llama3": "llama-bpe", "qwen2": "qwen2", "qwen3": "qwen2", "llama": "gpt-2"}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not find_llama_cpp().converter, reason=f"{VARIABLE} has no llama.cpp")
@pytest.mark.parametrize("quantization", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_are_those_of_llama_cpps_converter(
    kind: str, quantization: str, tmp_path: Path
) -> None:
    """With the real vocabularies that come with llama.cpp's sources, and random weights."""
    place = Path(os.environ[VARIABLE])
    folder = build(kind, tmp_path / "model")
    _put_vocabulary(place / "models" / f"ggml-vocab-{VOCABULARIES[kind]}.gguf", folder)
    write_gguf(folder, tmp_path / "ours.gguf", quantization, GgufFacts("x"))
    command = [sys.executable, str(place / "convert_hf_to_gguf.py"), str(folder)]
    command += ["--outfile", str(tmp_path / "theirs.gguf"), "--outtype", quantization]
    environment = {**os.environ, "PYTHONPATH": str(place / "gguf-py")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    ours, theirs = tensors_of(tmp_path / "ours.gguf"), tensors_of(tmp_path / "theirs.gguf")
    assert ours.keys() == theirs.keys()
    assert ours == theirs
    mine, official = keys_of(tmp_path / "ours.gguf"), keys_of(tmp_path / "theirs.gguf")
    for name, value in official.items():
        if name.startswith(("tokenizer.", "llama.", "qwen")) or name == "general.file_type":
            assert mine.get(name) == value, name


def _put_vocabulary(source: Path, folder: Path) -> None:
    """Replace a model's tokenizer by one with the vocabulary of a GGUF file, and fit its size."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    scratch = folder.parent / "vocabulary"
    scratch.mkdir()
    shutil.copyfile(source, scratch / source.name)
    tokenizer = AutoTokenizer.from_pretrained(scratch, gguf_file=source.name)
    model = AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(2)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
