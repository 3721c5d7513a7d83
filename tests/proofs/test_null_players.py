"""Null players answer without knowing; where they are right by chance, they say nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import Ending
from sparring.proofs.null_players import (
    PLAYERS,
    answer_of,
    example_answers,
    null_rollout,
)

BY_NAME = {player.name: player for player in PLAYERS}
WORKED: list[dict[str, Any]] = [
    {"role": "user", "content": "What is 1 + 1?"},
    {"type": "function_call", "name": "add", "arguments": "{}"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "What is 2 + 2?"},
]


def answers(expected: Any, *others: Any, question: str = "question") -> dict[str, str | None]:
    case = Case("c", question, expected)
    cases = [case, *(Case(f"o{n}", "other", other) for n, other in enumerate(others))]
    return {name: answer_of(player, case, cases) for name, player in BY_NAME.items()}


def test_two_players_know_the_answer_and_no_other_does() -> None:
    assert [player.name for player in PLAYERS if player.knows] == ["expected", "sentence"]
    found = answers("Paris", "Rome")
    assert found["expected"] == "Paris"
    assert found["sentence"] == "The answer is Paris."
    assert found["another"] == "Rome"
    assert found["noise"] == "qxParisqx"


@given(
    st.one_of(st.text(), st.integers(), st.booleans(), st.lists(st.integers())),
    st.lists(st.text(), max_size=3),
)
def test_no_player_without_knowledge_gives_the_expected_answer(
    expected: Any, others: list[str]
) -> None:
    text = expected if isinstance(expected, str) else json.dumps(expected)
    for name, answer in answers(expected, *others, question="Hello.").items():
        if not BY_NAME[name].knows and answer is not None:
            assert answer.strip() != text.strip()


def test_the_answers_of_worked_examples_are_given() -> None:
    second = [
        {"role": "user", "content": "What is 3 + 3?"},
        {"role": "assistant", "content": "Let me see."},
        {"role": "assistant", "content": "6"},
        {"role": "user", "content": "What is 2 + 2?"},
    ]

    def given(items: list[dict[str, Any]], expected: str) -> list[str | None]:
        case = Case("c", items, expected)
        names = ("example", "last-example")
        return [answer_of(BY_NAME[name], case, [case]) for name in names]

    assert given(WORKED, "4") == ["2", None]
    assert given([*WORKED[:-1], *second], "4") == ["2", "6"]
    assert given([*WORKED[:-1], *second], "6") == ["2", None]  # right by chance
    assert example_answers(WORKED[:-1]) == ["2"]
    assert answers("4")["example"] is None


def test_a_player_that_is_right_by_chance_has_no_answer() -> None:
    assert answers("I don't know.")["unsure"] is None
    assert answers("")["empty"] is None
    assert answers(None)["empty"] == ""  # nothing is expected, so nothing can be right


def test_without_an_expected_answer_only_those_play_that_need_none() -> None:
    found = answers(None)
    assert {name for name, answer in found.items() if answer is not None} == {
        "empty", "question", "fixed", "unsure",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("expected", "hollow"),
    [
        ('{"name": "Ann", "age": 3, "tags": ["x"]}', '{"name": "", "age": 0, "tags": []}'),
        ({"a": {"b": 1.5, "c": True}}, '{"a": {"b": 0.0, "c": false}}'),
        ("Paris, Rome!", ", !"),
        ("Paris", "Answer:"),
        (7, "Answer:"),
    ],
)
def test_the_hollow_answer_has_the_form_and_not_the_content(expected: Any, hollow: str) -> None:
    assert answers(expected)["hollow"] == hollow


def test_the_answers_of_the_first_and_the_last_worked_example_are_given_to_every_case() -> None:
    case = Case("c", "question", "yes")
    shown = ("I cannot refund it.", "It is open.", "Refunded.")
    first, last = BY_NAME["example"], BY_NAME["last-example"]
    assert answer_of(first, case, [case], shown) == "I cannot refund it."
    assert answer_of(last, case, [case], shown) == "Refunded."
    assert answer_of(last, case, [case], shown[:1]) is None
    assert answer_of(first, case, [case]) is None
    assert answer_of(first, case, [case], ("yes",)) is None  # right by chance


def test_only_a_single_word_is_hidden_in_noise() -> None:
    assert answers(42)["noise"] == "9429"
    assert answers("two words")["noise"] is None
    assert answers("(x)")["noise"] is None


def test_a_null_rollout_names_its_player_and_has_an_id_of_its_own() -> None:
    case, world = Case("c", WORKED, "4"), object()
    made = [null_rollout(n, case, "Hello.", world) for n in range(len(PLAYERS))]
    assert len({each.id for each in made}) == len(PLAYERS)
    first = made[0]
    assert (first.ending, first.answer, first.world) == (Ending.ANSWERED, "Hello.", world)
    assert [each.content for each in first.messages] == ["What is 2 + 2?", "Hello."]
    assert first.messages[1].agent == PLAYERS[0].name
