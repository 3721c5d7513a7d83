"""What messages are compared by, how branches are named, and which replies are discarded."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Message, RequestedCall
from sparring.player.message_tree import (
    MessageTree,
    Node,
    Place,
    TreeReply,
    canonical,
    find_discarded,
    message_key,
)
from sparring.player.recorder import ModelCall, SampledTurn

CALL = Message("assistant", "", calls=(RequestedCall("c", "add", '{"a": 1, "b": [2]}'),))
USER = Message("user", "hello")


def with_arguments(text):
    return replace(CALL, calls=(RequestedCall("c", "add", text),))


def test_arguments_are_compared_as_json_values():
    assert message_key(CALL) == message_key(with_arguments('{"b":[2],"a":1}'))
    assert message_key(CALL) != message_key(with_arguments('{"b":[2],"a":"1"}'))
    assert canonical("not json") == "not json"


def test_reasoning_and_agents_are_not_compared():
    assert message_key(replace(CALL, thinking="hm", agent="x")) == message_key(CALL)


def test_call_ids_tools_roles_and_texts_are_compared():
    others = [
        replace(CALL, calls=(RequestedCall("d", "add", CALL.calls[0].arguments),)),
        replace(CALL, calls=(RequestedCall("c", "sub", CALL.calls[0].arguments),)),
        replace(CALL, content="x"),
        replace(CALL, calls=()),
        Message("tool", "", call_id="c"),
        Message("tool", "", call_id="d"),
    ]
    assert len({message_key(each) for each in [CALL, *others]}) == 7


def place(tree, call):
    return tree.place(call, call.frame)


def test_only_new_messages_are_added():
    tree = MessageTree()
    first = place(tree, ModelCall((USER,)))
    again = place(tree, ModelCall((USER, CALL)))
    assert (first.new, again.new) == ((USER,), (CALL,))
    assert again.node.parent is first.node
    assert place(tree, ModelCall((USER, CALL))).node is again.node


def test_other_instructions_or_tools_are_another_tree():
    tree = MessageTree()
    tool = {"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}
    nodes = {
        place(tree, call).node
        for call in (
            ModelCall((USER,)),
            ModelCall((USER,), (tool,)),
            ModelCall((Message("system", "s"), USER)),
            ModelCall((USER,), output_schema={}),
        )
    }
    assert len(nodes) == 4


CASE = Case("c", "What is 2 + 3?")
QUESTION = Message("user", "What is 2 + 3?")
ASKING = ModelCall((QUESTION,))
NODE = Node(QUESTION)
CALLS_OF_BOTH = (RequestedCall("c1", "add", "{}"), RequestedCall("c2", "add", "{}"))


def base(branch="", calls=()):
    """The reply before a call, as far as branches depend on it."""
    return TreeReply(SampledTurn(0, "main", calls=calls), NODE, branch=branch)


def branch_of(call, before, after, case, repeats):
    return Place(NODE, (), before, tuple(after)).branch(call, case, repeats)


def results(*ids):
    return [Message("tool", "5", call_id=each) for each in ids]


def test_the_plain_conversation_on_a_case_has_no_name():
    assert branch_of(ASKING, None, [QUESTION], CASE, 0) == ""
    assert branch_of(ASKING, base(calls=CALLS_OF_BOTH), results("c1", "c2"), CASE, 0) == ""
    assert branch_of(ASKING, base(), [Message("user", "Go on.")], CASE, 0) == ""


def test_a_case_of_several_messages_is_plain_too():
    items = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    case = Case("c", [*items, {"role": "user", "content": "c"}])
    given = [Message("user", "a"), Message("assistant", "b"), Message("user", "c")]
    assert branch_of(ModelCall(tuple(given)), None, given, case, 0) == ""
    assert branch_of(ModelCall(tuple(given[:1])), None, given[:1], case, 0) != ""


@pytest.mark.parametrize(
    "after",
    [[], results("c1"), results("c2", "c1"), [*results("c1", "c2"), Message("user", "x")]],
    ids=["none", "one of two", "out of order", "and more"],
)
def test_messages_other_than_results_of_the_calls_make_a_branch(after):
    assert branch_of(ASKING, base(calls=CALLS_OF_BOTH), after, CASE, 0) != ""


def test_branches_with_other_messages_have_other_names():
    def name(*texts, branch=""):
        after = [Message("user", text) for text in texts]
        return branch_of(ASKING, base(branch), after, CASE, 0)

    names = [name("a", "b"), name("b", "a"), name("ab", ""), name("a", "b", branch="left")]
    assert len(set(names)) == 4
    assert name("a", branch="left") == "left"  # it goes on by itself


def test_another_frame_on_another_text_is_another_branch():
    helper = ModelCall((Message("system", "help"), QUESTION))
    names = {branch_of(each, None, [Message("user", "x")], CASE, 0) for each in (ASKING, helper)}
    assert len(names) == 2


def test_equal_calls_are_counted():
    assert branch_of(ASKING, None, [QUESTION], CASE, 2) == "#2"


def test_a_case_that_is_no_chat_is_never_plain():
    assert branch_of(ASKING, None, [QUESTION], Case("c", [{"no": "role"}]), 0) != ""


def test_a_reply_that_comes_back_is_what_the_next_call_continues():
    tree = MessageTree()
    first = place(tree, ModelCall((USER,)))
    reply = TreeReply(SampledTurn(0, "main"), first.node, content="hi")
    tree.add(reply)
    answer, more = Message("assistant", "hi"), Message("user", "more")
    again = place(tree, ModelCall((USER, answer, more)))
    assert (again.before, again.after, again.depth) == (reply, (more,), 1)
    assert tree.find(answer) is reply.turn
    assert place(tree, ModelCall((USER, Message("assistant", "ho"), more))).before is None


def test_a_reply_is_used_by_a_call_that_repeats_or_quotes_it():
    tree = MessageTree()
    answer, quoting = Message("assistant", "hi there"), Message("user", "You wrote: hi there.")
    reply = TreeReply(SampledTurn(0, "main"), place(tree, ModelCall((USER,))).node)
    reply.content = answer.content
    tree.add(reply)
    own = ModelCall((USER, answer, USER))
    tree.note_uses(own, place(tree, own), 1)
    assert reply.last_use == -1, "its own conversation"
    quoted = ModelCall((Message("system", "other"), quoting))
    tree.note_uses(quoted, place(tree, quoted), 2)
    assert reply.last_use == 2
    repeated = ModelCall((Message("system", "other"), USER, answer, USER))
    tree.note_uses(repeated, place(tree, repeated), 3)
    assert reply.last_use == 3


class Replies:
    """Makes replies, each with a number of its own."""

    def __init__(self):
        self.all = []

    def add(self, before=None, prompt=None):
        turn = SampledTurn(len(self.all), "main", before=before.turn if before else None)
        self.all.append(TreeReply(turn, prompt or Node(QUESTION), before))
        return self.all[-1]


steps = st.lists(st.tuples(st.integers(-1, 20), st.integers(0, 2), st.booleans()), max_size=14)


@given(steps)
def test_discarded_replies_were_never_used_and_neither_was_what_follows_them(steps):
    made, places = Replies(), [Node(Message("user", str(number))) for number in range(3)]
    for before, number, is_used in steps:
        earlier = made.all
        parent = earlier[before % len(earlier)] if earlier and before >= 0 else None
        reply = made.add(parent, places[number])
        reply.last_use = len(earlier) if is_used else -1
    discarded = find_discarded(made.all)
    for reply in discarded:
        followers = [each for each in made.all if each.before is reply]
        assert reply is not made.all[-1]
        assert followers or reply.last_use < 0
        assert all(each in discarded for each in followers)


def test_a_reply_whose_call_was_repeated_is_discarded():
    made, node = Replies(), Node(QUESTION)
    first, second = made.add(prompt=node), made.add(prompt=node)
    assert find_discarded(made.all) == {first}
    second.last_use = 3
    assert find_discarded(made.all) == {first}
    first.last_use = 3  # a part of another message
    assert find_discarded(made.all) == set()


def test_a_branch_that_was_left_is_discarded_as_a_whole():
    made = Replies()
    start = made.add()
    left = made.add(start)
    longer = made.add(left)
    made.add(start)
    assert find_discarded(made.all) == {left, longer}
