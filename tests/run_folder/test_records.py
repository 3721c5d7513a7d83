"""A rollout becomes a record of plain JSON, and the record gives the rollout back."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from pathlib import Path
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
from sparring.run_folder.records import HEAD_BYTES, from_record, read_head, to_record
from sparring.run_folder.rollout_log import RolloutLog, RolloutWriter
from tests.rollouts import rollout

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


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
def test_absent_values_and_zeros_survive_a_record(fields: dict[str, Any]) -> None:
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


@given(fields=st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), values, max_size=6))
def test_a_complete_record_is_read_whole(fields: dict[str, Any]) -> None:
    head = read_head(dump_line(fields))
    for name, value in fields.items():
        if name != "case":
            assert head[name] == json.loads(json.dumps(value))


@given(size=st.integers(0, 400))
def test_a_record_cut_anywhere_has_the_fields_before_the_cut(size: int) -> None:
    record = to_record(rollout("an answer", id="c", messages=(Message("user", "x" * 100),)))
    head = read_head(dump_line(record)[:size])
    for name, value in head.items():
        if name not in ("is_cut", "case") and value:
            assert value == record[name]
    assert head["case"]["id"] in ("", "c")


def test_a_list_reads_little_of_a_long_line(tmp_path: Path) -> None:
    with RolloutWriter(tmp_path) as writer:
        writer.append(rollout("short", id="a"), 1.0)
        writer.append(rollout("short", id="b", messages=(Message("user", "x" * HEAD_BYTES),)), 1.0)
    items = list(RolloutLog(tmp_path).items(heads=True))
    assert [item.record["answer"] for item in items] == ["short", "short"]
    assert "is_cut" not in items[0].record
    assert items[1].record["is_cut"]
    assert items[1].record["case"]["id"] == "b"
