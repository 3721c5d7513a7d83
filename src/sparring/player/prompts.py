"""The input of one model call, as the SDK passes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from agents import AgentOutputSchemaBase, FunctionTool, Handoff, Tool
from agents.items import TResponseInputItem

from sparring.contracts.chat import tool_schema
from sparring.contracts.rollouts import Message
from sparring.player.conversation import Item, to_messages, turn_of
from sparring.player.model_call import ModelCall
from sparring.player.turns import SampledTurn


@dataclass(frozen=True)
class Prompt:
    """Instructions, conversation, tools and output schema of one turn."""

    system: str
    items: Sequence[Item]
    tools: Sequence[Mapping[str, Any]]
    output_schema: Mapping[str, Any] | None

    @cached_property
    def last_own_index(self) -> int:
        """The index of the last item that Sparring's model produced, or -1."""
        for number in range(len(self.items) - 1, -1, -1):
            if turn_of(self.items[number]) is not None:
                return number
        return -1

    @cached_property
    def new_messages(self) -> list[Message]:
        """The messages after the last item that Sparring's model produced."""
        return to_messages(self.items[self.last_own_index + 1 :])

    @property
    def tool_names(self) -> list[str]:
        """The names of the offered tools and handoffs."""
        return [tool["function"]["name"] for tool in self.tools]

    @property
    def frame(self) -> tuple[Any, ...]:
        """What precedes the conversation. A turn with another frame starts a new row."""
        return (self.system, self.output_schema, self.tools)

    def call(
        self, tool_choice: str | None, *, is_parallel: bool | None, continues: SampledTurn | None
    ) -> ModelCall:
        """Return the model call, whose conversation continues the given turn."""
        messages, leading = self.new_messages, 0
        if continues is None:
            messages, leading = to_messages(self.items), 1 if self.system else 0
            if self.system:
                messages = [Message("system", self.system), *messages]
        return ModelCall(
            messages,
            self.tools,
            tool_choice,
            output_schema=self.output_schema,
            parallel_tool_calls=is_parallel,
            leading=leading,
            continues=continues,
        )


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
