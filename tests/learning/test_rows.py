from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest

from sparring.contracts.errors import Untrainable
from sparring.contracts.rollouts import (
    Ending,
    ResultBody,
    Rollout,
    Span,
    TokenKind,
    TokenRow,
    ToolCall,
)
from sparring.learning.rows import LearningRollout, LearningRow, RowRules, learning_rollout
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


def learned(each: Rollout, **rules: Any) -> LearningRollout:
    return learning_rollout(each, RowRules(9, 10, **{"masks_truncated": True, **rules}))


def only_row(each: Rollout) -> LearningRow:
    (row,) = learned(each).rows
    return row


def test_only_sampled_tokens_are_learned_from():
    row = only_row(made())
    assert row.prompt.tolist() == [1, 2]
    assert row.completion.tolist() == [3, 4, 5, 6, 7]
    assert list(row.mask) == [1, 1, 0, 0, 1]
    assert row.logprobs.tolist() == [-0.5, -0.25, 0.0, 0.0, -1.0]
    assert learned(made()).reward == 1.0


def test_an_unscored_rollout_keeps_its_tokens_and_teaches_nothing():
    row = only_row(made(reward=None))
    assert learned(made(reward=None)).reward is None
    assert not any(row.mask)
    assert len(row.completion) == 5


def test_tool_results_are_learned_from_unless_nothing_could_score_the_rollout():
    with_result = replace(ROW, bodies=(ResultBody("find", 4, 6),))
    call = ToolCall("1", "find", "{}")
    for changed, bodies in (
        ({}, (ResultBody("find", 2, 4),)),
        ({"ending": Ending.TOKEN_BUDGET}, (ResultBody("find", 2, 4),)),
        ({"reward": None, "ending": Ending.INFRASTRUCTURE_ERROR}, ()),
    ):
        assert only_row(made(with_result, tools=[call], **changed)).bodies == bodies


def test_a_truncated_rollout_is_masked_unless_masking_is_off():
    cut = made(ending=Ending.TOKEN_BUDGET)
    assert learned(cut).reward is None
    assert not any(only_row(cut).mask)
    assert learned(cut, masks_truncated=False).reward == 1.0


def test_a_rollout_without_tokens_becomes_one_masked_end_token():
    broken = rollout("", ending=Ending.INFRASTRUCTURE_ERROR)
    row = only_row(broken)
    assert (row.prompt.tolist(), row.completion.tolist(), list(row.mask)) == ([9], [9], [0])
    assert learned(broken).reward is None


def test_every_row_of_a_rollout_is_learned_from_with_its_reward():
    both = learned(rollout("x", rows=(ROW, replace(ROW, agent="b")), reward=0.5))
    assert [list(row.mask) for row in both.rows] == [[1, 1, 0, 0, 1]] * 2
    assert both.reward == 0.5


def test_only_the_rows_of_the_agents_to_train_are_learned_from():
    both = rollout("x", rows=(ROW, replace(ROW, agent="b", ids=array("i", [8] * 7))), reward=1.0)
    (row,) = learned(both, agents=("b",)).rows
    assert row.prompt.tolist() == [8, 8]
    nobody = learned(both, agents=("c",))
    assert [list(row.mask) for row in nobody.rows] == [[0]]
    assert nobody.reward == 1.0, "it still belongs to the statistics of its group"


def test_several_rows_are_refused_where_only_one_can_be_learned():
    two = rollout("x", rows=(ROW, replace(ROW, agent="b")), reward=1.0)
    with pytest.raises(Untrainable, match=r"2 rows \(agents: a, b\): use 'dapo'"):
        learned(two, one_row_reason="use 'dapo'")
    assert len(learned(two, one_row_reason="use 'dapo'", agents=("b",)).rows) == 1


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
