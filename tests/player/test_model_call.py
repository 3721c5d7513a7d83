"""Model calls without a wire format: what stands before a conversation, and what a call is."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.rollouts import Message
from sparring.player.model_call import ModelCall, digest, with_output_schema
from tests.gateway.playing import TOOLS

SYSTEM, MORE = Message("system", "Be brief."), Message("system", "Be kind.")
USER = Message("user", "hello")
CALL = ModelCall((SYSTEM, MORE, USER), tuple(TOOLS))


def test_the_system_text_is_what_precedes_the_first_turn():
    assert CALL.first_turn == 2
    assert CALL.system == "Be brief.\n\nBe kind."
    assert ModelCall((USER, SYSTEM)).system == ""
    assert ModelCall((SYSTEM,)).first_turn == 1


def test_tools_are_known_by_name():
    assert CALL.tool_names == ["add", "multiply"]


def test_instructions_tools_and_schema_make_the_frame():
    same = replace(CALL, messages=(SYSTEM, MORE, Message("user", "another")), max_tokens=3)
    assert same.frame == CALL.frame
    others = [
        replace(CALL, messages=(SYSTEM, USER)),
        replace(CALL, tools=CALL.tools[:1]),
        replace(CALL, output_schema={"type": "object"}),
    ]
    assert len({CALL.frame, *(each.frame for each in others)}) == 4


def test_what_else_a_reply_depends_on_tells_equal_calls_apart():
    changes = [{"tool_choice": "add"}, {"max_tokens": 1}, {"stop": ("x",)}]
    changes += [{"parallel_tool_calls": False}]
    parameters = {replace(CALL, **change).parameters() for change in changes}
    assert len({CALL.parameters(), *parameters}) == 5
    assert replace(CALL, overridden={"temperature": 0.1}).parameters() == CALL.parameters()


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_different_texts_have_different_digests(some, others):
    assert (digest(*some) == digest(*others)) is (some == others)


def test_the_schema_of_the_output_follows_the_instructions():
    schema = {"type": "object"}
    request = 'Give your final answer as JSON that fits this schema:\n{"type": "object"}'
    asked = ModelCall((SYSTEM, USER), output_schema=schema).rendered()
    assert asked == [Message("system", f"Be brief.\n\n{request}"), USER]
    assert ModelCall((USER,), output_schema=schema).rendered() == [Message("system", request), USER]


def test_equal_schemas_are_written_alike():
    one, other = {"type": "object", "title": "W"}, {"title": "W", "type": "object"}
    assert with_output_schema("", one) == with_output_schema("", other)


def test_only_the_leading_messages_are_joined_to_instructions():
    call = ModelCall((SYSTEM, MORE, USER), leading=1)
    assert call.rendered() == [SYSTEM, MORE, USER]
    assert CALL.rendered() == [Message("system", "Be brief.\n\nBe kind."), USER]
