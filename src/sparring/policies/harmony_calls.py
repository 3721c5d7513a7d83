"""Turns of gpt-oss: messages with a channel and a recipient, which its makers call harmony.

A turn is any number of messages. Those in the channel `analysis` are thinking, those to
`functions.NAME` are calls, and the others are said to the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.contracts.policies import ParsedCall, Reply
from sparring.policies.tool_calls import MAX_CALLS, read_arguments

_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_ENDS = re.compile(r"<\|(?:end|call|return)\|>")
_FUNCTIONS = "functions."


@dataclass(frozen=True, slots=True)
class HarmonyCalls:
    """A message to `functions.NAME` in the channel `commentary`, whose text is JSON."""

    def parse(self, text: str, tools: Sequence[Mapping[str, Any]] = ()) -> Reply:  # noqa: ARG002
        """Return what is said to the user, the thinking and the calls."""
        content: list[str] = []
        thinking: list[str] = []
        calls: list[ParsedCall] = []
        for message in text.split("<|start|>"):
            header, has_text, rest = message.partition("<|message|>")
            body = _ENDS.split(rest if has_text else header, maxsplit=1)[0]
            recipient = _RECIPIENT.search(header)
            if recipient and _CHANNEL.search(header):
                call = _read(recipient[1], body if has_text else "")
                if isinstance(call, str) or len(calls) == MAX_CALLS:
                    wrong = call if isinstance(call, str) else "too many tool calls at once"
                    return Reply(text, malformed=wrong)
                calls.append(call)
                continue
            channel = _CHANNEL.search(header)
            part = thinking if channel and channel[1] == "analysis" else content
            part.append(body.strip())
        return Reply(_joined(content), _joined(thinking), tuple(calls))

    def opening(self, tool: str | None) -> str:
        """Return the header of a call, up to the tool's name or its arguments."""
        if tool is None:
            return f" to={_FUNCTIONS}"
        return f" to={_FUNCTIONS}{tool}<|channel|>commentary json<|message|>"


def _read(recipient: str, body: str) -> ParsedCall | str:
    if not recipient.startswith(_FUNCTIONS):
        return f"a message goes to {recipient!r}, but tools are called as functions.NAME"
    if not (name := recipient.removeprefix(_FUNCTIONS)):
        return "a tool call has no name"
    return read_arguments(name, body)


def _joined(parts: list[str]) -> str:
    return "\n".join(part for part in parts if part)
