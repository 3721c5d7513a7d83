"""A trained checkpoint without a training: an adapter of random weights on the tiny model, and the
conversations and positions that its artefacts are verified with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparring.contracts.kinds import Form
from sparring.contracts.rollouts import Message, RequestedCall
from sparring.policies.families import family_named
from sparring.shipping.artefacts import Artefact, Writing, write_folders, write_gguf_files
from sparring.shipping.conversations import EncodedChat
from sparring.shipping.folder import ShipFolder
from sparring.shipping.llama_cpp import LlamaCpp, find_llama_cpp
from sparring.shipping.source import Source, open_source
from sparring.shipping.verification import Position, Reference, make_reference

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TEMPERATURE = 0.8


def tool(name: str, about: str, *arguments: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {each: {"type": "string"} for each in arguments},
        "required": list(arguments),
    }
    return {
        "type": "function",
        "function": {"name": name, "description": about, "parameters": parameters},
    }


TOOLS = (tool("ring", "Ring the bell."), tool("search", "Search files <fast>.", "query", "path"))
CALL = RequestedCall("c1", "search", '{"query": "café \\"x\\"", "path": "/a"}')
SYSTEM = Message("system", "Let them in, one by one.")


def chats() -> list[tuple[Message, ...]]:
    """Eleven conversations: with calls, results, thinking, quotes and other scripts."""
    ask = Message("user", "What is 12 + 34? Say it twice.")
    call = Message("assistant", "", calls=(CALL,))
    both = Message("assistant", "Both now.", calls=(CALL, RequestedCall("c2", "ring", "{}")))
    result = Message("tool", '{"found": ["a.txt", 3]}\nend', call_id="c1")
    second = Message("tool", "ding dong", call_id="c2")
    answer = Message("assistant", "It is 46.")
    thought = Message("assistant", "46", thinking="12 + 34 = 46")
    again = Message("user", "Sure? нещо 我想 🚀 <b>\t\n tab")
    return [
        (Message("user", "hi"),),
        (SYSTEM, ask),
        (SYSTEM, ask, answer, again),
        (ask, call, result),
        (SYSTEM, ask, call, result),
        (SYSTEM, ask, both, result, second),
        (SYSTEM, ask, both, result, second, answer, again),
        (SYSTEM, ask, thought, again),
        (SYSTEM, again, answer, ask, answer, again),
        (SYSTEM, ask, call, result, answer, again, call, result),
        (SYSTEM, Message("user", "1 22 333 4444 55555 3.14 1,000,000 " * 8)),
    ]


def write_checkpoint(tiny: Path, place: Path, *, seed: int = 0, scale: float = 0.25) -> Path:
    """An adapter on the tiny model, as a training saves it."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = AutoModelForCausalLM.from_pretrained(tiny)
    model = get_peft_model(base, LoraConfig(r=4, target_modules=MODULES, task_type="CAUSAL_LM"))
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_B" in name:
                weights.copy_(scale * torch.randn(weights.shape, generator=draw))
            elif "lora_A" in name:
                weights.copy_(0.2 * torch.randn(weights.shape, generator=draw))
    model.save_pretrained(place)
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    tokenizer.chat_template = family_named("qwen3").template
    tokenizer.save_pretrained(place)
    return place


def made_source(tiny: Path, place: Path, **options: Any) -> Source:
    return open_source(write_checkpoint(tiny, place, **options), str(tiny), None)


def conversations_of(source: Source, tools: Sequence[dict[str, Any]] = TOOLS) -> list[EncodedChat]:
    codec = source.codec()
    return [
        EncodedChat(f"case {number}", chat, tuple(tools), codec.encode_prompt(chat, tools).ids)
        for number, chat in enumerate(chats())
    ]


def positions_for(source: Source, count: int = 24) -> list[Position]:
    """Places inside a text, as if the model had written it."""
    ids = source.codec().encode_prompt(chats()[6], TOOLS).ids.tolist()
    first = len(ids) - count
    return [Position(ids[:at], ids[at]) for at in range(first, len(ids))]


def made_reference(source: Source) -> Reference:
    return make_reference(source, conversations_of(source), positions_for(source), TEMPERATURE)


def written(source: Source, place: Path, *quantizations: str) -> dict[str, Artefact]:
    """Adapter, merged model and GGUF files of a source, by name."""
    folder = ShipFolder(place / "shipped", "made")
    folder.open(0)
    writing = Writing("made", TEMPERATURE, LlamaCpp())
    forms = (Form.ADAPTER, Form.MERGED, Form.GGUF)
    artefacts = write_folders(folder, source, forms, writing)
    artefacts += write_gguf_files(folder, source, quantizations, writing)
    return {each.name: each for each in artefacts}


def edit_json(path: Path, **changes: Any) -> None:
    """Change fields of a JSON file; None removes one."""
    content = json.loads(path.read_text())
    for name, value in changes.items():
        content.pop(name, None)
        if value is not None:
            content[name] = value
    path.write_text(json.dumps(content))


def has_server() -> bool:
    return bool(find_llama_cpp().server)
