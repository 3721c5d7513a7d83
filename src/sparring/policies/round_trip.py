"""Checks that messages survive encoding and parsing, and compares the training template with the
model's own."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from sparring.contracts.chat import ChatMessage, tool_schema
from sparring.contracts.errors import SparringError
from sparring.contracts.rollouts import Message, RequestedCall
from sparring.policies.codec import ChatCodec

_CALL = RequestedCall("call-1", "look_up", '{"city": "Oslo", "day": 3}')
_TOOL = tool_schema(
    "look_up",
    "Looks something up.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "day": {"type": "integer"}},
    },
)


@dataclass(frozen=True, slots=True)
class RoundTripProblem:
    """A loss in encoding or parsing. If `concerns_tools`, agents without tools can ignore it."""

    message: str
    concerns_tools: bool = False


def round_trip_problems(codec: ChatCodec) -> Iterator[RoundTripProblem]:
    """Encode and parse an answer, a tool call and its result; yield a problem for each loss."""
    try:
        answer = codec.parse(codec.encode_reply(Message("assistant", "It is 7 degrees.")))
        if answer.content.strip() != "It is 7 degrees.":
            yield RoundTripProblem(f"an answer comes back as {answer.content!r}")
        question = Message("user", "How warm is it?")
        tools = [_TOOL] if codec.family.has_tools else []
        prompt = codec.encode_prompt([question], tools).ids
        if not prompt:
            yield RoundTripProblem("a prompt encodes to no tokens")
        if not tools:
            return
        reply = codec.encode_reply(Message("assistant", "", calls=(_CALL,)))
        calls = codec.parse(reply, tools).calls
        parsed = [(call.tool, json.loads(call.arguments)) for call in calls]
        if parsed != [(_CALL.tool, json.loads(_CALL.arguments))]:
            yield RoundTripProblem(f"a tool call comes back as {parsed}", concerns_tools=True)
        result = Message("tool", "7 degrees", call_id="call-1")
        continuation = codec.encode_continuation([result], [_CALL])
        whole = codec.decode(array("i", [*prompt, *reply, *continuation.ids]))
        if "7 degrees" not in whole:
            message = "a tool result is missing from the model's input"
            yield RoundTripProblem(message, concerns_tools=True)
    except (SparringError, ValueError, KeyError, TypeError) as error:
        yield RoundTripProblem(f"{type(error).__name__}: {error}")


def difference_from(own_template: str | None, codec: ChatCodec) -> str:
    """Describe the first difference between the texts that the model's own template and the
    training template render; empty if there is none, or if the model has no template."""
    if not own_template:
        return ""
    messages: list[ChatMessage] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How warm is it?"},
        {"role": "assistant", "content": "It is 7 degrees."},
        {"role": "user", "content": "And tomorrow?"},
    ]

    def render(template: str) -> str:
        text = codec.tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, add_generation_prompt=True
        )
        return str(text)

    try:
        theirs, ours = render(own_template), render(codec.family.template)
    except Exception as error:  # a template is third-party code
        return f"the model's own template cannot be rendered: {type(error).__name__}: {error}"
    if theirs == ours:
        return ""
    place = next(
        (n for n, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b),
        min(len(theirs), len(ours)),
    )
    return (
        f"the model's own template has {theirs[place : place + 60]!r} where the training template "
        f"has {ours[place:][:60]!r}"
    )
