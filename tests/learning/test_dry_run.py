"""Dry steps: what is measured of them, when they end, and the longest row."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.learning import dry_run
from sparring.learning.dry_run import DryRun, DryStep, stretched
from sparring.learning.engine import Parity
from sparring.learning.rows import LearningRollout, LearningRow


def row(length: int = 3) -> LearningRow:
    return LearningRow(
        array("i", [7, 8]),
        array("i", range(20, 20 + length)),
        b"\x01" * (length - 1) + b"\x00",
        array("f", [-0.5] * length),
    )


class Engine:
    """Calls the hooks as a training run does; a step plays for 3 s and updates for 2 s."""

    def __init__(self, dry: DryRun, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hooks = dry.hooks()
        self.lengths: list[int] = []
        self.now = 0.0
        monkeypatch.setattr(
            dry_run,
            "time",
            SimpleNamespace(monotonic=lambda: self.now, process_time=lambda: self.now / 2),
        )

    def restore(self, checkpoint: object) -> None:
        assert checkpoint is None

    def take(self) -> None:
        step = len(self.lengths)
        self.hooks.on_doing("playing", step)
        self.now += 3
        self.hooks.on_doing("scoring", step)
        learned = self.hooks.on_learned((LearningRollout((row(),), 1.0),))
        self.lengths.append(len(learned[0].rows[0].completion))
        self.now += 1
        self.hooks.on_doing("updating", step)
        self.now += 1

    @property
    def built(self) -> Any:
        return SimpleNamespace(engine=self, steps=self)


def test_a_dry_run_ends_after_its_steps_and_has_their_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dry = DryRun(2)
    engine = Engine(dry, monkeypatch)
    dry.run(engine.built)
    assert dry.done == [DryStep(update=2, update_cpu=1, whole=5)] * 2
    assert engine.lengths == [3, 3]


def test_the_longest_sequence_is_tried_in_one_more_step(monkeypatch: pytest.MonkeyPatch) -> None:
    dry = DryRun(2)
    engine = Engine(dry, monkeypatch)
    dry.run(engine.built, longest=50)
    assert engine.lengths == [3, 3, 50]
    assert len(dry.done) == 3


def test_an_error_of_a_step_ends_the_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    dry = DryRun(2)

    def fails() -> None:
        raise MemoryError("out of memory")

    engine = SimpleNamespace(restore=lambda _: [], take=fails)
    with pytest.raises(MemoryError):
        dry.run(SimpleNamespace(engine=engine, steps=engine))  # type: ignore[arg-type]
    assert dry.done == []


def test_a_dry_run_passes_on_progress_and_parity() -> None:
    doing: list[tuple[str, int]] = []
    dry = DryRun(on_doing=lambda what, step: doing.append((what, step)))
    hooks = dry.hooks()
    hooks.on_doing("playing", 4)
    parity = Parity(9, 1e-6, 1e-7, "float32")
    hooks.on_parity(parity)
    assert doing == [("playing", 4)]
    assert dry.parity == str(parity)


@settings(max_examples=50)
@given(st.integers(1, 8), st.integers(0, 16))
def test_a_stretched_row_begins_as_it_was_and_learns_from_the_rest(
    length: int, wanted: int
) -> None:
    before, after = row(length), stretched(row(length), wanted)
    assert len(after.completion) == max(length, wanted)
    assert len(after.completion) == len(after.mask) == len(after.logprobs)
    assert after.completion[:length] == before.completion
    assert after.mask[:length] == before.mask
    assert set(after.mask[length:]) <= {1}
    assert after.prompt == before.prompt
