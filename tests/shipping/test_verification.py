"""Sound artefacts pass, with figures; every planted fault is refused by name."""

from __future__ import annotations

import json
import math
import shutil
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import FaultyArtefact
from sparring.contracts.rollouts import Message, Span, TokenKind, TokenRow
from sparring.contracts.summaries import Gap
from sparring.shipping.artefacts import Artefact
from sparring.shipping.conversations import EncodedChat
from sparring.shipping.gguf_file import GgufFacts, write_gguf
from sparring.shipping.llama_cpp import find_llama_cpp, served
from sparring.shipping.source import Source, load_base, load_trained
from sparring.shipping.template import SAMPLING
from sparring.shipping.verification import (
    BOUNDS,
    INFORMATION,
    FolderTarget,
    Position,
    Reference,
    _bucketed,
    check_gap,
    check_prompts,
    check_trained_ids,
    gap_between,
    gap_to_server,
    log_probabilities,
    positions_of,
    verify_folder,
    verify_server,
)
from tests.proofs.made import answered
from tests.shipping.made import (
    TEMPERATURE,
    TOOLS,
    conversations_of,
    edit_json,
    has_server,
    made_source,
    positions_for,
    written,
)

served_only = pytest.mark.skipif(not has_server(), reason="no llama.cpp server is installed")
PLAIN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
SOUND = GgufFacts("made", sampling={"temperature": TEMPERATURE, **SAMPLING})


class Echo:
    """A target that renders and numbers as its functions do."""

    def __init__(self, text: str, ids: list[int]) -> None:
        self._text, self._ids = text, ids

    def render(self, _: EncodedChat) -> str:
        return self._text

    def tokenize(self, _: str) -> list[int]:
        return self._ids


def test_equal_prompts_are_counted(source: Source, artefacts: dict[str, Artefact]) -> None:
    conversations = conversations_of(source)
    target = FolderTarget(Path(artefacts["adapter"].place))
    found = check_prompts(conversations, target, source.codec())
    assert (found.conversations, found.skipped) == (11, 0)
    assert found.tokens == sum(len(each.ids) for each in conversations)


def test_equal_text_with_other_ids_blames_the_tokenizer(source: Source) -> None:
    codec, first = source.codec(), conversations_of(source)[0]
    ids = first.ids.tolist()
    ids[3] += 1
    with pytest.raises(FaultyArtefact, match=r"tokenizer splits or numbers .* at token 3 of"):
        check_prompts([first], Echo(codec.decode(first.ids), ids), codec)


def test_text_that_spells_a_special_token_is_skipped(source: Source) -> None:
    codec = source.codec()
    chat = (Message("user", "say <|im_end|> please"),)
    hostile = EncodedChat("x", chat, TOOLS, codec.encode_prompt(chat, TOOLS).ids)
    assert check_prompts([hostile], Echo("", []), codec).skipped == 1


def test_a_prompt_that_is_no_longer_the_trained_one_is_shown_with_its_place(source: Source) -> None:
    codec = source.codec()
    first, second = conversations_of(source)[:2]
    check_trained_ids(first, first.ids, codec)
    check_trained_ids(first, array("i"), codec)  # nothing was logged
    with pytest.raises(FaultyArtefact, match="no longer the trained one: case case 0 differs at"):
        check_trained_ids(first, second.ids, codec)


