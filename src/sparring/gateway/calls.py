"""Model calls and replies, independent of a wire format, and the error that refuses a call."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from sparring.contracts.rollouts import Message, RequestedCall

MAIN = "main"
SUB_AGENT = "sub-agent"


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


class Refused(Exception):
    """Answers a call with an HTTP error; `parameter` names the invalid field, if there is one."""

    def __init__(self, status: int, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.parameter = parameter


@dataclass(frozen=True)
class ModelCall:
    """One call to the model.

    `tools` have the form of Chat Completions. `tool_choice` is None, "none", "required" or
    a tool's name.
    `overridden` holds the client's sampling parameters, which the run's settings replace.
    `is_retry` is set if the client marks the call as a retry; `retry_key` is the idempotency key.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    model: str = ""
    overridden: Mapping[str, float] = field(default_factory=dict)
    is_retry: bool = False
    retry_key: str = ""

    @property
    def system(self) -> str:
        """The text of the system messages that precede the conversation."""
        return "\n\n".join(message.content for message in self.messages[: self.first_turn])

    @cached_property
    def first_turn(self) -> int:
        """The position of the first message that is not a system message."""
        for number, message in enumerate(self.messages):
            if message.role != "system":
                return number
        return len(self.messages)

    @property
    def tool_names(self) -> list[str]:
        """The names of the offered tools."""
        return [str(tool["function"]["name"]) for tool in self.tools]

    @cached_property
    def frame(self) -> str:
        """A digest of system text, tools and output schema, which precede the conversation."""
        return digest(self.system, json.dumps([*self.tools, self.output_schema]))

    def parameters(self) -> tuple[Any, ...]:
        """Return the other parameters that the reply depends on. Calls with the same messages,
        frame and parameters are equal."""
        return (self.tool_choice, self.max_tokens, self.stop, self.parallel_tool_calls)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The reply to one call. `number` is the number of its turn in the session, from 0.
    `stopped_at` is the stop sequence that ended it, if one did."""

    number: int
    content: str
    thinking: str
    calls: tuple[RequestedCall, ...]
    finish: FinishReason
    prompt_tokens: int
    sampled_tokens: int
    stopped_at: str = ""


def digest(*texts: str) -> str:
    """Return a digest of texts as 24 hex digits, the same in every process."""
    together = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        together.update(len(encoded).to_bytes(8, "big") + encoded)
    return together.hexdigest()[:24]
