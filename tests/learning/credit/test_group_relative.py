"""Advantages beside TRL's own arithmetic, and what each scale divides by."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trl.trainer.utils import nanstd

from sparring.contracts.errors import SettingError
from sparring.learning.credit.group_relative import advantages, scale_of

REWARDS = st.one_of(st.none(), st.floats(0, 1, width=32))


def by_trl(rewards: list[float | None], group: int) -> list[float]:
    """What TRL's trainer computes from a column of rewards, scaled by the group."""
    column = torch.tensor([float("nan") if each is None else each for each in rewards])
    groups = column.view(-1, group)
    centred = groups - torch.nanmean(groups, dim=1, keepdim=True)
    found = centred / (nanstd(groups, dim=1, keepdim=True) + 1e-4)
    values: list[float] = torch.nan_to_num(found, nan=0.0).flatten().tolist()
    return values


@pytest.mark.parametrize("group", [2, 3, 4, 8])
def test_pass_or_fail_gives_the_numbers_of_trl_to_the_last_bit(group: int) -> None:
    for rewards in product([0.0, 1.0], repeat=group):
        if len(set(rewards)) > 1:  # equal rewards teach nothing, whatever their advantage is
            assert advantages(list(rewards), group) == by_trl(list(rewards), group)


@given(st.lists(REWARDS, min_size=2, max_size=9))
def test_any_rewards_give_the_numbers_of_trl_up_to_rounding(rewards: list[float | None]) -> None:
    group = len(rewards)
    assert advantages(rewards, group) == pytest.approx(by_trl(rewards, group), rel=1e-3, abs=1e-3)


def test_a_rollout_without_a_reward_is_left_out_of_its_group() -> None:
    assert advantages([1.0, None, 0.0, None], 4)[1::2] == [0.0, 0.0]
    assert advantages([1.0, None, 0.0, None], 4)[::2] == advantages([1.0, 0.0], 2)


def test_a_single_reward_has_nothing_beside_it() -> None:
    assert advantages([None, 1.0], 2) == [0.0, 0.0]


def test_without_a_scale_advantages_are_distances_from_the_mean_of_the_group() -> None:
    assert advantages([1.0, 0.0, 0.5, 0.5], 2, "none") == [0.5, -0.5, 0.0, 0.0]


def test_the_scale_of_the_batch_is_shared_by_its_groups() -> None:
    wide, narrow = advantages([1.0, 0.0, 0.6, 0.4], 2, "batch")[::2]
    assert wide == pytest.approx(5 * narrow)


@pytest.mark.parametrize(
    ("wanted", "scale"), [(True, "group"), (False, "none"), ("batch", "batch"), ("none", "none")]
)
def test_scales_are_named_as_trl_names_them(wanted: object, scale: str) -> None:
    assert scale_of({"scale_rewards": wanted}) == scale
    assert scale_of({}) == "group"


def test_an_unknown_scale_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingError, match="is 'row'; choose from group, batch, none"):
        scale_of({"scale_rewards": "row"})
