"""Streams as tensors, and the weights that correct for a sampler which differs from the trainer."""

from __future__ import annotations

from array import array

import pytest
import torch

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
