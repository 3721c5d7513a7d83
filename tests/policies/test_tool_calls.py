import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.policies.tool_calls import BareJson, TaggedJson

HERMES, LLAMA = TaggedJson(), BareJson()


@pytest.mark.parametrize(
    "answer",
    [
        '{"person": {"name": "Ann"}}',
        '{"name": "Ann", "age": 3}',
        '{"name": 3}',
        '{"name": ["Ann"]}',
        '{"name": {"first": "Ann"}}',
    ],
)
def test_a_structured_answer_with_a_name_is_no_call(answer):
    assert LLAMA.parse(answer).content == answer
    assert not LLAMA.parse(answer).malformed


def test_several_calls_and_the_text_before_them_are_read():
    reply = HERMES.parse(
        'Let me see.\n<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call>\n'
        '<tool_call>{"name": "b"}</tool_call>'
    )
    assert reply.content == "Let me see."
    assert [(call.tool, call.arguments) for call in reply.calls] == [("a", '{"x": 1}'), ("b", "{}")]


def test_arguments_that_come_as_a_string_are_read():
    reply = HERMES.parse('<tool_call>{"name": "a", "arguments": "{\\"x\\": 1}"}</tool_call>')
    assert reply.calls[0].arguments == '{"x": 1}'


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "null",
        '{"arguments": {}}',
        '{"name": 3}',
        '{"name": "a", "arguments": [1]}',
        '{"name": "a", "arguments": {"x": NaN}}',
        '{"name": "a", "arguments": {"x": 1e999}}',
        '{"name": "a", "arguments": {"x": ' + "9" * 5000 + "}}",
        "[" * 100_000,
        '{"name": "a", "arguments": ' + '{"x":' * 50_000,
    ],
)
def test_a_call_that_cannot_be_read_says_what_is_wrong(body):
    reply = HERMES.parse(f"<tool_call>{body}</tool_call>")
    assert reply.malformed
    assert not reply.calls


def test_a_call_that_is_not_closed_is_malformed():
    assert "not closed" in HERMES.parse('<tool_call>{"name": "a"}').malformed


def test_llama_calls_are_read_and_plain_text_is_left_alone():
    assert LLAMA.parse('{"name": "a", "parameters": {"x": 1}}').calls[0].arguments == '{"x": 1}'
    assert LLAMA.parse("The name is {x}.").content == "The name is {x}."
    assert LLAMA.parse('{"name": "a", "parameters": {').malformed


@given(st.text())
def test_no_text_makes_a_parser_raise(text):
    for format in (HERMES, LLAMA):
        format.parse(text)
        format.parse(f"<tool_call>{text}</tool_call>")
        format.parse('{"name": ' + text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.text(min_size=1), st.dictionaries(st.text(), json_values))
def test_a_written_call_is_read_back(name, arguments):
    body = json.dumps({"name": name, "arguments": arguments})
    if "</tool_call>" in body:
        return
    (call,) = HERMES.parse(f"<tool_call>{body}</tool_call>").calls
    assert call.tool == name
    assert json.loads(call.arguments) == arguments


@pytest.mark.parametrize("key", ["arguments", "parameters"])
def test_arguments_under_the_other_key_are_not_lost(key):
    written = f'{{"name": "look_up", "{key}": {{"city": "Oslo"}}}}'
    for reply in (LLAMA.parse(written), HERMES.parse(f"<tool_call>{written}</tool_call>")):
        assert [each.arguments for each in reply.calls] == ['{"city": "Oslo"}']


def test_an_object_with_a_name_alone_is_a_call_only_of_an_offered_tool():
    offered = [{"type": "function", "function": {"name": "now"}}]
    assert LLAMA.parse('{"name": "now"}', offered).calls[0].tool == "now"
    for tools in (offered, []):
        assert LLAMA.parse('{"name": "Alice"}', tools).content == '{"name": "Alice"}'
