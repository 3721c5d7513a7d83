"""Whether a chat format survives going to tokens and back, and how it differs from the model's."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from typing import Any

from sparring.contracts.errors import SparringError
from sparring.contracts.rollouts import Message, RequestedCall
from sparring.policies.codec import ChatCodec

_CALL = RequestedCall("call-1", "look_up", '{"city": "Oslo", "day": 3}')
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks something up.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def round_trip_problems(codec: ChatCodec) -> Iterator[str]:
    """A reply that is written and read back, a call and its result behind it."""
    try:
        said = codec.parse(codec.encode_reply(Message("assistant", "It is 7 degrees.")))
        if said.content.strip() != "It is 7 degrees.":
            yield f"an answer comes back as {said.content!r}"
        asked = Message("user", "How warm is it?")
        prompt = codec.encode_prompt([asked], [_TOOL]).ids
        if not prompt:
            yield "a question becomes no tokens at all"
        reply = codec.encode_reply(Message("assistant", "", calls=(_CALL,)))
        calls = codec.parse(reply).calls
        read = [(call.tool, json.loads(call.arguments)) for call in calls]
        if read != [(_CALL.tool, json.loads(_CALL.arguments))]:
            yield f"a tool call comes back as {read}"
        result = Message("tool", "7 degrees", call_id="call-1")
        behind = codec.encode_continuation([result])
        whole = codec.decode(array("i", [*prompt, *reply, *behind.ids]))
        if "7 degrees" not in whole:
            yield "the result of a tool is not in what the model sees"
    except (SparringError, ValueError, KeyError, TypeError) as error:
        yield f"{type(error).__name__}: {error}"


def difference_from(own_template: str | None, codec: ChatCodec) -> str:
    """Where the training template renders otherwise than the model's own; empty where not."""
    if not own_template:
        return ""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How warm is it?"},
        {"role": "assistant", "content": "It is 7 degrees."},
        {"role": "user", "content": "And tomorrow?"},
    ]

    def rendered(template: str) -> str:
        told = codec.tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, add_generation_prompt=True
        )
        return str(told)

    try:
        theirs, ours = rendered(own_template), rendered(codec.family.template)
    except Exception as error:  # a template is a program of somebody else's
        return f"the model's own template cannot be rendered: {type(error).__name__}: {error}"
    if theirs == ours:
        return ""
    place = next(
        (n for n, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b),
        min(len(theirs), len(ours)),
    )
    return f"its own has {theirs[place : place + 60]!r} where training has {ours[place:][:60]!r}"
