"""Messages, tool calls and tools in the format of OpenAI's chat completions, which chat templates
also receive."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sparring.contracts.json import JsonObject, JsonSchema
from sparring.contracts.rollouts import Message

ToolSchema = JsonSchema  # what `tool_schema` returns, from whoever wrote it


class ChatFunction(TypedDict):
    """A tool's name, with arguments: JSON text for servers, the decoded value for templates."""

    name: str
    arguments: Any


class ChatCall(TypedDict):
    """One tool call of a message."""

    id: NotRequired[str]
    type: Literal["function"]
    function: ChatFunction


class ChatMessage(TypedDict):
    """One message of a conversation."""

    role: str
    content: str
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ChatCall]]
    tool_call_id: NotRequired[str]


def chat_call(tool: str, arguments: Any, call_id: str | None = None) -> ChatCall:
    """Return a tool call; without an id if `call_id` is None."""
    function = ChatFunction(name=tool, arguments=arguments)
    if call_id is None:
        return {"type": "function", "function": function}
    return {"id": call_id, "type": "function", "function": function}


def chat_message(message: Message) -> ChatMessage:
    """Return a message without its thinking; the arguments of its calls are JSON text."""
    chat = ChatMessage(role=message.role, content=message.content)
    if message.calls:
        chat["tool_calls"] = [
            chat_call(call.tool, call.arguments, call.id) for call in message.calls
        ]
    if message.role == "tool":
        chat["tool_call_id"] = message.call_id
    return chat


def tool_schema(name: str, description: str, parameters: JsonSchema) -> JsonObject:
    """Return a tool; `parameters` is the JSON Schema of its arguments."""
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}
