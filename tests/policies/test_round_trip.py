"""What a chat format loses is found, and so is where it differs from the model's own."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from sparring.contracts.policies import Encoded, Reply
from sparring.contracts.rollouts import Message
from sparring.models.tiny import build_tokenizer
from sparring.policies.codec import ChatCodec
from sparring.policies.families import family_named
from sparring.policies.round_trip import RoundTripProblem, difference_from, round_trip_problems
from tests.conftest import FAMILIES


class WithoutCalls(ChatCodec):
    def parse(self, ids: array[int], tools: Any = ()) -> Reply:
        return Reply(super().parse(ids, tools).content)


class WithoutText(ChatCodec):
    def parse(self, ids: array[int], tools: Any = ()) -> Reply:
        return Reply("", calls=super().parse(ids, tools).calls)


class WithoutResults(ChatCodec):
    def encode_continuation(self, messages: Sequence[Message], calls: Any = ()) -> Encoded:
        return Encoded(array("i"))


class WithoutPrompt(ChatCodec):
    def encode_prompt(self, messages: Sequence[Message], tools: Any) -> Encoded:
        return Encoded(array("i"))


class Broken(ChatCodec):
    def encode_prompt(self, messages: Sequence[Message], tools: Any) -> Encoded:
        raise ValueError("no such role")


def problems(kind: type[ChatCodec]) -> list[RoundTripProblem]:
    return list(round_trip_problems(kind(build_tokenizer(), family_named("qwen3"))))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_survives(codecs: dict[str, ChatCodec], name: str) -> None:
    assert list(round_trip_problems(codecs[name])) == []


@pytest.mark.parametrize(
    ("kind", "message", "concerns_tools"),
    [
        (WithoutCalls, "a tool call comes back as []", True),
        (WithoutText, "an answer comes back as ''", False),
        (WithoutResults, "a tool result is missing from the model's input", True),
        (WithoutPrompt, "a prompt encodes to no tokens", False),
        (Broken, "ValueError: no such role", False),
    ],
)
def test_a_part_that_a_template_loses_is_named(
    kind: type[ChatCodec], message: str, concerns_tools: bool
) -> None:
    assert problems(kind) == [RoundTripProblem(message, concerns_tools)]


@pytest.mark.parametrize("own", [None, ""])
def test_a_model_without_a_template_differs_nowhere(
    codecs: dict[str, ChatCodec], own: str | None
) -> None:
    assert difference_from(own, codecs["qwen3"]) == ""


def test_the_training_template_does_not_differ_from_itself(codecs: dict[str, ChatCodec]) -> None:
    assert difference_from(codecs["qwen3"].family.template, codecs["qwen3"]) == ""


def test_the_first_difference_is_shown_from_both_sides(codecs: dict[str, ChatCodec]) -> None:
    codec = codecs["qwen2.5"]
    own = codec.family.template.replace("<|im_start|>assistant", "<|im_start|>helper")
    found = difference_from(own, codec)
    assert found.startswith("the model's own template has 'helper")
    assert "where the training template has 'assistant" in found


def test_a_template_that_only_adds_text_differs_at_its_end(codecs: dict[str, ChatCodec]) -> None:
    codec = codecs["qwen2.5"]
    found = difference_from(codec.family.template + "{{- 'more' }}", codec)
    assert found.endswith("has 'more' where the training template has ''")


def test_a_template_that_cannot_be_rendered_is_reported_with_its_error(
    codecs: dict[str, ChatCodec],
) -> None:
    found = difference_from("{{ raise_exception('only one turn') }}", codecs["qwen3"])
    assert found.startswith("the model's own template cannot be rendered:")
    assert "only one turn" in found
