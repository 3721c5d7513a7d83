"""Gaps between models: zero for equal ones, bounded per format, warned about when they cost."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.errors import FaultyArtefact
from sparring.contracts.rollouts import Span, TokenKind, TokenRow
from sparring.contracts.summaries import Gap
from sparring.shipping.distribution import (
    BOUNDS,
    INFORMATION,
    Position,
    _bucketed,
    check_gap,
    gap_between,
    gap_to_server,
    log_probabilities,
    positions_of,
)
from sparring.shipping.source import Source, load_base, load_trained
from tests.proofs.made import answered
from tests.shipping.made import positions_for


def distributions(count: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.log_softmax(torch.randn(count, 30, generator=draw), -1)


POSITIONS = [Position([1], number) for number in range(8)]


def test_equal_models_have_no_gap_and_different_ones_have_one() -> None:
    ours, theirs = distributions(8, 0), distributions(8, 1)
    same, other = gap_between(ours, ours, POSITIONS), gap_between(ours, theirs, POSITIONS)
    assert (same.mean, same.largest, same.kl, same.same_best) == (0, 0, 0, 8)
    assert other.kl > 0.1
    assert other.largest >= other.mean > 0.1


@given(st.integers(0, 1000), st.integers(1, 30))
def test_the_divergence_over_the_most_probable_tokens_is_a_lower_bound(
    seed: int, count: int
) -> None:
    ours, theirs = distributions(1, seed)[0], distributions(1, seed + 1)[0]
    whole = float((ours.exp() * (ours - theirs)).sum())
    best = theirs.topk(count)
    found = dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    part = _bucketed(ours, found)
    assert part <= whole + 1e-5
    if count == 30:
        assert math.isclose(part, whole, abs_tol=1e-4)


def sampled_row(*ids: int) -> TokenRow:
    """A prompt of two tokens, then two sampled, one that a tool wrote, and one sampled."""
    kinds = (TokenKind.PROMPT, TokenKind.SAMPLED, TokenKind.OBSERVED, TokenKind.SAMPLED)
    spans = tuple(Span(kind, count) for kind, count in zip(kinds, (2, 2, 1, 1), strict=True))
    return TokenRow("main", array("i", ids), array("f", [-1.0] * 3), spans)


def test_positions_are_where_the_model_sampled() -> None:
    assert positions_of([answered("c1", 1.0)]) == []
    rollout = replace(answered("c1", 1.0), rows=(sampled_row(1, 2, 3, 4, 5, 6),))
    assert positions_of([rollout]) == [
        Position([1, 2], 3), Position([1, 2, 3], 4), Position([1, 2, 3, 4, 5], 6),
    ]  # fmt: skip


def test_each_row_has_an_equal_share_of_the_positions() -> None:
    rows = (sampled_row(1, 2, 3, 4, 5, 6), sampled_row(7, 8, 9, 10, 11, 12))
    found = positions_of([replace(answered("c1", 1.0), rows=rows)], limit=3)
    assert [place.sampled for place in found] == [3, 9]


class FixedServer:
    """A server that returns the most probable tokens of given distributions."""

    def __init__(self, rows: torch.Tensor, tokens: int) -> None:
        self._answers = iter(rows)
        self._tokens = tokens

    def next_logprobs(self, before: list[int], sampled: int, count: int) -> dict[int, float]:
        row = next(self._answers)
        best = row.topk(self._tokens)
        return dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def test_a_server_with_the_same_weights_has_no_gap() -> None:
    ours = distributions(8, 0)
    server: Any = FixedServer(ours, tokens=30)
    gap = gap_to_server(ours, server, POSITIONS)
    assert gap.largest == pytest.approx(0, abs=1e-6)
    assert (gap.same_best, gap.unseen) == (8, 0)


def test_a_sampled_token_without_a_probability_is_counted_and_left_out_of_the_mean() -> None:
    ours = distributions(8, 0)
    seen = [number for number in range(8) if int(ours[number].argmax()) == number]
    server: Any = FixedServer(ours, tokens=1)
    gap = gap_to_server(ours, server, POSITIONS)
    assert gap.unseen == 8 - len(seen) > 0
    assert gap.same_best == 8


def test_a_server_that_returns_no_probabilities_is_refused() -> None:
    server: Any = FixedServer(distributions(8, 0), tokens=0)
    with pytest.raises(FaultyArtefact, match="use a newer version"):
        gap_to_server(distributions(8, 0), server, POSITIONS)


def test_one_pass_over_a_row_gives_what_separate_passes_give(source: Source) -> None:
    model = load_trained(source)
    positions = positions_for(source, 5)
    together = log_probabilities(model, positions)
    apart = torch.cat([log_probabilities(model, [each]) for each in positions])
    assert torch.allclose(together, apart, atol=1e-4)
    assert gap_between(together, log_probabilities(load_base(source), positions), positions).kl > 0


def test_a_gap_beyond_the_bound_of_its_format_is_refused() -> None:
    gap = Gap(10, mean=2e-3, largest=5e-2, kl=1e-5, same_best=10)
    assert check_gap(gap, BOUNDS["f16"], trained_from_base=0.1) == ""
    with pytest.raises(FaultyArtefact, match=r"the bound on the mean is 0\.0001"):
        check_gap(gap, BOUNDS["float32"], trained_from_base=0.1)
    with pytest.raises(FaultyArtefact, match="the bound on the largest"):
        check_gap(Gap(10, 1e-4, 0.5, 0, 10), BOUNDS["f16"], trained_from_base=0.1)


def test_what_costs_a_third_of_the_training_is_warned_about() -> None:
    gap = Gap(10, mean=0.1, largest=0.5, kl=0.02, same_best=8)
    assert "may have undone part of the training" in check_gap(
        gap, INFORMATION, trained_from_base=0.04
    )
    assert check_gap(gap, INFORMATION, trained_from_base=0.1) == ""
    assert check_gap(gap, INFORMATION, trained_from_base=0.0) == ""
