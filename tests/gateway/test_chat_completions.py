"""Chat Completions: requests in all spellings, replies and streams as OpenAI's types read them."""

import json
from types import SimpleNamespace

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from sparring.contracts.rollouts import Message, RequestedCall
from sparring.gateway.chat_completions import ChatCompletions
from sparring.gateway.sessions import RecentRequest
from sparring.gateway.wire import FinishReason, ModelReply, Refused
from tests.gateway.playing import TOOLS

FORMAT = ChatCompletions()
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
IMAGE = [{"type": "image_url", "image_url": {"url": "data:"}}]
CALL = RequestedCall("call_1", "add", '{"a": 1}')
REPLY = ModelReply(3, "hi", "hm", (CALL,), FinishReason.TOOL_CALLS, 7, 5)


def session():
    return SimpleNamespace(recent=RecentRequest())


def read(**fields):
    return FORMAT.read({**HELLO, **fields}, session()).call


def test_messages_of_every_role_are_read():
    call = read(
        messages=[
            {
                "role": "developer",
                "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}],
            },
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "3"},
        ]
    )
    assert call.messages == (
        Message("system", "Be kind."),
        Message("user", "hello"),
        Message("assistant", "", calls=(RequestedCall("c", "add", "{}"),)),
        Message("tool", "3", call_id="c"),
    )
    assert call.system == "Be kind."


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_token_limits_are_read_in_both_spellings(name):
    assert read(**{name: 9}).max_tokens == 9


def test_tools_and_choices_are_read():
    assert read(tools=TOOLS).tools == tuple(TOOLS)
    assert read(tools=TOOLS, tool_choice="auto").tool_choice is None
    assert read(tools=TOOLS, tool_choice="required").tool_choice == "required"
    named = {"type": "function", "function": {"name": "add"}}
    assert read(tools=TOOLS, tool_choice=named).tool_choice == "add"
    none = read(tools=TOOLS, tool_choice="none")
    assert (none.tools, none.tool_choice) == (tuple(TOOLS), "none")


def test_the_strict_mark_of_a_tool_changes_nothing():
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]
    assert read(tools=strict).tools == (TOOLS[0],)


def test_response_formats_are_read():
    schema = {"type": "object", "properties": {}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert read(response_format=form).output_schema == schema
    assert read(response_format={"type": "json_object"}).output_schema == {"type": "object"}
    assert read(response_format={"type": "text"}).output_schema is None


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [3]}, "messages[0]"),
        ({"messages": [{"role": "judge", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "tool_call_id"),
        ({"messages": [{"role": "user", "content": IMAGE}]}, "messages[0].content[0]"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"stop": [1]}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0]"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "fly"}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format"),
    ],
)  # fmt: skip
def test_unsupported_fields_are_refused_by_name(fields, parameter):
    with pytest.raises(Refused) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.parameter) == (400, parameter)
    error = FORMAT.error(caught.value)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == parameter


def test_replies_are_valid_for_openais_types():
    sent = FORMAT.read(HELLO, session())
    completion = ChatCompletion.model_validate(FORMAT.reply(sent, REPLY, None))
    choice = completion.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("hi", "tool_calls")
    assert choice.message.tool_calls[0].function.arguments == '{"a": 1}'
    assert completion.usage.total_tokens == 12


def test_streams_add_up_to_the_reply():
    sent = FORMAT.read(
        {**HELLO, "stream": True, "stream_options": {"include_usage": True}}, session()
    )
    lines = b"".join(FORMAT.events(sent, REPLY, None)).decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [
        ChatCompletionChunk.model_validate(json.loads(line.removeprefix("data: ")))
        for line in lines[:-2]
    ]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "hi"
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    assert [call.id for call in calls] == ["call_1", None]
    assert "".join(call.function.arguments for call in calls) == '{"a": 1}'
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"
    assert chunks[-1].usage.completion_tokens == 5
