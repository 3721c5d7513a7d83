"""Verifies an artefact against its checkpoint: stop tokens, default sampling parameters, prompts,
log-probabilities.

Prompts are compared as text and as ids. For log-probabilities, recorded rollouts are replayed: at
up to 256 sampled tokens, the artefact's distribution is compared with the checkpoint's. A server
returns only its most probable tokens; the others are merged into one token, so the KL divergence is
a lower bound.

A fault raises FaultyArtefact, whose message names the cause. `jobs/ship/behaviour.py` compares the
rollouts of artefact and checkpoint.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from sparring.contracts.errors import FaultyArtefact
from sparring.contracts.rollouts import Rollout
from sparring.contracts.summaries import Gap, PromptCheck
from sparring.policies.codec import ChatCodec
from sparring.shipping.artefacts import check_adapter_names
from sparring.shipping.conversations import EncodedChat
from sparring.shipping.llama_cpp import LlamaServer
from sparring.shipping.source import Source, adapted, load_base, load_trained
from sparring.shipping.template import SAMPLING, chat_messages, template_messages

MAX_POSITIONS = 256
_TOP = 100
_TINY = 1e-12
_BEFORE, _AFTER = 24, 60
_CLOSE = 1e-3
_UNMOVED = 1e-6
_SUSPICIOUS = 0.1  # above this share of training's KL, an artefact is also compared with the base


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a rollout: the ids before it, and the id that was sampled there."""

    before: list[int]
    sampled: int


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest accepted gap of a precision. None: the gap is only reported."""

    mean: float | None
    largest: float | None


BOUNDS = {
    "float32": Bound(1e-4, 1e-3),
    "bfloat16": Bound(5e-2, None),
    "float16": Bound(5e-3, None),
    "f32": Bound(5e-3, 1e-1),  # llama.cpp keeps keys and values in F16
    "f16": Bound(5e-3, 1e-1),
    "q8_0": Bound(5e-2, None),
}
INFORMATION = Bound(None, None)


def positions_of(rollouts: Sequence[Rollout], limit: int = MAX_POSITIONS) -> list[Position]:
    """Return at most `limit` positions: the first sampled tokens of each row, equally many."""
    rows = [row for rollout in rollouts for row in rollout.rows if row.sampled]
    if not rows:
        return []
    share = max(1, limit // len(rows))
    places: list[Position] = []
    for row in rows:
        ids, mask = row.ids.tolist(), row.mask()
        sampled = [at for at, is_sampled in enumerate(mask) if is_sampled and at]
        places += [Position(ids[:at], ids[at]) for at in sampled[:share]]
    return places[:limit]


def log_probabilities(model: Any, positions: Sequence[Position]) -> Any:
    """Return the log-probabilities of all tokens at each position, one row per position."""
    import torch

    rows = []
    with torch.inference_mode():
        for longest, group in _by_row(positions):
            ids = torch.tensor([[*longest.before, longest.sampled]], device=model.device)
            logits = model(input_ids=ids).logits[0].float().cpu()
            rows += [torch.log_softmax(logits[len(each.before) - 1], -1) for each in group]
    return torch.stack(rows)


def _by_row(positions: Sequence[Position]) -> Iterator[tuple[Position, list[Position]]]:
    """Yield the longest position of each row, with all its positions: a forward pass over the
    longest covers all."""
    group: list[Position] = []
    for position in positions:
        previous = group[-1] if group else None
        if previous is not None and position.before[: len(previous.before)] != previous.before:
            yield group[-1], group
            group = []
        group.append(position)
    if group:
        yield group[-1], group


def gap_between(ours: Any, theirs: Any, positions: Sequence[Position]) -> Gap:
    """Return the gap between full distributions at the same positions."""
    sampled = [position.sampled for position in positions]
    index = range(len(sampled))
    differences = (theirs[index, sampled] - ours[index, sampled]).abs()
    divergence = (ours.exp() * (ours - theirs)).sum(-1).clamp(min=0)
    best = int((ours.argmax(-1) == theirs.argmax(-1)).sum())
    return Gap(
        len(sampled),
        float(differences.mean()),
        float(differences.max()),
        float(divergence.mean()),
        best,
    )


def gap_to_server(ours: Any, server: LlamaServer, positions: Sequence[Position]) -> Gap:
    """Return the gap between full distributions and a server's most probable tokens."""
    differences, divergences, best, unseen = [], [], 0, 0
    for number, position in enumerate(positions):
        row, found = ours[number], server.next_logprobs(position.before, position.sampled, _TOP)
        if not found:
            raise FaultyArtefact("llama.cpp returns no log-probabilities; use a newer version")
        divergences.append(_bucketed(row, found))
        best += int(row.argmax()) == max(found, key=lambda token: found[token])
        if position.sampled in found:
            differences.append(abs(found[position.sampled] - float(row[position.sampled])))
        else:
            unseen += 1
    count = max(1, len(differences))
    return Gap(
        len(positions),
        sum(differences) / count,
        max(differences, default=math.inf),
        sum(divergences) / max(1, len(divergences)),
        best,
        unseen,
    )


