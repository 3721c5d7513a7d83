"""Checks that an artefact's template and tokenizer give the ids that were trained on."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from sparring.contracts.errors import FaultyArtefact
from sparring.contracts.summaries import PromptCheck
from sparring.policies.codec import ChatCodec
from sparring.shipping.conversations import EncodedChat
from sparring.shipping.llama_cpp import LlamaServer
from sparring.shipping.template import chat_messages, template_messages

_BEFORE, _AFTER = 24, 60


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
    agent's instructions, tools or template have changed since."""
    if trained and trained != conversation.ids:
        difference = _difference(codec.decode(trained), codec.decode(conversation.ids))
        raise FaultyArtefact(
            f"the agent's prompt is no longer the trained one: case {conversation.case} differs "
            f"{difference}. Restore the agent's instructions and tools, or train again"
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
