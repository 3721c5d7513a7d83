"""The branch of a call names its place in the conversation, whenever it comes."""

import pytest

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Message, RequestedCall
from sparring.gateway.calls import ModelCall
from sparring.gateway.seeds import branch_of

CASE = Case("c", "What is 2 + 3?")
USER = Message("user", "What is 2 + 3?")
CALL = ModelCall((USER,))
ASKED = (RequestedCall("c1", "add", "{}"), RequestedCall("c2", "add", "{}"))


class Base:
    """The turn before a call, as far as branches depend on it."""

    def __init__(self, branch="", calls=()):
        self.branch, self.calls = branch, calls


def results(*ids):
    return [Message("tool", "5", call_id=each) for each in ids]


def test_the_plain_conversation_on_a_case_has_no_name():
    assert branch_of(CALL, None, [USER], CASE, 0) == ""
    assert branch_of(CALL, Base(calls=ASKED), results("c1", "c2"), CASE, 0) == ""
    assert branch_of(CALL, Base(), [Message("user", "Go on.")], CASE, 0) == ""


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
def test_anything_but_the_results_of_the_calls_is_a_branch(after):
    assert branch_of(CALL, Base(calls=ASKED), after, CASE, 0) != ""


def test_branches_with_other_messages_have_other_names():
    def name(*texts, branch=""):
        after = [Message("user", text) for text in texts]
        return branch_of(CALL, Base(branch), after, CASE, 0)

    names = [name("a", "b"), name("b", "a"), name("ab", ""), name("a", "b", branch="left")]
    assert len(set(names)) == 4
    assert name("a", branch="left") == "left"  # it goes on by itself


def test_another_frame_on_another_text_is_another_branch():
    helper = ModelCall((Message("system", "help"), USER))
    names = {branch_of(each, None, [Message("user", "x")], CASE, 0) for each in (CALL, helper)}
    assert len(names) == 2


def test_equal_calls_are_counted():
    assert branch_of(CALL, None, [USER], CASE, 2) == "#2"


def test_a_case_that_is_no_chat_is_never_plain():
    assert branch_of(CALL, None, [USER], Case("c", [{"no": "role"}]), 0) != ""