def _bucketed(row: Any, found: dict[int, float]) -> float:
    """Return the KL divergence over a server's tokens, with all others merged into one."""
    total, ours_seen, theirs_seen = 0.0, 0.0, 0.0
    for token, theirs in found.items():
        ours = float(row[token])
        total += math.exp(ours) * (ours - theirs)
        ours_seen += math.exp(ours)
        theirs_seen += math.exp(theirs)
    ours_rest, theirs_rest = max(1 - ours_seen, _TINY), max(1 - theirs_seen, _TINY)
    if ours_rest > 1e-6:  # rounding errors dominate a smaller rest
        total += ours_rest * math.log(ours_rest / theirs_rest)
    return max(total, 0.0)


def check_gap(gap: Gap, bound: Bound, *, trained_from_base: float) -> str:
    """Raise FaultyArtefact if the gap exceeds its bound. Return a warning if the divergence exceeds
    a third of the divergence between checkpoint and base, else an empty string."""
    shown = f"mean {gap.mean:.2g}, largest {gap.largest:.2g}, KL {gap.kl:.2g}"
    learned = f"training moved the model by KL {trained_from_base:.2g}"
    if bound.mean is not None and gap.mean > bound.mean:
        raise FaultyArtefact(
            f"the log-probabilities differ from the checkpoint's ({shown}; the bound on the mean "
            f"is {bound.mean:g}; {learned}), so the artefact has other weights"
        )
    if bound.largest is not None and gap.largest > bound.largest:
        raise FaultyArtefact(
            f"the log-probabilities differ from the checkpoint's ({shown}; the bound on the "
            f"largest is {bound.largest:g}; {learned}), so the artefact has other weights"
        )
    if gap.kl > trained_from_base / 3 > 0:
        return (
            f"{learned}, and conversion by KL {gap.kl:.2g}: the conversion may have undone part of "
            "the training"
        )
    return ""


class Target(Protocol):
    """Renders and tokenises chats with the template and vocabulary of an artefact."""

    def render(self, conversation: EncodedChat) -> str:
        """Return the conversation's prompt as text."""
        ...

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a prompt."""
        ...


class FolderTarget:
    """The tokenizer files of a shipped folder, as transformers and vLLM load them."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def render(self, conversation: EncodedChat) -> str:
        """Render with the shipped template."""
        return str(
            self.tokenizer.apply_chat_template(
                template_messages(chat_messages(conversation.messages)),
                tools=list(conversation.tools) or None,
                tokenize=False,
                add_generation_prompt=True,
            )
        )

    def tokenize(self, text: str) -> list[int]:
        """Tokenise with the shipped tokenizer."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


class ServerTarget:
    """A llama.cpp server, with the template and vocabulary of its GGUF file."""

    def __init__(self, server: LlamaServer) -> None:
        self._server = server

    def render(self, conversation: EncodedChat) -> str:
        """Render as the server does for a chat request."""
        return self._server.render(chat_messages(conversation.messages), conversation.tools)

    def tokenize(self, text: str) -> list[int]:
        """Tokenise as the server does for a chat request."""
        return self._server.tokenize(text, add_special=True)


def check_prompts(
    conversations: Sequence[EncodedChat], target: Target, codec: ChatCodec
) -> PromptCheck:
    """Compare the prompts and ids of all conversations with the trained ones. Raises FaultyArtefact
    at the first difference; the message states its position."""
    tokens = skipped = 0
    for conversation in conversations:
        trained = codec.decode(conversation.ids)
        if codec.tokenizer(trained, add_special_tokens=False)["input_ids"] != list(
            conversation.ids
        ):
            skipped += 1
            continue
        text = target.render(conversation)
        if text != trained:
            raise FaultyArtefact(_other_text(conversation, trained, text))
        found = target.tokenize(text)
        if found != conversation.ids.tolist():
            raise FaultyArtefact(_other_ids(conversation, found, codec))
        tokens += len(found)
    return PromptCheck(len(conversations) - skipped, tokens, skipped)


def check_trained_ids(conversation: EncodedChat, trained: array[int], codec: ChatCodec) -> None:
    """Raise FaultyArtefact if the agent's prompt differs from the prompt of a logged rollout: the
    agent's instructions, tools, examples or template have changed since."""
    if trained and trained != conversation.ids:
        difference = _difference(codec.decode(trained), codec.decode(conversation.ids))
        raise FaultyArtefact(
            f"the agent's prompt is no longer the trained one: case {conversation.case} differs "
            f"{difference}. Restore the agent's instructions, tools and examples, or train again"
        )


