"""Prompts are compared character by character and id by id; special tokens in text are skipped."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from sparring.contracts.errors import FaultyArtefact
from sparring.contracts.rollouts import Message
from sparring.shipping.artefacts import Artefact
from sparring.shipping.conversations import EncodedChat
from sparring.shipping.prompt_check import FolderTarget, check_prompts, check_trained_ids
from sparring.shipping.source import Source
from tests.shipping.made import TOOLS, conversations_of


class Echo:
    """A target that renders and numbers as it is told."""

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


def test_the_same_text_with_other_ids_blames_the_tokenizer(source: Source) -> None:
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
