"""A session's next request is read only where it differs, with the result of reading all of it."""

from hypothesis import given
from hypothesis import strategies as st

from sparring.gateway.chat_completions import read_message
from sparring.gateway.recent import RecentRequest

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
