"""A common prefix is found exactly, and shared only where that is worth it and right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.policies.prefixes import (
    WORTH_SHARING,
    common_prefix,
    has_sliding_window,
    sharing_groups,
)

tokens = st.lists(st.integers(0, 2), max_size=30)


@given(tokens, st.lists(tokens.filter(bool), min_size=1, max_size=5))
def test_the_prefix_is_common_and_the_longest_that_leaves_each_a_token(
    shared: list[int], rests: list[list[int]]
) -> None:
    prompts = [[*shared, *rest] for rest in rests]
    length = common_prefix(prompts)
    assert length == 0 or length >= WORTH_SHARING
    assert len({tuple(prompt[:length]) for prompt in prompts}) == 1
    assert all(length < len(prompt) for prompt in prompts)
    if len(shared) >= WORTH_SHARING:
        assert length >= len(shared)
    if length:
        is_at_limit = length + 1 == min(map(len, prompts))
        assert is_at_limit or len({prompt[length] for prompt in prompts}) > 1


def test_a_prefix_that_is_too_short_is_not_shared() -> None:
    prefix = list(range(WORTH_SHARING))
    assert common_prefix([[*prefix, 1], [*prefix, 2]]) == WORTH_SHARING
    assert common_prefix([[*prefix[1:], 1], [*prefix[1:], 2]]) == 0


@pytest.mark.parametrize("count", [1, 3])
def test_equal_prompts_keep_their_last_token_for_themselves(count: int) -> None:
    assert common_prefix([list(range(40))] * count) == 39


@pytest.mark.parametrize(
    ("config", "slides"),
    [
        ({}, False),
        ({"sliding_window": None}, False),
        ({"sliding_window": 4096}, True),
        ({"sliding_window": 4096, "layer_types": ["full_attention"] * 2}, False),
        ({"layer_types": ["full_attention", "sliding_attention"]}, True),
        ({"layer_types": [], "sliding_window": 4096}, True),
    ],
)
def test_the_layers_decide_about_a_window_where_they_are_named(
    config: dict[str, Any], slides: bool
) -> None:
    assert has_sliding_window(SimpleNamespace(**config)) is slides


@given(st.lists(tokens.filter(bool), min_size=1, max_size=12))
def test_every_prompt_is_in_one_group(prompts: list[list[int]]) -> None:
    groups = sharing_groups(prompts)
    assert sorted(place for group in groups for place in group) == list(range(len(prompts)))
    assert all(group == sorted(group) for group in groups)


def test_prompts_of_several_agents_are_grouped_by_agent() -> None:
    price, stock = [1, *range(10, 60)], [1, *range(70, 150)]
    prompts = [[*(price, stock)[n % 2], 200 + n, 5] for n in range(8)]
    assert sharing_groups(prompts) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_prompts_that_have_little_in_common_stay_together() -> None:
    assert sharing_groups([[n, *range(50)] for n in range(8)]) == [list(range(8))]
    assert sharing_groups([[1, 2, 3]]) == [[0]]
    assert sharing_groups([[1, 2, 3], [4, 5, 6]]) == [[0, 1]]
