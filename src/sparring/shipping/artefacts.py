"""Writes the artefacts of a shipment into its folder, each complete or absent.

`possible_forms` checks, before anything is written, whether this machine can write and play GGUF
files.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sparring.contracts.errors import (
    FaultyArtefact,
    InvalidInput,
    MissingPackage,
    UnknownArchitecture,
)
from sparring.contracts.kinds import Form
from sparring.installed import how_to_install
from sparring.policies.pretrained import quantization_of
from sparring.run_folder.files import read_json, write_json, write_text
from sparring.shipping import llama_cpp
from sparring.shipping.folder import WORK, ShipFolder
from sparring.shipping.gguf_file import (
    DIRECT,
    GgufFacts,
    architecture_of,
    pre_tokenizer_of,
    rope_of,
    write_gguf,
)
from sparring.shipping.llama_cpp import LlamaCpp, require_quantizer, require_server
from sparring.shipping.other_servers import modelfile
from sparring.shipping.source import (
    ADAPTER_CONFIG,
    Source,
    base_licence,
    context_length,
    load_base,
    load_trained,
    shipped_dtype,
)
from sparring.shipping.template import SAMPLING, generation_config, write_tokenizer

ADAPTER, MERGED, GGUF = "adapter", "merged", "gguf"
_BYTES = {"f32": 4.0, "f16": 2.0, "q8_0": 1.1, "float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
_SMALLER = 1.1  # upper bound for others: for odd widths, llama.cpp replaces q6_k by q8_0
_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_PARTS = (".lora_A", ".lora_B", ".lora_embedding_A", ".lora_embedding_B", ".lora_magnitude_vector")


@dataclass(frozen=True, slots=True)
class Artefact:
    """One way to run the shipped model: a folder for transformers, or a GGUF file."""

    name: str
    form: Form
    place: Path
    precision: str
    seconds: float = 0.0  # to write it; about 0 if an earlier attempt did

    @property
    def size(self) -> int:
        """The size of its files in bytes."""
        if self.place.is_file():
            return self.place.stat().st_size
        return sum(each.stat().st_size for each in self.place.rglob("*") if each.is_file())


@dataclass(frozen=True, slots=True)
class Writing:
    """Options for writing artefacts: the model's name, the sampling temperature of the proof, and
    the parts of llama.cpp on this machine."""

    name: str
    temperature: float
    llama_cpp: LlamaCpp


def chosen_forms(forms: Sequence[Form], source: Source) -> tuple[Form, ...]:
    """Return the forms to write: by default merged, GGUF, and the adapter if there is one. Ollama
    implies GGUF.

    Raises InvalidInput if the adapter is requested but the checkpoint has none, or if it was
    trained on a 4-bit base: on the unquantised base, its outputs differ. By default, an adapter of
    a 4-bit base is left out.
    """
    if Form.ADAPTER in forms and not source.is_adapter:
        raise InvalidInput(
            "the checkpoint has no adapter: it was trained without LoRA; use --form merged,gguf"
        )
    is_rounded = quantization_of(source.checkpoint) is not None
    if Form.ADAPTER in forms and is_rounded:
        raise InvalidInput(
            "the adapter was trained on a 4-bit base, and its outputs differ on the unquantised "
            "base; use --form merged,gguf"
        )
    has_adapter = source.is_adapter and not is_rounded
    wanted = set(forms) or {Form.MERGED, Form.GGUF, *([Form.ADAPTER] if has_adapter else [])}
    if Form.OLLAMA in wanted:
        wanted.add(Form.GGUF)
    return tuple(form for form in Form if form in wanted)


def needed_bytes(source: Source, forms: Sequence[Form], quantizations: Sequence[str]) -> int:
    """Estimate the bytes that a shipment writes, from the number of weights."""
    weights = _count_weights(source)
    total = 0.0
    if Form.MERGED in forms or Form.GGUF in forms:
        total += weights * _BYTES[shipped_dtype(source)]
    if Form.ADAPTER in forms:
        total += (source.checkpoint / "adapter_model.safetensors").stat().st_size
    if Form.GGUF in forms:
        total += sum(weights * _BYTES.get(each, _SMALLER) for each in quantizations)
        if not set(quantizations) <= set(DIRECT):
            total += weights * _BYTES["f16"]
    return int(total * 1.02) + 50_000_000


def write_folders(
    folder: ShipFolder, source: Source, forms: Sequence[Form], writing: Writing
) -> list[Artefact]:
    """Write the requested folders, each with tokenizer, template and generation config, and return
    them. For GGUF without merged, the merged model is written to `WORK` and not returned."""

    def write(name: str, form: Form, precision: str) -> Artefact:
        def write_all(place: Path) -> None:
            (write_adapter if form is Form.ADAPTER else write_merged)(source, place)
            write_tokenizer(source.tokenizer, place, source.template)
            stops = _stops(source.codec())
            config = generation_config(writing.temperature, stops, source.tokenizer)
            write_json(place / "generation_config.json", config)

        started = time.monotonic()
        place = folder.write(name, write_all)
        return Artefact(name, form, place, precision, time.monotonic() - started)

    artefacts = []
    if Form.ADAPTER in forms:
        artefacts.append(write(ADAPTER, Form.ADAPTER, "float32"))
    if Form.MERGED in forms:
        artefacts.append(write(MERGED, Form.MERGED, shipped_dtype(source)))
    elif Form.GGUF in forms and not folder.is_delivered:
        write(WORK, Form.MERGED, shipped_dtype(source))
    return artefacts


def write_gguf_files(
    folder: ShipFolder, source: Source, quantizations: Sequence[str], writing: Writing
) -> list[Artefact]:
    """Write one GGUF file per quantisation, from the merged model."""
    merged = folder.staging / MERGED
    merged = merged if merged.is_dir() else folder.staging / WORK
    artefacts = []
    for quantization in quantizations:
        name = f"{GGUF}/{writing.name}-{quantization}.gguf"
        convert = partial(
            _gguf, merged, quantization=quantization, source=source, writing=writing, folder=folder
        )
        started = time.monotonic()
        place = folder.write_file(name, convert)
        seconds = time.monotonic() - started
        artefacts.append(Artefact(f"gguf {quantization}", Form.GGUF, place, quantization, seconds))
    return artefacts


def write_modelfile(folder: ShipFolder, gguf: Path, source: Source, writing: Writing) -> None:
    """Write Ollama's Modelfile beside a GGUF file."""
    codec = source.codec()
    stops = [str(codec.tokenizer.convert_ids_to_tokens(each)) for each in _stops(codec)]
    text = modelfile(
        gguf.name,
        temperature=writing.temperature,
        stops=stops,
        context=context_length(source),
        licence=base_licence(source),
    )
    folder.write_file(f"{GGUF}/Modelfile", lambda at: write_text(at, text))


