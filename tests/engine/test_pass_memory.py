"""What a pass takes is counted, and rows follow from what is free."""

from __future__ import annotations

import pytest
import torch

from sparring.contracts.errors import NotEnoughMemory
from sparring.engine import pass_memory
from sparring.engine.forward import completion_scores, small_tiles_on_cpu
from sparring.engine.pass_memory import GIB, PassCost, choose_rows, measure_pass, prompts_in
from tests.engine.test_forward import made

COST = PassCost(once=0.1 * GIB, row=0.01 * GIB, token=0.001 * GIB)


def chosen(monkeypatch, free: float, **given):
    monkeypatch.setattr(pass_memory, "free_memory", lambda: int(free * GIB))
    options = {"width": 90, "rows": 32, "group": 8, "device": "cpu", "wanted": None}
    options |= {"needed_besides": 0, "cost": COST}
    return choose_rows(**{**options, **given})


def test_on_a_cpu_a_pass_takes_two_gibibytes_at_most_whatever_is_free(monkeypatch):
    assert chosen(monkeypatch, 100).rows == 8  # 1.3 × (0.1 + 8 × 0.1) = 1.17
    assert chosen(monkeypatch, 100).bytes <= 2 * GIB


def test_where_less_is_free_fewer_rows_are_taken_and_they_divide_the_step(monkeypatch):
    rows = [chosen(monkeypatch, free).rows for free in (3.5, 2, 1, 0.6)]
    assert rows == [8, 8, 2, 1]
    assert chosen(monkeypatch, 3.5, rows=30).rows == 10


def test_memory_for_other_needs_is_subtracted_before_rows_are_chosen(monkeypatch):
    assert chosen(monkeypatch, 3.5, needed_besides=int(2.5 * GIB)).rows == 2


def test_requested_memory_is_used_as_far_as_it_is_free(monkeypatch):
    assert chosen(monkeypatch, 100, wanted=10).rows == 32
    assert chosen(monkeypatch, 1, wanted=10).rows == 4


def test_the_last_row_may_take_nearly_all(monkeypatch):
    assert chosen(monkeypatch, 0.32).rows == 1


def test_where_not_one_row_fits_it_is_refused_with_what_helps(monkeypatch):
    with pytest.raises(NotEnoughMemory, match=r"one row of 90 tokens.*gradient_checkpointing"):
        chosen(monkeypatch, 0.2)


def test_the_count_is_what_a_larger_pass_holds():
    model = made("llama", lora=True)

    def score(ids, mask, keep):
        with small_tiles_on_cpu(ids.device):
            completion_scores(model, model, ids, mask, keep)

    cost = measure_pass(score, model, prompt=200)
    ids = torch.arange(200 + 48).remainder(97).repeat(8, 1)
    with pass_memory.count_saved_bytes(model) as held:
        score(ids, torch.ones_like(ids), 48)
    assert cost.of(8, 48) / pass_memory._OVERHEAD == pytest.approx(sum(held.values()), rel=0.1)
    assert measure_pass(score, model, prompt=200) == cost, "the same numbers every time"


def test_counting_draws_no_random_numbers():
    model = made("llama")
    before = torch.get_rng_state()
    with pass_memory.count_saved_bytes(model):
        torch.rand(5)
    assert torch.equal(before, torch.get_rng_state())


def test_rows_of_many_tokens_are_fewer_where_nothing_is_shared(monkeypatch):
    size = chosen(monkeypatch, 100)
    assert size.plain_rows(10) > size.plain_rows(400) >= 1


def test_prompts_that_differ_are_counted_each(monkeypatch):
    cost = PassCost(once=0.1 * GIB, row=0.01 * GIB, token=0.0, prompt=0.5 * GIB)
    assert chosen(monkeypatch, 100, cost=cost).rows == 16  # 1.3 × (0.1 + 2 × 0.5 + 0.16)
    assert chosen(monkeypatch, 100, cost=cost, group=32).rows == 32


@pytest.mark.parametrize(
    ("rows", "group", "prompts"), [(16, 8, 2), (8, 8, 1), (4, 8, 1), (6, 8, 2), (12, 8, 3)]
)
def test_a_pass_has_the_prompts_of_the_groups_that_it_touches(rows, group, prompts):
    assert prompts_in(rows, group) == prompts


def test_the_prompt_is_shared_by_all_only_as_far_as_they_agree():
    model = made("llama", lora=True)

    def score(ids, mask, keep):
        completion_scores(model, model, ids, mask, keep)

    whole = measure_pass(score, model, prompt=200)
    half = measure_pass(score, model, prompt=200, common=100)
    assert half.once == pytest.approx(whole.once / 2)
    assert half.of(1, 10) == pytest.approx(whole.of(1, 10))
    assert half.of(8, 10, prompts=2) == pytest.approx(whole.of(8, 10) + 1.3 * whole.once / 2)