def check_folder_prompt(by_folder: EncodedChat, proved: EncodedChat, codec: ChatCodec) -> None:
    """Raise FaultyArtefact if the prompt that the folder's files give differs from the proved
    one."""
    if by_folder.ids != proved.ids:
        difference = _difference(codec.decode(proved.ids), codec.decode(by_folder.ids))
        raise FaultyArtefact(
            "agent.json does not give the prompt that was proved, so whoever gets the folder would "
            f"run another agent: case {proved.case} differs {difference}. Ship again, into a new "
            "folder"
        )


def _other_text(conversation: EncodedChat, trained: str, text: str) -> str:
    names = [str(tool["function"]["name"]) for tool in conversation.tools]
    missing = [name for name in names if name in trained and name not in text]
    if missing:
        cause = f"the template leaves out the tools ({', '.join(missing)} are missing)"
    else:
        cause = "the template renders a different prompt"
    return f"{cause}: case {conversation.case} differs {_difference(trained, text)}"


def _other_ids(conversation: EncodedChat, found: list[int], codec: ChatCodec) -> str:
    expected = conversation.ids.tolist()
    place = _first_difference(expected, found)
    return (
        f"the tokenizer splits or numbers the same text differently: case {conversation.case} "
        f"differs at token {place} of {len(expected)}, in "
        f"{codec.decode(array('i', expected[max(0, place - 4) : place + 4]))!r}: trained on "
        f"{expected[place : place + 4]}, the artefact gives {found[place : place + 4]}"
    )


def _difference(trained: str, text: str) -> str:
    place = _first_difference(trained, text)
    start = max(0, place - _BEFORE)
    ours, theirs = trained[start : place + _AFTER], text[start : place + _AFTER]
    return f"at character {place}: trained on {ours!r}, the artefact gives {theirs!r}"


def _first_difference(ours: Sequence[Any], theirs: Sequence[Any]) -> int:
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(ours), len(theirs)))


@dataclass(frozen=True, slots=True)
class Reference:
    """The checkpoint's prompts and log-probabilities, with which artefacts are compared. `learned`
    is the mean KL divergence between checkpoint and base."""

    source: Source
    codec: ChatCodec
    conversations: Sequence[EncodedChat]
    positions: Sequence[Position]
    trained: Any
    base: Any
    learned: float
    temperature: float


def make_reference(
    source: Source,
    conversations: Sequence[EncodedChat],
    positions: Sequence[Position],
    temperature: float,
) -> Reference:
    """Compute the log-probabilities of the checkpoint and of its base at all positions."""
    trained, base = None, None
    learned = 0.0
    if positions:
        trained = log_probabilities(load_trained(source), positions)
        base = log_probabilities(load_base(source), positions)
        learned = gap_between(trained, base, positions).kl
    return Reference(
        source, source.codec(), conversations, positions, trained, base, learned, temperature
    )


