"""Items of the SDK and messages of Sparring say the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import Untrainable
from sparring.contracts.policies import Reply
from sparring.contracts.rollouts import Message, RequestedCall
from sparring.player.conversation import text_of, to_items, to_messages, turn_of

texts = st.text(max_size=20)
calls = st.lists(st.builds(RequestedCall, st.text("abc", min_size=1), texts, texts), max_size=3)


def dumped(reply: Reply, made: list[RequestedCall], turn: int) -> list[dict[str, Any]]:
    """As the SDK passes the items of one turn to the next."""
    return [item.model_dump(exclude_unset=True) for item in to_items(reply, made, turn)]


@given(texts, calls, st.integers(0, 9))
def test_a_reply_comes_back_as_one_message_of_its_turn(
    content: str, made: list[RequestedCall], turn: int
) -> None:
    items = dumped(Reply(content), made, turn)
    assert to_messages(items) == [Message("assistant", content, calls=tuple(made))]
    assert {turn_of(item) for item in items} == {turn}


def test_a_reply_without_text_and_calls_is_still_an_item() -> None:
    (item,) = dumped(Reply(""), [], 0)
    assert (item["type"], item["content"][0]["text"]) == ("message", "")


@pytest.mark.parametrize(
    "data", [{}, {"provider_data": None}, {"provider_data": {"model": "other"}}]
)
def test_an_item_of_another_model_has_no_turn(data: dict[str, Any]) -> None:
    assert turn_of({"role": "assistant", "content": "", **data}) is None


def test_results_and_roles_keep_their_order() -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"text": "b"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "3"},
        {"type": "message", "role": "assistant", "content": None},
    ]
    assert to_messages(items) == [
        Message("system", "Be brief."),
        Message("user", "ab"),
        Message("assistant", "", calls=(RequestedCall("1", "add", "{}"),)),
        Message("tool", "3", call_id="1"),
        Message("assistant", ""),
    ]


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"role": "robot", "content": ""}, "unknown role 'robot'; use system, developer, user"),
        ({"type": "image_generation_call"}, "type 'image_generation_call'.*function tools"),
        ({"role": "user", "content": [{"type": "input_image"}]}, "type 'input_image'.*text parts"),
    ],
)
def test_what_a_text_model_cannot_read_is_refused_by_name(item: dict[str, Any], named: str) -> None:
    with pytest.raises(Untrainable, match=named):
        to_messages([item])


def test_a_part_that_is_not_a_mapping_is_refused_by_its_type() -> None:
    with pytest.raises(Untrainable, match="part of type 'int'"):
        text_of([3])
