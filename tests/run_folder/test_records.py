"""A rollout becomes a record of plain JSON, and the record gives the rollout back."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.cases import Split
from sparring.contracts.rollouts import (
    CallFailure,
    Ending,
    Message,
    RequestedCall,
    ResultBody,
    Rollout,
    Span,
    TokenKind,
    TokenRow,
    TokenUse,
    ToolCall,
)
from sparring.contracts.verdicts import Judgement, cannot_tell, failed
from sparring.run_folder.files import dump_line
from sparring.run_folder.records import from_record, to_record
from tests.rollouts import rollout


def full_rollout(number: int = 0) -> Rollout:
    row = TokenRow(
        "agent",
        array("i", [1, 2, 3, 4]),
        array("f", [-0.5]),
        (Span(TokenKind.PROMPT, 2), Span(TokenKind.SAMPLED, 1), Span(TokenKind.OBSERVED, 1)),
        (ResultBody("add", 3, 4),),
    )
    return rollout(
        f"answer {number} \ud800",
        {"a": 1},
        id=f"case{number}",
        ending=Ending.TURN_LIMIT,
        detail="why",
        reward=0.25,
        turns=3,
        tokens=TokenUse(7, 5),
        rows=(row,),
        tools=(ToolCall("1", "add", "{}", "3", CallFailure.RAISED, "agent"),),
        messages=(
            Message("assistant", "hm", "agent", "thought", (RequestedCall("1", "add", "{}"),)),
            Message("tool", "3", call_id="1"),
        ),
        judgements=(
            Judgement("m", failed("no"), 1.0, 0.5, "broke"),
            Judgement("n", cannot_tell("the judge is away"), 2.0, 0.5),
        ),
    )


def through_a_file(original: Rollout) -> Rollout:
    """As a log stores it: one line of ASCII."""
    return from_record(json.loads(dump_line(to_record(original))))


def test_a_rollout_comes_back_from_its_line_in_a_log() -> None:
    original = full_rollout()
    assert through_a_file(original) == original


@pytest.mark.parametrize(
    "fields",
    [
        {"advantage": 0.0},
        {"advantage": -1.5, "dropped": "its group has one reward"},
        {"reward": None},
        {"rows": (), "messages": (), "tool_calls": (), "judgements": ()},
    ],
)
def test_what_is_absent_comes_back_absent_and_zero_comes_back_zero(fields: dict[str, Any]) -> None:
    original = replace(full_rollout(), **fields)
    assert through_a_file(original) == original


def test_live_objects_are_not_stored() -> None:
    stored = through_a_file(replace(full_rollout(), world=object(), output=object()))
    assert (stored.world, stored.output) == (full_rollout().world, full_rollout().output)


def test_a_held_out_case_stays_one() -> None:
    original = full_rollout()
    held_out = replace(original, case=replace(original.case, split=Split.HELD_OUT))
    assert through_a_file(held_out).case.split is Split.HELD_OUT


def test_equal_plays_give_equal_bytes() -> None:
    assert dump_line(to_record(full_rollout())) == dump_line(to_record(full_rollout()))


@settings(max_examples=40)
@given(
    st.lists(st.integers(-(2**31), 2**31 - 1)),
    st.lists(st.floats(width=32, allow_nan=False)),
)
def test_token_ids_and_logprobs_come_back_bit_for_bit(
    ids: list[int], logprobs: list[float]
) -> None:
    row = TokenRow("agent", array("i", ids), array("f", logprobs), (), ())
    (stored,) = through_a_file(rollout(rows=(row,))).rows
    assert stored.ids.tobytes() == row.ids.tobytes()
    assert stored.logprobs.tobytes() == row.logprobs.tobytes()


def test_a_record_gives_the_rollout_back() -> None:
    original = full_rollout()
    assert from_record(to_record(original)) == original
