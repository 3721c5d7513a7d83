"""Parses turns of gpt-oss, in OpenAI's harmony format.

A turn consists of messages with a channel and an optional recipient. Messages to `functions.NAME`
are calls, other messages in the channel `analysis` are thinking, and the rest is for the user.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

from sparring.contracts.chat import ToolSchema
from sparring.contracts.policies import ParsedCall, Reply
from sparring.policies.tool_calls import MAX_CALLS, read_arguments

_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_ENDS = re.compile(r"<\|(?:end|call|return)\|>")
_FUNCTIONS = "functions."


@dataclass(frozen=True, slots=True)
class HarmonyCalls:
    """Calls are messages to `functions.NAME` with a JSON object as text. `opening` writes the
    channel `commentary`; `parse` accepts calls in any channel."""

    reads_tokens: ClassVar[bool] = True

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> Reply:
        """Return the text for the user, the thinking and the calls."""
        content: list[str] = []
        thinking: list[str] = []
        calls: list[ParsedCall] = []
        known = {tool["function"]["name"] for tool in tools}
        for number, message in enumerate(text.split("<|start|>")):
            header, marker, rest = message.partition("<|message|>")
            if number and not header.startswith("assistant"):
                continue  # the model wrote a message of another role
            recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
            body = _ENDS.split(rest, maxsplit=1)[0]
            problem = ""
            if not marker and not channel and not number:
                content.append(_ENDS.split(header, maxsplit=1)[0].strip())
            elif recipient:
                call = _read(recipient[1], body, known)
                problem = call if isinstance(call, str) else ""
                calls += [] if isinstance(call, str) else [call]
            elif "<|message|>" in body or "<|channel|>" in body:
                problem = "a message begins inside another"
            else:
                part = thinking if channel and channel[1] == "analysis" else content
                part.append(body.strip())
            if len(calls) > MAX_CALLS:
                problem = f"more than {MAX_CALLS} tool calls at once"
            if problem:
                return Reply(message.strip(), _joined(thinking), malformed=problem)
        return Reply(_joined(content), _joined(thinking), tuple(calls))

    def opening(self, tool: str | None) -> str:
        """Return the beginning of a call: up to the arguments of `tool`, or up to the name if
        `tool` is None."""
        if tool is None:
            return f" to={_FUNCTIONS}"
        return f" to={_FUNCTIONS}{tool}<|channel|>commentary json<|message|>"


def _read(recipient: str, body: str, known: Set[str]) -> ParsedCall | str:
    name = recipient.removeprefix(_FUNCTIONS)
    if name == recipient and name not in known:
        return f"a message goes to {recipient!r}, but tools are called as functions.NAME"
    return read_arguments(name, body) if name else "a tool call has no name"


def _joined(parts: list[str]) -> str:
    return "\n".join(part for part in parts if part)
