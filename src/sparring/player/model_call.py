"""A call of the model, whichever door it came through."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sparring.contracts.rollouts import Message
from sparring.player.turns import SampledTurn


@dataclass(frozen=True)
class ModelCall:
    """One call of the model.

    `messages` are the whole conversation or, if the call `continues` a sampled turn, those after
    that turn. The first `leading` messages are instructions; None means all system messages before
    the first other message. `tools` have the form of Chat Completions. `tool_choice` is None,
    "none", "required" or a tool's name.
    `overridden` holds the client's sampling parameters, which the run's settings replace.
    `is_retry` is set if the client marks the call as a retry; `retry_key` is the idempotency key.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    model: str = ""
    overridden: Mapping[str, float] = field(default_factory=dict)
    is_retry: bool = False
    retry_key: str = ""
    leading: int | None = None
    continues: SampledTurn | None = None

    @property
    def system(self) -> str:
        """The text of the instructions."""
        return "\n\n".join(message.content for message in self.messages[: self.first_turn])

    @cached_property
    def first_turn(self) -> int:
        """The position of the first message after the instructions."""
        if self.leading is not None:
            return self.leading
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
        """A digest of instructions, tools and output schema, which precede the conversation."""
        return digest(self.system, json.dumps([*self.tools, self.output_schema]))

    def parameters(self) -> tuple[Any, ...]:
        """Return the other parameters that the reply depends on. Calls with the same messages,
        frame and parameters are equal."""
        return (self.tool_choice, self.max_tokens, self.stop, self.parallel_tool_calls)

    def rendered(self) -> list[Message]:
        """Return the conversation as the chat template takes it: instructions and output schema in
        one system message. Token sampling does not enforce the schema, so the model reads it."""
        conversation = list(self.messages[self.first_turn :])
        system = with_output_schema(self.system, self.output_schema)
        return [Message("system", system), *conversation] if system else conversation


def with_output_schema(system: str, schema: Mapping[str, Any] | None) -> str:
    """Return the instructions with a request for a final answer in JSON that fits the schema."""
    if schema is None:
        return system
    request = (
        "Give your final answer as JSON that fits this schema:\n"
        f"{json.dumps(schema, sort_keys=True)}"
    )
    return f"{system}\n\n{request}" if system else request


def digest(*texts: str) -> str:
    """Return a digest of texts as 24 hex digits, the same in every process."""
    together = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        together.update(len(encoded).to_bytes(8, "big") + encoded)
    return together.hexdigest()[:24]
