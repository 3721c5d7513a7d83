"""ECHO on hand-made tensors: what each normalisation divides by, and its gradient."""

from __future__ import annotations

from array import array

import pytest
import torch

from sparring.contracts.rollouts import (
    Ending,
    ResultBody,
    Rollout,
    Span,
    TokenKind,
    TokenRow,
    TokenUse,
    ToolCall,
)
from sparring.contracts.training import TrainSettings
from sparring.engine.tensors import TOOLS, WEIGHTS, Echo, passes_of
from sparring.learning.credit import streams_of
from sparring.learning.credit.tool_results import ToolResults
from sparring.learning.groups import Group
from sparring.learning.rows import LearningRollout, LearningRow
from sparring.player import Played
from tests.learning.notebook_engine import NotebookEngine
from tests.rollouts import rollout
from tests.training import trainer, weights_digest

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


def learned():
    ids = array("i", range(LENGTH))
    nothing = array("f", [0.0] * LENGTH)
    rows = [LearningRow(ids, ids, b"\x01" * LENGTH, nothing, each) for each in BODIES]
    return [LearningRollout((row,), 1.0) for row in rows]


def streams(normalization):
    """The rows with their weights, as the credit rules give them."""
    settings = TrainSettings(echo_normalization=normalization, max_completion_length=LONGEST)
    played = Played(rollout(""), 0.0)
    groups = [Group((played,) * len(learned()), tuple(learned()))]
    return streams_of([ToolResults(settings)], groups, NotebookEngine())


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
    filled = [losses for losses in per_row if losses]
    if normalization == "selected_tokens":
        return sum(sum(losses) for losses in filled) / sum(map(len, filled))
    if normalization == "sequence_mean":
        return sum(sum(losses) / len(losses) for losses in filled) / len(filled)
    return sum(sum(losses) / LONGEST for losses in filled) / len(filled)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_loss_and_gradient_are_those_of_the_formula(normalization):
    echo = Echo(0.05)
    given = batch()
    echo.carry(given, streams(normalization))
    ours, wanted = logps().requires_grad_(), logps().requires_grad_()
    echo.loss(ours, given, scale=1).backward()
    (0.05 * by_hand(wanted, normalization)).backward()
    assert torch.allclose(ours.grad, wanted.grad, atol=1e-8)
    assert echo.loss(logps(), given, 1) == pytest.approx(0.05 * by_hand(logps(), normalization))


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize(("ranks", "passes"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_the_gradient_does_not_depend_on_how_rows_are_laid_out(normalization, ranks, passes):
    """Ranks average their gradients, and the passes of a rank add theirs up."""
    whole = Echo(0.05)
    given = batch()
    whole.carry(given, streams(normalization))
    wanted = logps().requires_grad_()
    whole.loss(wanted, given, 1).backward()

    ours = logps().requires_grad_()
    share = 8 // ranks
    everything = streams(normalization)
    for rank in range(ranks):
        part = everything[rank * share : (rank + 1) * share]
        echo = Echo(0.05)
        own = batch(share) | {"numbers": torch.arange(rank * share, (rank + 1) * share)}
        echo.carry(own, part)
        for (some,) in passes_of(own, range(share), passes, share // 2):
            (echo.loss(ours[some["numbers"]], some, scale=ranks) / ranks).backward()
    assert torch.allclose(ours.grad, wanted.grad, atol=1e-8)


def test_coefficient_zero_adds_nothing_and_measures_all_the_same():
    echo = Echo(0.0)
    given = batch()
    echo.carry(given, streams("selected_tokens"))
    assert echo.loss(logps(), given, 1) is None
    assert echo.take_sums()["env_tokens/add"] == 7


def test_the_loss_is_reported_for_each_tool():
    echo = Echo(0.05)
    given = batch()
    echo.carry(given, streams("selected_tokens"))
    echo.loss(logps(), given, 1)
    sums = echo.take_sums()
    picked = torch.cat([logps()[2, 3:6], logps()[4, 0:1], logps()[7, 4:5]])
    assert sums["env_tokens/find"] == 5
    assert sums["env_loss/find"] == pytest.approx(-float(picked.sum()))
    assert echo.take_sums() == {}


def test_scaffolding_and_sampled_tokens_have_no_weight():
    echo = Echo(0.05)
    given = batch()
    echo.carry(given, streams("selected_tokens"))
    observed = torch.zeros(8, LENGTH, dtype=torch.bool)
    for number, bodies in enumerate(BODIES):
        for body in bodies:
            observed[number, body.start : body.stop] = True
    assert ((given[WEIGHTS] > 0) == observed).all()
    assert ((given[TOOLS] > 0) == observed).all()


def test_rows_without_tool_results_add_nothing():
    echo = Echo(0.05)
    everything = streams("selected_tokens")  # those of another rank have some
    plain = [each for each, bodies in zip(everything, BODIES, strict=True) if not bodies]
    given = batch(len(plain))
    echo.carry(given, plain)
    assert echo.loss(logps()[: len(plain)], given, 1) == 0


def test_without_any_tool_result_nothing_is_carried():
    echo = Echo(0.05)
    given = batch()
    echo.carry(given, [])
    assert given.keys() == batch().keys()
    assert echo.loss(logps(), given, 1) is None


# ------------------------------------------------------------------ in a training run


def with_results(play, policy):
    """Two turns with a tool result between them, all tokens given, log-probabilities true."""
    drawn = torch.Generator().manual_seed(hash_of(play.key))
    ids = torch.randint(20, 400, (1, 40), generator=drawn)
    ids[0, :20] = torch.arange(30, 50)
    with torch.no_grad():
        logits = policy.model(input_ids=ids).logits[0, :-1] / 0.8
    chosen = torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None]).squeeze(1).tolist()
    kinds = (TokenKind.PROMPT, TokenKind.SAMPLED, TokenKind.OBSERVED, TokenKind.SAMPLED)
    spans = tuple(Span(kind, length) for kind, length in zip(kinds, (20, 6, 8, 6), strict=True))
    row = TokenRow(
        "", array("i", ids[0].tolist()), array("f", chosen[19:25] + chosen[33:39]), spans,
        (ResultBody("find", 28, 33),),
    )  # fmt: skip
    call = ToolCall("1", "find", "{}", "found")
    return Rollout(
        play.key, play.case, Ending.ANSWERED, "x" * int(ids.sum() % 7), tool_calls=(call,),
        rows=(row,), tokens=TokenUse(20, 12),
    )  # fmt: skip


def hash_of(key):
    return int.from_bytes(f"{key.step}{key.case_id}{key.index}".encode()[-7:])


def trained(tiny_folder, runs, **settings):
    made = trainer(tiny_folder, runs, rollout_function=with_results, max_steps=3, **settings)
    return made.train()


def test_coefficient_zero_gives_the_weights_of_a_run_without_it(tiny_folder, tmp_path, monkeypatch):
    zero = trained(tiny_folder, tmp_path / "zero", echo_coefficient=0.0)
    some = trained(tiny_folder, tmp_path / "some", echo_coefficient=0.05)
    monkeypatch.setattr(Echo, "carry", lambda *_: None)
    without = trained(tiny_folder, tmp_path / "without")
    assert weights_digest(zero) == weights_digest(without)
    assert weights_digest(some) != weights_digest(without)
    assert "env_loss/find" in zero.history[-1]
    assert "env_loss/find" not in without.history[-1]


def test_echo_lowers_the_loss_on_tool_results(tiny_folder, tmp_path):
    losses = [
        [row["env_loss/find"] for row in result.history if "loss" in row]
        for result in (
            trained(tiny_folder, tmp_path / "zero"),
            trained(tiny_folder, tmp_path / "much", echo_coefficient=5.0),
        )
    ]
    assert losses[0][0] == pytest.approx(losses[1][0])
    assert losses[1][-1] < losses[0][-1]
