"""Rollouts: masks, endings, ids, and what makes two of them equal."""

from __future__ import annotations

from array import array
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.cases import Case
from sparring.contracts.rollouts import (
    Ending,
    Rollout,
    RolloutKey,
    Span,
    TokenKind,
    TokenRow,
    clean_text,
)
from sparring.contracts.verdicts import Judgement, cannot_tell, passed

PLAYED = Rollout(RolloutKey(0, 4, "c1", 2), Case("c1", "?", expected="42"), Ending.ANSWERED, "41")


@settings(max_examples=50)
@given(st.text(st.characters()))
def test_clean_text_can_be_written_and_keeps_its_length(text: str) -> None:
    cleaned = clean_text(text)
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    assert len(cleaned) == len(text)
    assert clean_text(cleaned) == cleaned


def test_only_lone_surrogates_are_replaced() -> None:
    assert clean_text("a\ud800b\udfff é \U0001f600") == "a?b? é \U0001f600"


@settings(max_examples=50)
@given(st.lists(st.builds(Span, st.sampled_from(TokenKind), st.integers(0, 5)), max_size=6))
def test_a_mask_has_a_byte_per_token_and_a_one_per_sampled_token(spans: list[Span]) -> None:
    kinds = [span.kind for span in spans for _ in range(span.length)]
    sampled = kinds.count(TokenKind.SAMPLED)
    row = TokenRow("a", array("q", range(len(kinds))), array("d", [0.0] * sampled), tuple(spans))
    assert len(row.mask()) == len(row.ids)
    assert sum(row.mask()) == row.sampled
    assert {kinds[at] for at, byte in enumerate(row.mask()) if byte} <= {TokenKind.SAMPLED}


def test_a_mask_follows_the_order_of_the_spans() -> None:
    spans = (
        Span(TokenKind.PROMPT, 2),
        Span(TokenKind.SAMPLED, 1),
        Span(TokenKind.OBSERVED, 1),
        Span(TokenKind.SAMPLED, 2),
    )
    row = TokenRow("a", array("q", range(6)), array("d", [0.0] * 3), spans)
    assert row.mask() == bytes([0, 0, 1, 0, 1, 1])


def test_a_rollout_is_not_judged_where_the_model_is_not_to_blame() -> None:
    assert {ending for ending in Ending if not ending.is_judged} == {
        Ending.INPUT_GUARDRAIL,
        Ending.ROLLOUT_DEADLINE,
        Ending.INFRASTRUCTURE_ERROR,
        Ending.NO_MODEL_CALL,
    }


def test_a_rollout_is_identified_by_case_step_and_index() -> None:
    assert PLAYED.id == PLAYED.key.id == "c1.4.2"
    assert PLAYED.expected == "42"


def test_rollouts_are_equal_whatever_world_they_were_played_in() -> None:
    assert replace(PLAYED, world=object(), output=object()) == PLAYED
    assert replace(PLAYED, reward=1.0) != PLAYED
    assert "object" not in repr(replace(PLAYED, world=object(), output=object()))


def test_only_the_token_budget_truncates() -> None:
    truncated = [ending for ending in Ending if replace(PLAYED, ending=ending).is_truncated]
    assert truncated == [Ending.TOKEN_BUDGET]


def test_a_rollout_is_unscored_because_of_a_measure_or_else_of_its_ending() -> None:
    ended = replace(PLAYED, ending=Ending.TURN_LIMIT, detail="no answer within 5 turns")
    assert ended.unscored_because == "turn_limit: no answer within 5 turns"
    unknown = Judgement("judge", cannot_tell("no key"), weight=1.0)
    right = Judgement("exact", passed("right"), weight=1.0)
    assert replace(ended, judgements=(right, unknown)).unscored_because == "no key"
