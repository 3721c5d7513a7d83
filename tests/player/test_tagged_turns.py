"""A prompt continues the turn whose tag its items bear, if it repeats what the turn knew."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from sparring.contracts.policies import Finish, Reply, Sample
from sparring.contracts.rollouts import RequestedCall
from sparring.player.prompts import Prompt
from sparring.player.recorder import Answer
from sparring.player.tagged_turns import TaggedTurns
from sparring.player.turns import SampledTurn

QUESTION = {"role": "user", "content": "How warm is it?"}
MORE = {"role": "user", "content": "And tomorrow?"}
CALLS = [RequestedCall("c1", "look", "{}")]


def prompt(*items: Any, system: str = "Be brief.", tools: Any = ()) -> Prompt:
    return Prompt(system, items, tools, None)


class Tagged:
    """One turn that was sampled, and the items that the SDK makes of it."""

    def __init__(self, tag: int = 7, calls: Any = ()) -> None:
        self.turns = TaggedTurns()
        sample = Sample(array("i", [1]), array("f", [0.0]), Finish.STOP)
        self.turn = SampledTurn(0, "main", array("i", [5, 1]), 1, sample=sample)
        answer = Answer(Reply("7 degrees"), Finish.STOP, 11, 3)
        self.response = self.turns.response(tag, self.turn, prompt(QUESTION), answer, calls)
        self.items = [item.model_dump(exclude_unset=True) for item in self.response.output]


def test_a_prompt_that_only_appends_continues_the_turn() -> None:
    tagged = Tagged()
    assert tagged.turns.continued_by(prompt(QUESTION, *tagged.items, MORE)) is tagged.turn
    assert tagged.turns.continued_by(prompt(QUESTION, *tagged.items, MORE)) is tagged.turn


def test_the_items_of_a_turn_with_calls_are_one_turn() -> None:
    tagged = Tagged(calls=CALLS)
    result = {"type": "function_call_output", "call_id": "c1", "output": "7"}
    assert len(tagged.items) == 2
    assert tagged.turns.continued_by(prompt(QUESTION, *tagged.items, result)) is tagged.turn
    assert tagged.turns.continued_by(prompt(QUESTION, tagged.items[1], result)) is None


@pytest.mark.parametrize("change", ["instructions", "tools", "history", "reply", "nothing new"])
def test_a_prompt_that_changes_what_came_before_continues_nothing(change: str) -> None:
    tagged = Tagged()
    items = [QUESTION, *tagged.items, MORE]
    system, tools = "Be brief.", ()
    if change == "instructions":
        system = "Be long."
    elif change == "tools":
        tools = ({"type": "function", "function": {"name": "look"}},)
    elif change == "history":
        items[0] = MORE
    elif change == "reply":
        items[1] = {**items[1], "content": [{"type": "output_text", "text": "8 degrees"}]}
    else:
        items.pop()
    assert tagged.turns.continued_by(prompt(*items, system=system, tools=tools)) is None


def test_a_turn_that_the_template_changes_is_not_continued() -> None:
    tagged = Tagged()
    tagged.turn.is_hidden = True
    assert tagged.turns.continued_by(prompt(QUESTION, *tagged.items, MORE)) is None


def test_only_the_last_turns_are_remembered() -> None:
    tagged = Tagged(tag=0)
    answer = Answer(Reply("7 degrees"), Finish.STOP, 11, 3)
    asked = prompt(QUESTION, *tagged.items, MORE)
    for tag in range(1, 256):
        tagged.turns.response(tag, tagged.turn, prompt(QUESTION), answer, [])
    assert tagged.turns.continued_by(asked) is tagged.turn
    tagged.turns.response(256, tagged.turn, prompt(QUESTION), answer, [])
    assert tagged.turns.continued_by(asked) is None


def test_the_usage_of_a_response_adds_up() -> None:
    usage = Tagged().response.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (1, 11, 3)
    assert usage.total_tokens == 14