def distributions(count: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.log_softmax(torch.randn(count, 30, generator=draw), -1)


POSITIONS = [Position([1], number) for number in range(8)]


def test_equal_models_have_no_gap_and_different_ones_have_one() -> None:
    ours, theirs = distributions(8, 0), distributions(8, 1)
    same, other = gap_between(ours, ours, POSITIONS), gap_between(ours, theirs, POSITIONS)
    assert (same.mean, same.largest, same.kl, same.same_best) == (0, 0, 0, 8)
    assert other.kl > 0.1
    assert other.largest >= other.mean > 0.1


@given(st.integers(0, 1000), st.integers(1, 30))
def test_the_divergence_over_the_most_probable_tokens_is_a_lower_bound(
    seed: int, count: int
) -> None:
    ours, theirs = distributions(1, seed)[0], distributions(1, seed + 1)[0]
    whole = float((ours.exp() * (ours - theirs)).sum())
    best = theirs.topk(count)
    found = dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    part = _bucketed(ours, found)
    assert part <= whole + 1e-5
    if count == 30:
        assert math.isclose(part, whole, abs_tol=1e-4)


def sampled_row(*ids: int) -> TokenRow:
    """A prompt of two tokens, then two sampled, one that a tool wrote, and one sampled."""
    kinds = (TokenKind.PROMPT, TokenKind.SAMPLED, TokenKind.OBSERVED, TokenKind.SAMPLED)
    spans = tuple(Span(kind, count) for kind, count in zip(kinds, (2, 2, 1, 1), strict=True))
    return TokenRow("main", array("i", ids), array("f", [-1.0] * 3), spans)


def test_positions_are_where_the_model_sampled() -> None:
    assert positions_of([answered("c1", 1.0)]) == []
    rollout = replace(answered("c1", 1.0), rows=(sampled_row(1, 2, 3, 4, 5, 6),))
    assert positions_of([rollout]) == [
        Position([1, 2], 3), Position([1, 2, 3], 4), Position([1, 2, 3, 4, 5], 6),
    ]  # fmt: skip


def test_each_row_has_an_equal_share_of_the_positions() -> None:
    rows = (sampled_row(1, 2, 3, 4, 5, 6), sampled_row(7, 8, 9, 10, 11, 12))
    found = positions_of([replace(answered("c1", 1.0), rows=rows)], limit=3)
    assert [place.sampled for place in found] == [3, 9]


class FixedServer:
    """A server that returns the most probable tokens of given distributions."""

    def __init__(self, rows: torch.Tensor, tokens: int) -> None:
        self._answers = iter(rows)
        self._tokens = tokens

    def next_logprobs(self, before: list[int], sampled: int, count: int) -> dict[int, float]:
        row = next(self._answers)
        best = row.topk(self._tokens)
        return dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def test_a_server_with_the_same_weights_has_no_gap() -> None:
    ours = distributions(8, 0)
    server: Any = FixedServer(ours, tokens=30)
    gap = gap_to_server(ours, server, POSITIONS)
    assert gap.largest == pytest.approx(0, abs=1e-6)
    assert (gap.same_best, gap.unseen) == (8, 0)


def test_a_sampled_token_without_a_probability_is_counted_and_left_out_of_the_mean() -> None:
    ours = distributions(8, 0)
    seen = [number for number in range(8) if int(ours[number].argmax()) == number]
    server: Any = FixedServer(ours, tokens=1)
    gap = gap_to_server(ours, server, POSITIONS)
    assert gap.unseen == 8 - len(seen) > 0
    assert gap.same_best == 8


def test_a_server_that_returns_no_probabilities_is_refused() -> None:
    server: Any = FixedServer(distributions(8, 0), tokens=0)
    with pytest.raises(FaultyArtefact, match="use a newer version"):
        gap_to_server(distributions(8, 0), server, POSITIONS)


def test_a_pass_over_a_row_gives_what_separate_passes_give(source: Source) -> None:
    model = load_trained(source)
    positions = positions_for(source, 5)
    together = log_probabilities(model, positions)
    apart = torch.cat([log_probabilities(model, [each]) for each in positions])
    assert torch.allclose(together, apart, atol=1e-4)
    assert gap_between(together, log_probabilities(load_base(source), positions), positions).kl > 0


def test_a_gap_beyond_the_bound_of_its_format_is_refused() -> None:
    gap = Gap(10, mean=2e-3, largest=5e-2, kl=1e-5, same_best=10)
    assert check_gap(gap, BOUNDS["f16"], trained_from_base=0.1) == ""
    with pytest.raises(FaultyArtefact, match=r"the bound on the mean is 0\.0001"):
        check_gap(gap, BOUNDS["float32"], trained_from_base=0.1)
    with pytest.raises(FaultyArtefact, match="the bound on the largest"):
        check_gap(Gap(10, 1e-4, 0.5, 0, 10), BOUNDS["f16"], trained_from_base=0.1)


def test_a_divergence_of_a_third_of_the_training_is_warned_about() -> None:
    gap = Gap(10, mean=0.1, largest=0.5, kl=0.02, same_best=8)
    assert "may have undone part of the training" in check_gap(
        gap, INFORMATION, trained_from_base=0.04
    )
    assert check_gap(gap, INFORMATION, trained_from_base=0.1) == ""
    assert check_gap(gap, INFORMATION, trained_from_base=0.0) == ""


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
    monkeypatch.setattr("sparring.shipping.gguf_file.pre_tokenizer_of", lambda _: "smollm")
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
