"""ECHO on hand-made tensors: what each normalisation divides by, and its gradient."""

from __future__ import annotations

from array import array

import pytest
import torch

from sparring.contracts.rollouts import ResultBody
from sparring.engine.echo import TOOLS, WEIGHTS, Echo
from sparring.engine.passes import passes_of
from sparring.learning.rows import LearningRow
from sparring.learning.world_model import Totals

LENGTH, LONGEST = 6, 10
# Observed tokens of eight rows: none, one result, two results of different tools.
BODIES = [
    (),
    (ResultBody("add", 1, 3),),
    (ResultBody("add", 1, 2), ResultBody("find", 3, 6)),
    (),
    (ResultBody("find", 0, 1),),
    (),
    (ResultBody("add", 2, 6),),
    (ResultBody("find", 4, 5),),
]
NORMALIZATIONS = ("selected_tokens", "sequence_mean", "seq_mean_token_sum_norm")


def rows():
    ids = array("i", range(LENGTH))
    nothing = array("f", [0.0] * LENGTH)
    return [LearningRow(ids, ids, b"\x01" * LENGTH, nothing, 1.0, each) for each in BODIES]


def batch(size=8):
    ones = torch.ones(size, LENGTH, dtype=torch.long)
    return {
        "prompt_ids": ones, "prompt_mask": ones, "completion_ids": ones, "completion_mask": ones,
    }  # fmt: skip


def logps():
    torch.manual_seed(0)
    return -torch.rand(8, LENGTH)


def by_hand(values, normalization):
    """The loss as one would write it down, row by row."""
    per_row = [
        [-values[number, place] for body in bodies for place in range(body.start, body.stop)]
        for number, bodies in enumerate(BODIES)
    ]
    told = [losses for losses in per_row if losses]
    if normalization == "selected_tokens":
        return sum(sum(losses) for losses in told) / sum(map(len, told))
    if normalization == "sequence_mean":
        return sum(sum(losses) / len(losses) for losses in told) / len(told)
    return sum(sum(losses) / LONGEST for losses in told) / len(told)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_loss_and_gradient_are_those_of_the_formula(normalization):
    echo = Echo(0.05, normalization, LONGEST)
    given = batch()
    echo.carry(given, rows(), Totals.of(rows()))
    ours, wanted = logps().requires_grad_(), logps().requires_grad_()
    echo.loss(ours, given, scale=1).backward()
    (0.05 * by_hand(wanted, normalization)).backward()
    assert torch.allclose(ours.grad, wanted.grad, atol=1e-8)
    assert echo.loss(logps(), given, 1) == pytest.approx(0.05 * by_hand(logps(), normalization))


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize(("ranks", "passes"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_the_gradient_does_not_depend_on_how_rows_are_laid_out(normalization, ranks, passes):
    """Ranks average their gradients, and the passes of a rank add theirs up."""
    whole = Echo(0.05, normalization, LONGEST)
    given = batch()
    whole.carry(given, rows(), Totals.of(rows()))
    wanted = logps().requires_grad_()
    whole.loss(wanted, given, 1).backward()

    ours = logps().requires_grad_()
    share = 8 // ranks
    parts = [rows()[rank * share : (rank + 1) * share] for rank in range(ranks)]
    totals = Totals.merged(Totals.of(part) for part in parts)
    assert totals == Totals.of(rows())
    for rank, part in enumerate(parts):
        echo = Echo(0.05, normalization, LONGEST)
        own = batch(share) | {"numbers": torch.arange(rank * share, (rank + 1) * share)}
        echo.carry(own, part, totals)
        for some in passes_of(own, passes, share // 2):
            (echo.loss(ours[some["numbers"]], some, scale=ranks) / ranks).backward()
    assert torch.allclose(ours.grad, wanted.grad, atol=1e-8)


def test_coefficient_zero_adds_nothing_and_measures_all_the_same():
    echo = Echo(0.0, "selected_tokens", LONGEST)
    given = batch()
    echo.carry(given, rows(), Totals.of(rows()))
    assert echo.loss(logps(), given, 1) is None
    assert echo.take_sums()["env_tokens/add"] == 7


def test_the_loss_of_each_tool_is_told_apart():
    echo = Echo(0.05, "selected_tokens", LONGEST)
    given = batch()
    echo.carry(given, rows(), Totals.of(rows()))
    echo.loss(logps(), given, 1)
    sums = echo.take_sums()
    picked = torch.cat([logps()[2, 3:6], logps()[4, 0:1], logps()[7, 4:5]])
    assert sums["env_tokens/find"] == 5
    assert sums["env_loss/find"] == pytest.approx(-float(picked.sum()))
    assert echo.take_sums() == {}


def test_scaffolding_and_sampled_tokens_have_no_weight():
    echo = Echo(0.05, "selected_tokens", LONGEST)
    given = batch()
    echo.carry(given, rows(), Totals.of(rows()))
    observed = torch.zeros(8, LENGTH, dtype=torch.bool)
    for number, bodies in enumerate(BODIES):
        for body in bodies:
            observed[number, body.start : body.stop] = True
    assert ((given[WEIGHTS] > 0) == observed).all()
    assert ((given[TOOLS] > 0) == observed).all()


def test_rows_without_tool_results_add_nothing():
    echo = Echo(0.05, "sequence_mean", LONGEST)
    plain = [row for row, bodies in zip(rows(), BODIES, strict=True) if not bodies]
    given = batch(len(plain))
    echo.carry(given, plain, Totals.of(rows()))  # those of another rank have some
    assert echo.loss(logps()[: len(plain)], given, 1) == 0


def test_without_any_tool_result_nothing_is_carried():
    echo = Echo(0.05, "sequence_mean", LONGEST)
    given = batch()
    echo.carry(given, [], Totals())
    assert given.keys() == batch().keys()
    assert echo.loss(logps(), given, 1) is None
