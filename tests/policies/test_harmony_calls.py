"""Turns of gpt-oss are read message by message: thinking, text, and calls."""

from __future__ import annotations

import json

import pytest

from sparring.policies.harmony_calls import HarmonyCalls

THOUGHT = "<|channel|>analysis<|message|>North, so cold.<|end|>"


def test_a_call_is_read_in_the_form_in_which_the_models_write_it() -> None:
    """The recipient stands after the channel, and the header names JSON as their type."""
    text = (
        f"{THOUGHT}<|start|>assistant<|channel|>commentary to=functions.look_up "
        '<|constrain|>json<|message|>{"city": "Oslo"}'
    )
    reply = HarmonyCalls().parse(text)
    (call,) = reply.calls
    assert (call.tool, json.loads(call.arguments)) == ("look_up", {"city": "Oslo"})
    assert (reply.content, reply.thinking, reply.malformed) == ("", "North, so cold.", "")


def test_text_before_a_call_is_content() -> None:
    text = (
        "<|channel|>commentary<|message|>Let me look.<|end|>"
        "<|start|>assistant to=functions.look_up<|channel|>commentary json<|message|>{}<|call|>"
    )
    reply = HarmonyCalls().parse(text)
    assert reply.content == "Let me look."
    assert [call.tool for call in reply.calls] == ["look_up"]


def test_an_answer_is_the_final_channel_without_the_thinking() -> None:
    reply = HarmonyCalls().parse(
        f"{THOUGHT}<|start|>assistant<|channel|>final<|message|>It is 7.<|return|>"
    )
    assert (reply.content, reply.thinking) == ("It is 7.", "North, so cold.")


def test_thinking_that_is_cut_off_is_no_answer() -> None:
    reply = HarmonyCalls().parse("<|channel|>analysis<|message|>North, so")
    assert (reply.content, reply.thinking) == ("", "North, so")


def test_text_without_any_channel_is_content() -> None:
    assert HarmonyCalls().parse(" go to=work ").content == "go to=work"


def test_the_opening_of_a_forced_call_is_parsed_as_a_call() -> None:
    calls = HarmonyCalls()
    unnamed = calls.opening(None) + "look_up<|channel|>x<|message|>"
    for opening in (calls.opening("look_up"), unnamed):
        assert [call.tool for call in calls.parse(opening + "{}").calls] == ["look_up"]


@pytest.mark.parametrize(
    "text",
    [
        ' to=functions.f<|constrain|>json<|message|>{"a": 1}',
        '<|channel|>commentary to=f <|constrain|>json<|message|>{"a": 1}',
    ],
)
def test_a_call_without_a_channel_or_prefix_is_a_call_of_a_known_tool(text: str) -> None:
    (call,) = HarmonyCalls().parse(text, [{"function": {"name": "f"}}]).calls
    assert (call.tool, json.loads(call.arguments)) == ("f", {"a": 1})


@pytest.mark.parametrize(
    "unfinished", ["<|start|>assistant", "<|start|>assistant<|channel|>final", "<|start|>user"]
)
def test_a_header_without_text_is_not_text(unfinished: str) -> None:
    reply = HarmonyCalls().parse(THOUGHT + unfinished)
    assert (reply.content, reply.thinking, reply.malformed) == ("", "North, so cold.", "")


def test_messages_in_the_name_of_others_are_left_out() -> None:
    text = "<|channel|>final<|message|>Hi<|end|><|start|>user<|message|>More"
    assert HarmonyCalls().parse(text).content == "Hi"


@pytest.mark.parametrize(
    "broken",
    [
        "<|start|>assistant to=python<|channel|>commentary<|message|>1",
        "<|start|>assistant to=functions.f<|channel|>commentary",
        "<|start|>assistant<|channel|>commentary<|message|>So<|channel|>final<|message|>7",
    ],
)
def test_a_broken_message_is_malformed_and_shows_no_thinking(broken: str) -> None:
    reply = HarmonyCalls().parse(THOUGHT + broken)
    assert reply.malformed
    assert "North" not in reply.content
    assert reply.thinking == "North, so cold."