def _stops(codec: Any) -> list[int]:
    """Return the ids of the tokens that end a turn, the family's `end_of_turn` first."""
    return [codec.end_of_turn, *sorted(codec.stop_ids - {codec.end_of_turn})]


def _gguf(
    merged: Path,
    place: Path,
    quantization: str,
    source: Source,
    writing: Writing,
    folder: ShipFolder,
) -> None:
    """Write a GGUF file: directly if the format is in `DIRECT`, else by quantising F16."""
    if quantization not in DIRECT:
        whole = folder.write_file(
            f"{WORK}-f16/whole.gguf", lambda at: _direct(merged, at, "f16", source, writing)
        )
        llama_cpp.quantize(writing.llama_cpp, whole, place, quantization)
        return
    _direct(merged, place, quantization, source, writing)


def _direct(merged: Path, place: Path, quantization: str, source: Source, writing: Writing) -> None:
    facts = GgufFacts(
        writing.name,
        base=source.base_name,
        licence=base_licence(source),
        sampling={"temperature": writing.temperature, **SAMPLING},
    )
    try:
        write_gguf(merged, place, quantization, facts)
    except UnknownArchitecture:
        if not writing.llama_cpp.converter:
            raise
        place.unlink(missing_ok=True)
        llama_cpp.convert(writing.llama_cpp, merged, place, quantization)


def _count_weights(source: Source) -> int:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source.base_place))
    return sum(each.numel() for each in model.parameters())


@dataclass(frozen=True, slots=True)
class PossibleForms:
    """The forms to write. `warning` states why a requested form is left out; empty if none is."""

    forms: tuple[Form, ...]
    warning: str = ""


