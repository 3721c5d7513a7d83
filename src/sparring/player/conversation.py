"""The items of the agents SDK: the prompt of a model call, the sampled turn that it continues, and
the reply."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from agents import AgentOutputSchemaBase, FunctionTool, Handoff, ModelResponse, Tool, Usage
from agents.items import TResponseInputItem
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
)

from sparring.contracts.chat import tool_schema
from sparring.contracts.errors import Untrainable
from sparring.contracts.json import JsonObject
from sparring.contracts.policies import Reply
from sparring.contracts.rollouts import Message, RequestedCall
from sparring.player.recorder import Answer, ModelCall, SampledTurn

Item = Mapping[str, Any]
_TAG = "sparring_turn"
_MOST_TURNS = 256
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def turn_of(item: Item) -> int | None:
    """Return the turn that produced this item; None if Sparring's model did not produce it."""
    data = item.get("provider_data")
    return data.get(_TAG) if isinstance(data, Mapping) else None


def to_items(reply: Reply, calls: Sequence[RequestedCall], turn: int) -> list[ResponseOutputItem]:
    """Return a reply as SDK items tagged with the turn. The SDK includes the items, with their
    tags, in the next turn's input, where a tag identifies the row of the sampled tokens."""
    tag: dict[str, Any] = {"provider_data": {_TAG: turn}}
    items: list[ResponseOutputItem] = []
    if reply.content or not calls:
        text = ResponseOutputText(type="output_text", text=reply.content, annotations=[])
        items.append(
            ResponseOutputMessage(
                id=f"msg_{turn}",
                type="message",
                role="assistant",
                status="completed",
                content=[text],
                **tag,
            )
        )
    items += [
        ResponseFunctionToolCall(
            id=f"fc_{call.id}",
            type="function_call",
            call_id=call.id,
            name=call.tool,
            arguments=call.arguments,
            status="completed",
            **tag,
        )
        for call in calls
    ]
    return items


def to_messages(items: Sequence[Item]) -> list[Message]:
    """Return the items as messages. A call joins an assistant message that directly precedes it.

    Skips reasoning items. Raises Untrainable for other item types, unknown roles, and parts that
    are not text.
    """
    messages: list[Message] = []
    for item in items:
        kind = item.get("type") or "message"
        if kind == "function_call":
            call = RequestedCall(item["call_id"], item["name"], item["arguments"])
            last = messages[-1] if messages else None
            if last is not None and last.role == "assistant":
                messages[-1] = Message("assistant", last.content, calls=(*last.calls, call))
            else:
                messages.append(Message("assistant", "", calls=(call,)))
        elif kind == "function_call_output":
            messages.append(Message("tool", text_of(item["output"]), call_id=item["call_id"]))
        elif kind == "message":
            role = _ROLES.get(str(item["role"]))
            if role is None:
                raise Untrainable(
                    f"a message has the unknown role {item['role']!r}; use {', '.join(_ROLES)}"
                )
            messages.append(Message(role, text_of(item.get("content") or "")))
        elif kind != "reasoning":
            raise Untrainable(
                f"the conversation has an item of type {kind!r}, which a text model cannot "
                "read; give the agent function tools that return text"
            )
    return messages


def text_of(content: Any) -> str:
    """Return the text of a message or tool result, given as text or as a list of parts."""
    if isinstance(content, str):
        return content
    parts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise Untrainable(f"a message has a part of type {kind!r}; use text parts only")
        parts.append(text)
    return "".join(parts)


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


def preceded(examples: Sequence[JsonObject], given: Any) -> Any:
    """Return a run's input with the examples before it, unless it begins with them: it may continue
    an earlier run."""
    if not examples or not isinstance(given, str | list):  # a run that is resumed has a state
        return given
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return items if items[: len(examples)] == list(examples) else [*examples, *items]


# Returns the prompt of the named agent with other instructions and tool schemas.
Reframe = Callable[[str, Prompt], Prompt]


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


@dataclass(frozen=True, slots=True)
class _Tagged:
    """A sampled turn, the items of its prompt, what preceded them, and its reply."""

    turn: SampledTurn
    items: Sequence[Item]
    frame: tuple[Any, ...]
    reply: Message


class TaggedTurns:
    """The last 256 sampled turns by their tags. The SDK passes an item's tag back with the item."""

    def __init__(self) -> None:
        self._turns: OrderedDict[int, _Tagged] = OrderedDict()

    def continued_by(self, prompt: Prompt) -> SampledTurn | None:
        """Return the turn that the prompt continues: it has the turn's instructions and tools,
        repeats its items and its reply unchanged, and adds at least one item. None after a handoff,
        after an edit of the history, and if the template changes the turn in later prompts."""
        items, last = prompt.items, prompt.last_own_index
        if not 0 <= last < len(items) - 1:
            return None
        tag = turn_of(items[last])
        tagged = self._turns.get(tag) if tag is not None else None
        if tagged is None or tagged.turn.is_hidden or tagged.frame != prompt.frame:
            return None
        seen = len(tagged.items)
        is_repeated = (
            all(turn_of(item) == tag for item in items[seen : last + 1])
            and list(items[:seen]) == list(tagged.items)
            and to_messages(items[seen : last + 1]) == [tagged.reply]
        )
        return tagged.turn if is_repeated else None

    def response(
        self,
        tag: int,
        turn: SampledTurn,
        prompt: Prompt,
        answer: Answer,
        calls: Sequence[RequestedCall],
    ) -> ModelResponse:
        """Return the answer as the SDK takes it, with tagged items, and remember the turn."""
        turn.calls = tuple(calls)
        if turn.sample is not None:
            reply = Message("assistant", answer.reply.content, calls=turn.calls)
            self._turns[tag] = _Tagged(turn, list(prompt.items), prompt.frame, reply)
            if len(self._turns) > _MOST_TURNS:
                self._turns.popitem(last=False)
        usage = Usage(
            requests=1,
            input_tokens=answer.prompt_tokens,
            output_tokens=answer.tokens,
            total_tokens=answer.prompt_tokens + answer.tokens,
        )
        return ModelResponse(to_items(answer.reply, calls, tag), usage, response_id=None)
