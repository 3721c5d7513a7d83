"""The input of one model call, as the SDK passes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agents import AgentOutputSchemaBase, FunctionTool, Handoff, Tool
from agents.items import TResponseInputItem

from sparring.contracts.chat import tool_schema
from sparring.contracts.rollouts import Message
from sparring.player.conversation import Item, to_messages, turn_of


@dataclass(frozen=True, slots=True)
class Prompt:
    """Instructions, conversation, tools and output schema of one turn."""

    system: str
    items: Sequence[Item]
    tools: Sequence[Mapping[str, Any]]
    output_schema: Mapping[str, Any] | None

    @property
    def last_own_index(self) -> int:
        """The index of the last item that Sparring's model produced, or -1."""
        for number in range(len(self.items) - 1, -1, -1):
            if turn_of(self.items[number]) is not None:
                return number
        return -1

    @property
    def tool_names(self) -> list[str]:
        """The names of the offered tools and handoffs."""
        return [tool["function"]["name"] for tool in self.tools]

    def system_text(self) -> str:
        """Return the instructions, followed by the output schema if there is one. Token sampling
        does not enforce the schema, so the model has to read it."""
        return with_output_schema(self.system, self.output_schema)

    def messages(self) -> list[Message]:
        """Return the whole conversation, instructions first."""
        messages = to_messages(self.items)
        system = self.system_text()
        return [Message("system", system), *messages] if system else messages


def with_output_schema(system: str, schema: Mapping[str, Any] | None) -> str:
    """Return the instructions with a request for a final answer in JSON that fits the schema."""
    if schema is None:
        return system
    request = (
        "Give your final answer as JSON that fits this schema:\n"
        f"{json.dumps(schema, sort_keys=True)}"
    )
    return f"{system}\n\n{request}" if system else request


def prompt_of(
    system: str | None,
    input: str | list[TResponseInputItem],
    tools: list[Tool],
    output_schema: AgentOutputSchemaBase | None,
    handoffs: list[Handoff[Any, Any]],
) -> Prompt:
    """Build a prompt from the arguments of the SDK's `Model.get_response`."""
    items = [{"role": "user", "content": input}] if isinstance(input, str) else input
    offered = [
        tool_schema(tool.name, tool.description, tool.params_json_schema)
        for tool in tools
        if isinstance(tool, FunctionTool)
    ]
    offered += [
        tool_schema(handoff.tool_name, handoff.tool_description, handoff.input_json_schema)
        for handoff in handoffs
    ]
    is_plain = output_schema is None or output_schema.is_plain_text()
    return Prompt(
        system=system or "",
        items=cast("list[Item]", items),
        tools=offered,
        output_schema=None if is_plain or output_schema is None else output_schema.json_schema(),
    )
