"""Looking ahead: the cases that TRL's own sampler proposes, by rank, over epochs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trl.trainer.utils import RepeatSampler

from sparring.contracts.errors import InfrastructureError
from sparring.engine.case_order import CaseOrder


def sampler_of(
    cases: int, per_step: int, group: int, passes: int, *, shuffle: bool
) -> RepeatSampler:
    return RepeatSampler(
        data_source=range(cases),
        mini_repeat_count=group,
        batch_size=per_step,
        repeat_count=passes,
        shuffle=shuffle,
        seed=7,
    )


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 5), st.booleans())
def test_each_rank_gets_the_cases_of_its_rows(
    world_size: int, share: int, passes: int, spare: int, shuffle: bool
) -> None:
    group, per_step, steps = 2, world_size * share, 7
    given_ = (3 * per_step + spare, per_step, group, passes)
    order = CaseOrder(
        sampler_of(*given_, shuffle=shuffle),
        lambda numbers: [str(number) for number in numbers],
        world_size=world_size,
        first_step=0,
        boundary=1,
    )
    sampler, rows = sampler_of(*given_, shuffle=shuffle), []
    while len(rows) < steps * passes * per_step * group:
        rows += list(sampler)
    for step in range(steps):
        start = step * passes * per_step * group
        mine = [str(row) for row in rows[start : start + per_step * group : group]]
        expected = [mine[rank * share : (rank + 1) * share] for rank in range(world_size)]
        assert order(step) == expected


def test_a_step_is_looked_up_once_and_in_order() -> None:
    order = CaseOrder(
        sampler_of(8, 2, 2, 1, shuffle=False),
        lambda numbers: [str(number) for number in numbers],
        world_size=1,
        first_step=10,
        boundary=2,
    )
    assert order(12) == [["2", "3"]]
    with pytest.raises(InfrastructureError, match="requested after those of step"):
        order(12)
