"""Writes GGUF files of merged models: F32, F16 and Q8_0, for llama, qwen2 and qwen3.

The tensors are byte-identical to those that llama.cpp's converter writes
(`tests/shipping/test_gguf_file.py` compares them if llama.cpp is available). They are read,
converted and written one at a time, so that peak memory depends on the largest tensor only.

llama.cpp implements pre-tokenizers by name. Sparring derives the name from the steps in
`tokenizer.json`, so that tokenizers with the same steps get the same name. (llama.cpp's converter
looks up a hash of the tokens of a sample text.)
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparring.contracts.errors import MissingPackage, UnknownArchitecture, UnknownTokenizer
from sparring.installed import how_to_install

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_WHOLE_WORDS = "words of the vocabulary are not merged"
_SPECIAL_TYPES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
ARCHITECTURES = {
    "LlamaForCausalLM": "LLAMA",
    "Qwen2ForCausalLM": "QWEN2",
    "Qwen3ForCausalLM": "QWEN3",
}
DIRECT = ("f32", "f16", "q8_0")
_FILE_TYPES = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "q8_0": "MOSTLY_Q8_0"}
_ROPE_TYPES = ("default", "llama3", "linear")


def add_vocabulary(writer: Any, folder: Path, vocabulary_size: int) -> None:
    """Add the tokenizer in `folder` to a GGUF writer: tokens, merges, special tokens, template."""
    import gguf
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer_of(content))
    texts, types = _tokens(tokenizer, vocabulary_size)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    special = gguf.SpecialVocab(folder, load_merges=True, special_token_types=_SPECIAL_TYPES)
    special.add_to_gguf(writer, quiet=True)


def pre_tokenizer_of(content: Mapping[str, Any]) -> str:
    """Return llama.cpp's name for the pre-tokenizer in a `tokenizer.json`. Raises UnknownTokenizer
    if the name is not known."""
    model = content.get("model") or {}
    kind = model.get("type")
    shape = tuple(_signature(step) for step in _steps(content.get("pre_tokenizer")))
    if model.get("ignore_merges"):
        shape += (_WHOLE_WORDS,)
    names = {
        ("bytes+regex",): "gpt-2",
        ("digits", "bytes+regex"): "smollm",
        (f"split {_LLAMA3}", "bytes", _WHOLE_WORDS): "llama-bpe",
        (f"split {_LLAMA3}", "bytes"): "smaug-bpe",
        (f"split {_QWEN2}", "bytes"): "qwen2",
    }
    if kind != "BPE" or shape not in names:
        found = f"a {kind} model with the steps {', '.join(shape) or 'none'}"
        raise UnknownTokenizer(
            f"Sparring does not know llama.cpp's name for this pre-tokenizer ({found[:300]}). "
            "Pass the folder of llama.cpp's convert_hf_to_gguf.py with --llama-cpp, or leave out "
            "the form gguf"
        )
    return names[shape]


def _tokens(tokenizer: Any, size: int) -> tuple[list[str], list[int]]:
    """Return the text and type of each id below `size`. Ids without a token get a placeholder:
    the embeddings of many models have more rows than the tokenizer has tokens."""
    import gguf

    by_id = {number: text for text, number in tokenizer.get_vocab().items()}
    added = tokenizer.added_tokens_decoder
    texts, types = [], []
    for number in range(size):
        if number not in by_id:
            texts.append(f"[PAD{number}]")
            types.append(int(gguf.TokenType.UNUSED))
            continue
        text, token = by_id[number], added.get(number)
        is_control = token is not None and (token.special or _looks_special(text))
        if token is None:
            kind = gguf.TokenType.NORMAL
        else:
            kind = gguf.TokenType.CONTROL if is_control else gguf.TokenType.USER_DEFINED
        texts.append(text)
        types.append(int(kind))
    return texts, types


def _looks_special(text: str) -> bool:
    """Whether llama.cpp's converter treats an added token with this text as a control token."""
    return text.startswith("<|") and text.endswith("|>")