def possible_forms(
    forms: Sequence[Form], source: Source, quantizations: Sequence[str], found: LlamaCpp
) -> PossibleForms:
    """Return the requested forms that can be written. If the model cannot be written as GGUF, GGUF
    and Ollama are left out, with a warning.

    Raises UnknownArchitecture if no form remains, and MissingPackage if GGUF is requested and a
    package for it is missing.
    """
    if Form.GGUF not in forms:
        return PossibleForms(tuple(forms))
    _require_packages(quantizations, found)
    problem = "" if found.converter else gguf_problem(source)
    if not problem:
        return PossibleForms(tuple(forms))
    others = tuple(each for each in forms if each not in (Form.GGUF, Form.OLLAMA))
    if not others:
        raise UnknownArchitecture(problem)
    return PossibleForms(others, f"gguf was left out: {problem}")


def gguf_problem(source: Source) -> str:
    """Return why Sparring's own converter cannot write this model as GGUF; empty if it can."""
    try:
        config = _config_of(source)
        architecture_of(config)
        rope_of(config)
        pre_tokenizer_of(json.loads(source.tokenizer.backend_tokenizer.to_str()))
    except UnknownArchitecture as error:
        return str(error)
    return ""


def _config_of(source: Source) -> dict[str, Any]:
    from transformers import AutoConfig

    place = source.base_place if source.is_adapter else str(source.checkpoint)
    config: dict[str, Any] = AutoConfig.from_pretrained(place).to_dict()
    return config


def _require_packages(quantizations: Sequence[str], found: LlamaCpp) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise MissingPackage(f"writing GGUF needs gguf: {how_to_install('ship')}")
    require_server(found)
    for quantization in quantizations:
        if quantization not in DIRECT:
            require_quantizer(found, quantization)


def write_adapter(source: Source, folder: Path) -> None:
    """Write the adapter in the format of PEFT, which vLLM also loads, without local paths."""
    shutil.copyfile(source.checkpoint / _WEIGHTS, folder / _WEIGHTS)
    config = read_json(source.checkpoint / ADAPTER_CONFIG)
    config["base_model_name_or_path"] = source.base_name
    config["inference_mode"] = True
    if isinstance(config.get("target_modules"), list):
        config["target_modules"] = sorted(config["target_modules"])
    write_json(folder / ADAPTER_CONFIG, config)
    (folder / _WEIGHTS).chmod(0o644)


def write_merged(source: Source, folder: Path) -> None:
    """Write the whole model at the base's dtype. The merge is computed in float32."""
    import torch
    from transformers import GenerationConfig

    model = load_trained(source)
    if source.is_adapter:
        model = model.merge_and_unload()
    dtype = shipped_dtype(source)
    model = model.to(getattr(torch, dtype))
    model.config.dtype = dtype
    model.generation_config = GenerationConfig()  # the caller writes the proof's
    model.save_pretrained(folder)
    config = read_json(folder / "config.json")
    config.pop("_name_or_path", None)
    write_json(folder / "config.json", config)
    for file in folder.glob("*.safetensors"):
        file.chmod(0o644)


def check_adapter_names(folder: Path, module_names: set[str]) -> None:
    """Raise FaultyArtefact if a tensor of the adapter belongs to no module of the base, or if a
    target module has no tensors. Programs that load such an adapter may serve the base."""
    names = _tensor_names(folder / _WEIGHTS)
    strange = [name for name in names if _module_of(name) not in module_names]
    if strange:
        raise FaultyArtefact(
            f"{len(strange)} of {len(names)} tensors of the adapter name no module of the base, "
            f"such as {strange[0]}; a program that ignores them serves the base model, or only "
            "part of the training"
        )
    targets = read_json(folder / ADAPTER_CONFIG).get("target_modules") or []
    if isinstance(targets, str):  # a pattern
        return
    modules = [f".{_module_of(name)}" for name in names]
    missing = [each for each in targets if not any(at.endswith(f".{each}") for at in modules)]
    if missing:
        raise FaultyArtefact(
            f"the adapter has no tensors for {', '.join(sorted(missing)[:4])}, which its config "
            "names; a program that loads it fails, or serves only part of the training"
        )


def module_names(source: Source) -> set[str]:
    """Return the names of all modules of the base."""
    return {name for name, _ in load_base(source).named_modules()}


def _module_of(tensor: str) -> str:
    name = tensor.removeprefix(_PREFIX) if tensor.startswith(_PREFIX) else f"({tensor})"
    for part in _PARTS:
        if part in name:
            return name.partition(part)[0]
    return name.removesuffix(".weight").removesuffix(".bias")


def _tensor_names(file: Path) -> list[str]:
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        header: dict[str, Any] = json.loads(opened.read(size))
    return [name for name in header if name != "__metadata__"]
