"""Streams as tensors, the passes that they run in, and the weights that correct for the sampler."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.engine import tensors
from sparring.engine.tensors import attended, corrections, padded, sampled
from sparring.learning.engine import Stream
from sparring.learning.rows import LearningRow

CPU = torch.device("cpu")


def stream(prompt: int, completion: int) -> Stream:
    row = LearningRow(
        array("i", [7] * prompt), array("i", [8] * completion),
        b"\x01" * (completion - 1) + b"\x00", array("f", [-0.5] * completion),
    )  # fmt: skip
    return Stream(row, 0, array("f", [2.0] * completion))


def test_prompts_are_padded_left_and_completions_right() -> None:
    tensors = padded([stream(1, 3), stream(2, 2)], 0, CPU)
    assert tensors["prompt_ids"].tolist() == [[0, 7], [7, 7]]
    assert tensors["completion_ids"].tolist() == [[8, 8, 8], [8, 8, 0]]
    assert tensors["advantages"].tolist() == [[2.0, 2.0, 2.0], [2.0, 2.0, 0.0]]
    assert tensors["sampling_per_token_logps"].tolist() == [[-0.5] * 3, [-0.5, -0.5, 0.0]]


def test_only_sampled_tokens_are_learned_from() -> None:
    assert sampled(padded([stream(1, 3), stream(2, 2)], 0, CPU)).tolist() == [[1, 1, 0], [1, 0, 0]]


def test_prompt_and_completion_are_attended_to_as_one_sequence() -> None:
    ids, mask, keep = attended(padded([stream(1, 3), stream(2, 2)], 0, CPU))
    assert ids.tolist() == [[0, 7, 8, 8, 8], [7, 7, 8, 8, 0]]
    assert mask.tolist() == [[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert keep == 3


GAPS = torch.tensor([[0.0, 1.0, -1.0], [0.5, 0.5, 0.5]])


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("token_truncate", GAPS.exp().clamp(0.5, 2.0)),
        ("token_mask", torch.tensor([[1.0, 0.0, 0.0], [1.6487, 1.6487, 1.6487]])),
        ("sequence_truncate", torch.tensor([[1.0], [2.0]])),
        ("sequence_mask", torch.tensor([[1.0], [0.0]])),
    ],
)
def test_a_ratio_past_a_limit_is_cut_off_or_left_out(mode: str, wanted: torch.Tensor) -> None:
    assert torch.allclose(corrections(GAPS, mode, 0.5, 2.0), wanted, atol=1e-4)


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask"])
def test_without_limits_a_ratio_is_that_of_the_probabilities(mode: str) -> None:
    upper = 100.0 if mode == "token_truncate" else None
    assert torch.allclose(corrections(GAPS, mode, None, upper), GAPS.exp())


GROUP = 2


def passes_of(batch: dict[str, Any], count: int, group: int) -> list[dict[str, Any]]:
    """Passes of rollouts that have one row each."""
    made = tensors.passes_of(batch, range(len(batch["prompt_ids"])), count, group)
    assert [len(parts) for parts in made] == [1] * count
    return [parts[0] for parts in made]


def batch(prompts: list[int], completions: list[int]) -> dict[str, Any]:
    """Rows with prompts (padded left) and completions (padded right) of these lengths."""
    rows = len(prompts)
    numbers = torch.arange(rows)
    width, length = max(prompts) + 1, max(completions) + 1
    return {
        "prompt_ids": numbers[:, None].expand(rows, width) + 100,
        "prompt_mask": (torch.arange(width) >= width - torch.tensor(prompts)[:, None]).long(),
        "completion_ids": numbers[:, None].expand(rows, length) + 200,
        "completion_mask": (torch.arange(length) < torch.tensor(completions)[:, None]).long(),
        "advantages": numbers.float(),
        "num_items_in_batch": torch.tensor(24.0),
        "old_per_token_logps": None,
    }


def test_groups_stay_together_and_passes_are_as_wide_as_they_need() -> None:
    rows = torch.arange(8)
    given_batch = {
        "prompt_ids": rows.repeat_interleave(6).view(8, 6),
        "prompt_mask": torch.tensor([[0, 0, 1, 1, 1, 1]] * 4 + [[0, 1, 1, 1, 1, 1]] * 4),
        "completion_ids": rows.repeat_interleave(5).view(8, 5),
        "completion_mask": torch.tensor([[1, 1, 0, 0, 0]] * 4 + [[1, 1, 1, 1, 0]] * 4),
        "advantages": rows.float(),
        "num_items_in_batch": torch.tensor(24.0),
    }
    first, second = passes_of(given_batch, 2, 4)
    seen = sorted([first["advantages"].tolist(), second["advantages"].tolist()])
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for each in (first, second):
        is_short = each["advantages"][0] == 0
        assert each["completion_ids"].shape == (4, 2 if is_short else 4)
        assert each["prompt_ids"].shape == (4, 4 if is_short else 5)
        assert each["num_items_in_batch"] == 24
        assert (each["prompt_ids"][:, 0] == each["advantages"]).all()


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=4, max_size=4))
def test_every_row_is_learned_from_once_with_all_of_its_tokens(
    lengths: list[tuple[int, int]],
) -> None:
    prompts = [prompt for prompt, _ in lengths for _ in range(GROUP)]
    completions = [completion for _, completion in lengths for _ in range(GROUP)]
    seen = []
    for each in passes_of(batch(prompts, completions), 2, GROUP):
        for row, advantage in enumerate(each["advantages"].long().tolist()):
            seen.append(advantage)
            assert each["prompt_mask"][row].sum() == prompts[advantage]
            assert each["completion_mask"][row].sum() == completions[advantage]
            assert set(each["prompt_ids"][row].tolist()) == {100 + advantage}
            assert set(each["completion_ids"][row].tolist()) == {200 + advantage}
        assert each["prompt_mask"].any(dim=0).all(), "no column is padding in all rows"
        assert each["completion_ids"].shape[1] == max(1, int(each["completion_mask"].sum(1).max()))
    assert sorted(seen) == list(range(len(prompts)))


def test_rows_of_a_group_stay_next_to_each_other_while_groups_are_shuffled() -> None:
    torch.manual_seed(0)
    orders = set()
    for _ in range(20):
        (whole,) = passes_of(batch([3] * 8, [3] * 8), 1, GROUP)
        order = whole["advantages"].long().view(-1, GROUP).tolist()
        assert sorted(order) == [[0, 1], [2, 3], [4, 5], [6, 7]]
        orders.add(str(order))
    assert len(orders) > 1


@pytest.mark.parametrize("count", [1, 2, 4])
def test_every_pass_has_the_values_of_its_whole_generation(count: int) -> None:
    made = passes_of(batch([3] * 8, [3] * 8), count, GROUP)
    assert [len(each["advantages"]) for each in made] == [8 // count] * count
    assert all(each["num_items_in_batch"] == 24 for each in made)
    assert all(each["old_per_token_logps"] is None for each in made)


def test_a_pass_without_any_token_to_learn_keeps_one_column() -> None:
    (only,) = passes_of(batch([2] * 4, [0] * 4), 1, GROUP)
    assert only["completion_ids"].shape == (4, 1)


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=4, max_size=4),
    st.sampled_from([1, 2]),
)
def test_every_row_of_every_rollout_is_in_one_part_and_no_part_is_larger_than_a_pass(
    rows_of_rollouts: list[list[int]], count: int
) -> None:
    rollout_of_row = [number for number, rows in enumerate(rows_of_rollouts) for _ in rows]
    lengths = [length for rows in rows_of_rollouts for length in rows]
    given_batch = {**batch(lengths, lengths), "tool_mask": torch.ones(len(lengths), 1)}
    made = tensors.passes_of(given_batch, rollout_of_row, count, GROUP)
    seen = [row for parts in made for part in parts for row in part["advantages"].tolist()]
    assert sorted(seen) == list(range(len(lengths)))
    budget = len(rows_of_rollouts) // count * 2 * max(lengths)
    for parts in made:
        assert len(
            {rollout_of_row[int(row)] // GROUP for p in parts for row in p["advantages"]}
        ) == (2 // count), "a pass has whole groups"
        for part in parts:
            width = part["prompt_ids"].shape[1] + part["completion_ids"].shape[1]
            assert len(part["prompt_ids"]) * width <= budget


def test_a_rank_with_fewer_parts_runs_as_many_that_teach_nothing() -> None:
    given_batch = {
        **batch([3] * 4, [5] * 4),
        "tool_mask": torch.ones(4, 6),
        "echo_weights": torch.ones(4, 6),
    }

    def most(own: list[int]) -> list[int]:
        return [own[0] + 2] if len(own) == 1 else own

    (parts,) = tensors.passes_of(given_batch, [0, 0, 1, 1], 1, GROUP, most)
    *real, first, second = parts
    assert sum(len(part["advantages"]) for part in real) == 4
    for part in (first, second):
        assert part["completion_ids"].shape == (1, 1)
        assert part["prompt_ids"].shape == (1, 3)
        assert not part["tool_mask"].any()
        assert not part["echo_weights"].any()
        assert not part["advantages"].any()


def test_a_part_with_fewer_rows_than_that_of_another_rank_gets_rows_that_teach_nothing() -> None:
    """TRL gathers a figure per row from all ranks, which needs as many rows on each."""
    given_batch = {**batch([3] * 4, [5] * 4), "tool_mask": torch.ones(4, 6)}
    counted: list[list[int]] = []

    def most(own: list[int]) -> list[int]:
        counted.append(own)
        return own if len(counted) == 1 else [7] * len(own)

    (parts,) = tensors.passes_of(given_batch, [0, 1, 2, 3], 1, GROUP, most)
    (part,) = parts
    assert counted == [[1], [4]]
    assert len(part["tool_mask"]) == 7
    assert part["tool_mask"][:4].all()
    assert not part["tool_mask"][4:].any()
    assert not part["advantages"][4:].any()


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 4), min_size=4, max_size=4).filter(lambda rows: max(rows) > 1),
    st.integers(0, 3),
)
def test_a_part_has_no_more_tokens_than_a_pass_of_rollouts_with_one_row(
    rows_of_rollouts: list[int], common: int
) -> None:
    """Each row has a prompt of its own, of five tokens, and a completion of three."""
    rollout_of_row = [number for number, rows in enumerate(rows_of_rollouts) for _ in range(rows)]
    count = len(rollout_of_row)
    given_batch = {**batch([5] * count, [3] * count), "tool_mask": torch.ones(count, 1)}
    (parts,) = tensors.passes_of(given_batch, rollout_of_row, 1, GROUP, common=common)
    for part in parts:
        rows = len(part["advantages"])
        assert rows == 1 or rows * (5 - common) + rows * 3 <= 2 * (5 - common) + 4 * 3
