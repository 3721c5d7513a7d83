"""Sessions: found by key, gone at their end; and the input of a case as chat messages."""

import asyncio

import pytest

from sparring.contracts.cases import Case
from sparring.gateway.calls import Refused
from sparring.gateway.sessions import Session, Sessions, chat_messages


class Closed:
    def close(self):
        pass


def in_loop(work):
    async def run():
        return work()

    return asyncio.run(run())


def test_a_session_is_found_by_either_key_and_not_by_two():
    def work():
        sessions = Sessions()
        one, two = sessions.open(Closed()), sessions.open(Closed())
        assert sessions.find(one.key, "") is one
        assert sessions.find("", one.key) is one
        assert sessions.find(one.key, one.key) is one
        assert sessions.find(one.key, "anything") is one
        for keys in ((one.key, two.key), ("anything", one.key), ("", ""), ("x", "y")):
            with pytest.raises(Refused) as caught:
                sessions.find(*keys)
            assert caught.value.status == 401

    in_loop(work)


def test_an_ended_session_is_gone():
    def work():
        sessions = Sessions()
        session = sessions.open(Closed())
        sessions.close(session)
        for keys in ((session.key, ""), ("", session.key)):
            with pytest.raises(Refused) as caught:
                sessions.find(*keys)
            assert caught.value.status == 410
        assert len(sessions) == 0

    in_loop(work)


def test_keys_are_unlike_each_other():
    sessions = Sessions()
    assert in_loop(lambda: len({sessions.open(Closed()).key for _ in range(1000)})) == 1000


def test_the_input_of_a_case_becomes_chat_messages():
    items = [
        {"role": "user", "content": "1 + 1?"},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "2"},
        {"role": "user", "content": "2 + 2?"},
    ]
    assert [message["role"] for message in chat_messages(Case("c", items))] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]
    assert chat_messages(Case("c", "hello")) == [{"role": "user", "content": "hello"}]


def test_a_session_does_not_show_its_world():
    session = Session("u", "a", "k", "m", Case("c", "x"), world="secret")
    assert "secret" not in repr(session)