def _steps(pre_tokenizer: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if pre_tokenizer is None:
        return []
    if pre_tokenizer["type"] == "Sequence":
        return list(pre_tokenizer["pretokenizers"])
    return [pre_tokenizer]


def _signature(step: Mapping[str, Any]) -> str:
    """Return a step as text, without settings that do not affect the tokens."""
    match step["type"]:
        case "ByteLevel" if not step.get("add_prefix_space"):
            return "bytes+regex" if step.get("use_regex", True) else "bytes"
        case "Digits" if step.get("individual_digits"):
            return "digits"
        case "Split" if step.get("behavior") == "Isolated" and not step.get("invert"):
            return f"split {step['pattern'].get('Regex', step['pattern'])}"
    return json.dumps(step, sort_keys=True)


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """The metadata of a GGUF file that its merged model does not contain."""

    name: str
    base: str = ""
    licence: str = ""
    sampling: Mapping[str, float] = field(default_factory=dict)


def write_gguf(folder: Path, path: Path, quantization: str, facts: GgufFacts) -> None:
    """Write the merged model in `folder` as one GGUF file. Raises UnknownArchitecture for an
    unsupported architecture, tokenizer or rope scaling."""
    try:
        import gguf
    except ModuleNotFoundError as error:
        raise MissingPackage(f"writing GGUF needs gguf: {how_to_install('ship')}") from error
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kind = architecture_of(config)
    rope = rope_of(config)
    architecture = gguf.MODEL_ARCH[kind]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    _add_facts(writer, facts)
    _add_shape(writer, config, rope, kind)
    writer.add_file_type(gguf.LlamaFileType[_FILE_TYPES[quantization]])
    add_vocabulary(writer, folder, int(config["vocab_size"]))
    if kind == "LLAMA":
        _add_llama_tokenizer_flags(writer, folder, int(config["vocab_size"]))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    names = gguf.get_tensor_name_map(architecture, int(config["num_hidden_layers"]))
    _write_tensors(writer, folder, config, names, quantization)


def architecture_of(config: Mapping[str, Any]) -> str:
    """Return the gguf package's name of the architecture. Raises UnknownArchitecture for one that
    Sparring cannot write."""
    found = (config.get("architectures") or ["none"])[0]
    if found not in ARCHITECTURES:
        raise UnknownArchitecture(
            f"Sparring writes GGUF for {', '.join(ARCHITECTURES)}, and this model is a {found}; "
            "pass --llama-cpp FOLDER with llama.cpp's convert_hf_to_gguf.py, or leave out gguf"
        )
    return ARCHITECTURES[found]


def rope_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rope parameters of a config that transformers 4 or 5 wrote. Raises
    UnknownArchitecture for a kind of scaling that Sparring cannot write."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope.setdefault("rope_type", rope.get("type") or "default")
    if config.get("rope_theta") is not None:
        rope.setdefault("rope_theta", config["rope_theta"])
    if rope["rope_type"] not in _ROPE_TYPES:
        raise UnknownArchitecture(
            f"Sparring cannot write the rope scaling {rope['rope_type']!r} into GGUF; convert the "
            "merged model with llama.cpp's convert_hf_to_gguf.py: pass its folder with --llama-cpp"
        )
    return rope


def rope_factors(rope: Mapping[str, Any], dimension: int) -> list[float]:
    """Return Llama 3's divisors for the frequencies of the rotary embedding."""
    import torch

    factor = float(rope.get("factor", 8.0))
    low, high = float(rope.get("low_freq_factor", 1.0)), float(rope.get("high_freq_factor", 4.0))
    context = float(rope.get("original_max_position_embeddings", 8192))
    exponents = torch.arange(0, dimension, 2, dtype=torch.float32) / dimension
    frequencies = 1.0 / float(rope["rope_theta"]) ** exponents  # float32, as llama.cpp computes
    factors = []
    for frequency in frequencies:
        wavelength = 2 * math.pi / frequency
        if wavelength < context / high:
            factors.append(1.0)
        elif wavelength > context / low:
            factors.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(float(1 / ((1 - smooth) / factor + smooth)))
    return factors


def _add_facts(writer: Any, facts: GgufFacts) -> None:
    writer.add_type("model")
    writer.add_name(facts.name)
    if facts.licence:
        writer.add_license(facts.licence)
    if facts.base:
        writer.add_base_model_count(1)
        writer.add_base_model_name(0, facts.base.rpartition("/")[2])
        if "/" in facts.base:
            writer.add_base_model_organization(0, facts.base.partition("/")[0])
            writer.add_base_model_repo_url(0, f"https://huggingface.co/{facts.base}")
    adders = {
        "temperature": writer.add_sampling_temp,
        "top_k": lambda value: writer.add_sampling_top_k(int(value)),
        "top_p": writer.add_sampling_top_p,
        "min_p": writer.add_sampling_min_p,
        "repetition_penalty": writer.add_sampling_penalty_repeat,
    }
    for name, value in facts.sampling.items():
        adders[name](value)


def _add_shape(writer: Any, config: Mapping[str, Any], rope: Mapping[str, Any], kind: str) -> None:
    import gguf

    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config.get("num_key_value_heads", config["num_attention_heads"]))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope.get("rope_theta") is not None:
        writer.add_rope_freq_base(rope["rope_theta"])
    if (dimension := config.get("head_dim")) is not None:
        writer.add_key_length(dimension)
        writer.add_value_length(dimension)
    if kind == "LLAMA":
        writer.add_vocab_size(config["vocab_size"])
        writer.add_rope_dimension_count(_head_dimension(config))


