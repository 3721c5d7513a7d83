"""Sessions: found by key, gone at their end; and the input of a case as chat messages."""

import asyncio
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.cases import Case
from sparring.gateway.chat_completions import read_message
from sparring.gateway.sessions import (
    Mailbox,
    RecentRequest,
    Session,
    Sessions,
    case_record,
    case_text,
    chat_messages,
    session_record,
)
from sparring.gateway.wire import Refused


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


class CountingLoop:
    """Counts wakeups; runs what it was given on request."""

    def __init__(self):
        self.calls = []

    def call_soon_threadsafe(self, function):
        self.calls.append(function)

    def run(self):
        calls, self.calls = self.calls, []
        for each in calls:
            each()
        return len(calls)


def test_posts_that_wait_together_cause_one_wakeup():
    loop, done = CountingLoop(), []
    mailbox = Mailbox(loop)
    for number in range(5):
        mailbox.post(lambda number=number: done.append(number))
    assert loop.run() == 1
    assert done == [0, 1, 2, 3, 4]
    mailbox.post(lambda: done.append(5))
    assert loop.run() == 1
    assert done[-1] == 5


def test_a_post_made_by_a_post_is_called_in_the_same_run():
    loop, done = CountingLoop(), []
    mailbox = Mailbox(loop)
    mailbox.post(lambda: mailbox.post(lambda: done.append("second")))
    loop.run()
    assert done == ["second"]


def test_posts_of_several_threads_all_arrive_in_their_order():
    async def collect():
        mailbox, done, everything = Mailbox(asyncio.get_running_loop()), [], asyncio.Event()

        def note(item):
            done.append(item)
            if len(done) == 4000:
                everything.set()

        def post(name):
            for number in range(1000):
                mailbox.post(lambda number=number: note((name, number)))

        threads = [threading.Thread(target=post, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(everything.wait(), 30)
        return done

    done = asyncio.run(collect())
    for name in range(4):
        assert [number for each, number in done if each == name] == list(range(1000))


def test_a_closed_loop_is_an_error_each_time():
    loop = asyncio.new_event_loop()
    mailbox = Mailbox(loop)
    loop.close()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            mailbox.post(print)


texts = st.sampled_from(["", "a", "b"])
calls = st.lists(
    st.builds(lambda name: {"id": name, "function": {"name": "f", "arguments": name}}, texts),
    max_size=2,
)
messages = st.one_of(
    st.builds(lambda role, text: {"role": role, "content": text}, st.just("user"), texts),
    st.builds(
        lambda text, made: {"role": "assistant", "content": text, "tool_calls": made}, texts, calls
    ),
)
requests = st.lists(st.lists(messages, max_size=5), max_size=6)


@given(requests)
def test_messages_are_those_of_reading_everything(all_of_them):
    recent = RecentRequest()
    for request in all_of_them:
        found = recent.messages(request, read_message, "messages")
        assert found == tuple(read_message(each, "") for each in request)


def test_only_what_is_new_is_read():
    recent, places = RecentRequest(), []

    def read(message, where):
        places.append(where)
        return read_message(message, where)

    talk = [{"role": "user", "content": str(number)} for number in range(3)]
    first = recent.messages(talk, read, "messages")
    more = recent.messages([*map(dict, talk), {"role": "user", "content": "x"}], read, "messages")
    assert places == [f"messages[{number}]" for number in range(4)]
    assert all(one is other for one, other in zip(first, more, strict=False))
    recent.messages([talk[0], {"role": "user", "content": "edited"}, talk[2]], read, "m")
    assert places[4:] == ["m[1]", "m[2]"]


CASE = Case("c1", "What is 2 + 3?", expected="the secret 5")
SESSION = Session("http://x/v1", "http://x", "sk-key", "tiny", CASE, world=object())


def test_the_record_of_a_case_lacks_the_expected_answer():
    messages = [{"role": "user", "content": "What is 2 + 3?"}]
    assert case_record(CASE) == {"id": "c1", "input": CASE.input, "messages": messages}
    assert "secret" not in case_text(CASE)


def test_the_text_is_json_with_readable_characters():
    case = Case("c", [{"role": "user", "content": "Größe?"}])
    assert json.loads(case_text(case)) == case_record(case)
    assert "Größe?" in case_text(case)


def test_the_record_of_a_session_has_its_addresses_key_and_model():
    assert session_record(SESSION) == {
        "base_url": "http://x/v1",
        "anthropic_base_url": "http://x",
        "api_key": "sk-key",
        "model": "tiny",
    }