def verify_folder(folder: Path, reference: Reference, *, dtype: str) -> dict[str, Any]:
    """Verify an adapter or a merged model, loaded with transformers. Returns the counts of compared
    prompts and the gap to the checkpoint."""
    if (folder / "generation_config.json").is_file():
        _check_generation_config(folder, reference)
    prompts = check_prompts(reference.conversations, FolderTarget(folder), reference.codec)
    model = _load_folder(folder, reference.source)
    found: dict[str, Any] = {"prompts": asdict(prompts), "server": "transformers"}
    if reference.positions:
        theirs = log_probabilities(model, reference.positions)
        gap = gap_between(reference.trained, theirs, reference.positions)
        to_base = gap_between(reference.base, theirs, reference.positions)
        found |= _checked(gap, to_base, dtype, reference)
    return found


def verify_server(
    server: LlamaServer, reference: Reference, *, quantization: str, about: str
) -> dict[str, Any]:
    """Verify a GGUF file, served by llama.cpp. Returns the counts of compared prompts and the gap
    to the checkpoint."""
    _check_server_settings(server, reference)
    prompts = check_prompts(reference.conversations, ServerTarget(server), reference.codec)
    found: dict[str, Any] = {"prompts": asdict(prompts), "server": f"llama.cpp ({about})"}
    if reference.positions:
        gap = gap_to_server(reference.trained, server, reference.positions)
        to_base = None
        if gap.kl > reference.learned * _SUSPICIOUS:
            to_base = gap_to_server(reference.base, server, reference.positions)
        found |= _checked(gap, to_base, quantization, reference)
    return found


def _load_folder(folder: Path, source: Source) -> Any:
    import torch

    from sparring.policies.pretrained import load_weights

    if (folder / "adapter_config.json").is_file():
        base = load_base(source)
        check_adapter_names(folder, {name for name, _ in base.named_modules()})
        return adapted(base, folder)
    return load_weights(str(folder), dtype=torch.float32).eval()


def _checked(gap: Gap, to_base: Gap | None, precision: str, reference: Reference) -> dict[str, Any]:
    """Return the gap and its warning. Raises FaultyArtefact if the artefact is closer to the base
    than to the checkpoint, or if the gap exceeds the bound of its precision."""
    is_moved = reference.learned > _UNMOVED
    if to_base is not None and is_moved and to_base.kl < gap.kl:
        raise FaultyArtefact(
            f"the training is lost: the artefact is closer to the base model (KL {to_base.kl:.2g}) "
            f"than to the checkpoint (KL {gap.kl:.2g})"
        )
    bound = BOUNDS.get(precision, INFORMATION)
    warning = check_gap(gap, bound, trained_from_base=reference.learned)
    return {"gap": asdict(gap), "learned": reference.learned, "warning": warning}


def _check_generation_config(folder: Path, reference: Reference) -> None:
    config = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    stops = config.get("eos_token_id")
    found = set(stops if isinstance(stops, list) else [stops])
    if missing := reference.codec.stop_ids - found:
        names = [reference.codec.tokenizer.convert_ids_to_tokens(each) for each in sorted(missing)]
        raise FaultyArtefact(
            f"generation_config.json lacks the stop token {', '.join(names)}: the model would not "
            "end its turn"
        )
    for name, value in SAMPLING.items():
        if config.get(name) != value:
            raise FaultyArtefact(
                f"generation_config.json sets {name}={config.get(name)}, but the model was proved "
                f"with {value}"
            )


def _check_server_settings(server: LlamaServer, reference: Reference) -> None:
    """Check that the server ends turns with the trained token, and that its default sampling
    parameters are those of the proof."""
    end = reference.codec.family.end_of_turn
    properties = server.get("/props")
    if properties.get("eos_token") not in (end, *reference.codec.family.also_stops):
        raise FaultyArtefact(
            f"the GGUF file ends a turn with {properties.get('eos_token')!r}, but the model was "
            f"trained to end it with {end!r}: the stop token is missing"
        )
    defaults = properties["default_generation_settings"]["params"]
    wanted = {"temperature": reference.temperature, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    for name, value in wanted.items():
        if abs(float(defaults[name]) - value) > _CLOSE:
            raise FaultyArtefact(
                f"the GGUF file makes servers sample with {name}={defaults[name]:g}, but the model "
                f"was proved with {value:g}"
            )