def _add_llama_tokenizer_flags(writer: Any, folder: Path, vocabulary_size: int) -> None:
    """Set the tokenizer flags that llama.cpp's converter sets only for this architecture."""
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    if (adds_space := tokenizer.get("add_prefix_space")) is not None:
        writer.add_add_space_prefix(bool(adds_space))
    if vocabulary_size == 49152:
        writer.add_add_bos_token(False)


def _head_dimension(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _write_tensors(
    writer: Any, folder: Path, config: Mapping[str, Any], names: Any, quantization: str
) -> None:
    """Declare all tensors, then write them one at a time."""
    import gguf
    import numpy as np

    rope = rope_of(config)
    extra = {}
    if rope["rope_type"] == "llama3":
        extra["rope_freqs.weight"] = np.array(
            rope_factors(rope, _head_dimension(config)), dtype=np.float32
        )
    places = list(_tensor_places(folder))
    declared: list[tuple[str, str, Path, Any]] = []
    for name, array in extra.items():
        writer.add_tensor_info(name, array.shape, array.dtype, array.nbytes)
    for source, file, shape in places:
        if source == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        name = names.get_name(source, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise UnknownArchitecture(
                f"{folder / file.name} has the tensor {source}, which GGUF has no name for; "
                "convert the model with llama.cpp's own converter: pass --llama-cpp FOLDER"
            )
        kind = _tensor_type(name, shape, quantization)
        byte_shape = gguf.quant_shape_to_byte_shape(shape, kind)
        is_plain = kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16)
        dtype = {"F32": np.float32, "F16": np.float16}.get(kind.name, np.uint8)
        size = math.prod(byte_shape)
        writer.add_tensor_info(
            name, shape if is_plain else byte_shape, np.dtype(dtype), size, raw_dtype=kind
        )
        declared.append((source, name, file, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for array in extra.values():
        writer.write_tensor_data(array)
    for source, _, file, kind in declared:
        array = _permuted(source, _read(file, source), config)
        writer.write_tensor_data(gguf.quants.quantize(array, kind))
    writer.close()


def _tensor_type(name: str, shape: tuple[int, ...], quantization: str) -> Any:
    """Return F32 for norms and biases, and F16 for rows that do not fill whole Q8_0 blocks."""
    from gguf import GGMLQuantizationType as Type

    if len(shape) <= 1 or name.endswith("_norm.weight") or quantization == "f32":
        return Type.F32
    if quantization == "q8_0" and shape[-1] % 32 == 0:
        return Type.Q8_0
    return Type.F16


def _tensor_places(folder: Path) -> Iterator[tuple[str, Path, tuple[int, ...]]]:
    """Yield the name, file and shape of each tensor; the weights may be sharded."""
    from safetensors import safe_open

    index = folder / "model.safetensors.index.json"
    files = [folder / "model.safetensors"]
    if index.is_file():
        files = sorted(
            {folder / name for name in json.loads(index.read_text())["weight_map"].values()}
        )
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - not a mapping
                yield name, file, tuple(opened.get_slice(name).get_shape())


def _read(file: Path, name: str) -> Any:
    """Return a tensor as float32. torch reads it, because numpy has no bfloat16."""
    import torch
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        return opened.get_tensor(name).to(torch.float32).numpy()


def _permuted(source: str, array: Any, config: Mapping[str, Any]) -> Any:
    """Reorder the query and key rows of a llama model: transformers rotates the two halves of each
    head, llama.cpp rotates neighbouring dimensions."""
    if (config.get("architectures") or [""])[0] != "LlamaForCausalLM":
        return array
    heads = int(config["num_attention_heads"])
    if ".self_attn.k_proj." in source:
        heads = int(config.get("num_key_value_heads", heads))
    elif ".self_attn.q_proj." not in source:
        return array
    half = array.shape[0] // heads // 2
    return array.reshape(heads, 2, half, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
