from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest

from sparring.contracts.errors import Untrainable
from sparring.contracts.rollouts import Ending, Rollout, Span, TokenKind, TokenRow
from sparring.learning.rows import learning_row
from tests.rollouts import rollout

ROW = TokenRow(
    agent="a",
    ids=array("i", [1, 2, 3, 4, 5, 6, 7]),
    logprobs=array("f", [-0.5, -0.25, -1.0]),
    spans=(
        Span(TokenKind.PROMPT, 2),
        Span(TokenKind.SAMPLED, 2),
        Span(TokenKind.OBSERVED, 2),
        Span(TokenKind.SAMPLED, 1),
    ),
)


def made(row: TokenRow = ROW, **fields: Any) -> Rollout:
    return rollout("x", rows=(row,), **{"reward": 1.0, **fields})


def learned(each: Rollout, masks_truncated: bool = True) -> Any:
    return learning_row(each, end_of_turn=9, vocabulary=10, masks_truncated=masks_truncated)


def test_only_sampled_tokens_are_learned_from():
    row = learned(made())
    assert row.prompt.tolist() == [1, 2]
    assert row.completion.tolist() == [3, 4, 5, 6, 7]
    assert list(row.mask) == [1, 1, 0, 0, 1]
    assert row.logprobs.tolist() == [-0.5, -0.25, 0.0, 0.0, -1.0]
    assert row.reward == 1.0


def test_an_unscored_rollout_keeps_its_tokens_and_teaches_nothing():
    row = learned(made(reward=None))
    assert row.reward is None
    assert not any(row.mask)
    assert len(row.completion) == 5


def test_a_truncated_rollout_teaches_nothing_unless_told_to():
    cut = made(ending=Ending.TOKEN_BUDGET)
    assert learned(cut).reward is None
    assert not any(learned(cut).mask)
    assert learned(cut, masks_truncated=False).reward == 1.0


def test_a_rollout_without_tokens_becomes_one_masked_end_token():
    row = learned(rollout("", ending=Ending.MACHINERY))
    assert (row.prompt.tolist(), row.completion.tolist(), list(row.mask)) == ([9], [9], [0])
    assert row.reward is None


def test_a_rollout_of_several_rows_is_refused_with_the_way_out():
    with pytest.raises(Untrainable, match="without handoffs"):
        learned(rollout("x", rows=(ROW, ROW), reward=1.0))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"spans": ROW.spans[1:]}, "begin with a prompt"),
        ({"spans": ROW.spans[:-1]}, "do not add up"),
        ({"logprobs": array("f", [-0.5])}, "3 sampled tokens and 1 log-prob"),
        ({"logprobs": array("f", [-0.5, 0.25, -1.0])}, "above zero"),
        ({"logprobs": array("f", [-0.5, float("nan"), -1.0])}, "not finite"),
        ({"ids": array("i", [1, 2, 3, 4, 5, 6, 10])}, "outside of the vocabulary"),
        ({"ids": array("i", [-1, 2, 3, 4, 5, 6, 7])}, "outside of the vocabulary"),
        (
            {"spans": (Span(TokenKind.PROMPT, 7),), "logprobs": array("f")},
            "none of its tokens was sampled",
        ),
    ],
)
def test_a_row_that_no_model_can_have_sampled_is_refused(change, problem):
    with pytest.raises(Untrainable, match=problem):
        learned(made(replace(ROW, **change)))
