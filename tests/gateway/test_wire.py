"""Fields of a body that anyone may have written: read, or refused with the field's name."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.rollouts import Message
from sparring.gateway.wire import (
    Refused,
    WireCall,
    chosen_tool,
    event,
    function_schema,
    is_set,
    list_field,
    object_of,
    overridden,
    refuse,
    stop_sequences,
    text_field,
    text_of,
    token_limit,
)
from sparring.player.recorder import ModelCall
from tests.gateway.playing import TOOLS

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


def test_events_are_lines_of_data_with_a_name():
    assert event("[DONE]") == b"data: [DONE]\n\n"
    assert event({"a": "ä\n"}, "delta") == b'event: delta\ndata: {"a": "\\u00e4\\n"}\n\n'


def test_a_call_takes_over_what_headers_say_of_retries():
    sent = WireCall(ModelCall((Message("user", "x"),)), "m").retried(is_retry=True, key="k")
    assert (sent.call.is_retry, sent.call.retry_key, sent.model) == (True, "k", "m")


def test_fields_are_read_as_they_are():
    body = {"text": "x", "list": [1], "on": True, "max": 3, "stop": "s", "temperature": 1}
    assert text_field(body, "text") == "x"
    assert text_field(body, "absent", "y") == "y"
    assert (list_field(body, "list"), list_field(body, "absent")) == ([1], [])
    assert (is_set(body, "on"), is_set(body, "absent")) == (True, False)
    assert token_limit(body, "absent", "max") == 3
    assert token_limit(body, "absent") is None
    assert (stop_sequences(body, "stop"), stop_sequences(body, "absent")) == (("s",), ())
    assert stop_sequences({"stop": ["a", "b"]}, "stop") == ("a", "b")
    assert overridden(body) == {"temperature": 1.0}
    assert object_of(body, "body") is body


@pytest.mark.parametrize(
    ("read", "wrong"),
    [
        (text_field, [None, 1, [], {}]),
        (list_field, ["x", 1, {}]),
        (is_set, ["true", 1, []]),
        (token_limit, [0, -1, True, "3", 1.5]),
        (stop_sequences, [1, {}, [1], [None]]),
        (lambda body, name: overridden({"top_p": body[name]}), ["x", True, []]),
        (lambda body, name: object_of(body[name], name), [None, "x", []]),
    ],
)
def test_values_of_another_type_are_refused_with_the_field(read, wrong):
    for value in wrong:
        with pytest.raises(Refused) as caught:
            read({"field": value}, "field")
        assert caught.value.status == 400
        assert caught.value.parameter in ("field", "top_p")


def test_text_is_a_string_or_its_parts():
    parts = [{"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "b"}]
    assert (text_of(None, "x"), text_of("a", "x"), text_of(parts, "x")) == ("", "a", "ab")
    assert text_of(parts, "x", joint="\n") == "a\nb"
    assert text_of([{"type": "refusal", "refusal": "no"}], "x", ("text", "refusal")) == "no"


@given(anything)
def test_any_content_is_a_text_or_a_refusal(content):
    is_text = content is None or isinstance(content, str) or content == []
    with contextlib.nullcontext() if is_text else pytest.raises(Refused, match=r"^here") as caught:
        assert isinstance(text_of(content, "here"), str)
    assert is_text or (caught.value.status, caught.value.parameter[:4]) == (400, "here")


def test_unsupported_fields_are_refused_with_the_reason_unless_they_are_empty():
    refuse({"audio": None, "logprobs": False}, {"audio": "a", "logprobs": "b"})
    with pytest.raises(Refused, match="logprobs is not supported: b"):
        refuse({"logprobs": True}, {"audio": "a", "logprobs": "b"})


def test_a_tool_is_described_as_the_agents_sdk_does():
    function = TOOLS[0]["function"]
    made = function_schema(function["name"], function["description"], function["parameters"], "t")
    assert json.dumps(made) == json.dumps(TOOLS[0])
    assert function_schema("f", None, None, "t")["function"]["parameters"] == {}


@pytest.mark.parametrize("wrong", [("", None, None), (1, None, None), ("f", 1, None), ("f", "", 3)])
def test_a_tool_without_name_or_schema_is_refused(wrong):
    with pytest.raises(Refused, match="tools"):
        function_schema(*wrong, "tools[0]")


def test_a_tool_choice_names_an_offered_tool():
    tools = tuple(TOOLS)
    assert chosen_tool("required", tools) == "required"
    assert chosen_tool("add", tools) == "add"
    for choice, offered in (("fly", tools), ("required", ()), (None, tools)):
        with pytest.raises(Refused):
            chosen_tool(choice, offered)
