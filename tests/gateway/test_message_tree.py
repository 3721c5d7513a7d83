"""What messages are compared by."""

from dataclasses import replace

from sparring.contracts.rollouts import Message, RequestedCall
from sparring.gateway.calls import ModelCall
from sparring.gateway.message_tree import MessageTree, canonical, message_key

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
