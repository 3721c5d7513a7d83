"""Each kind of run has a view: its progress, its results, and how it is resumed."""

from __future__ import annotations

from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.contracts.kinds import KINDS
from sparring.surfaces.cli.kind_views import show_results, view_of
from tests.surfaces.cli.terminal import AUDIT, CHECK, EVAL, PROOF, SHIPMENT, TRAIN, summary_of

PLAYING = {"rollouts": 48, "total": 192, "passed": 7, "sampled_tokens": 12345}
TRAINING = {"step": 3, "steps": 20, "tokens_drawn": 12345}


@pytest.mark.parametrize(
    ("kind", "run", "word"),
    [
        ("train", TRAIN, "last step"),
        ("eval", EVAL, "calls parsed"),
        ("check", CHECK, "live groups"),
        ("audit", AUDIT, "judgements"),
        ("prove", PROOF, "difference"),
        ("ship", SHIPMENT, "same answers"),
    ],
)
def test_every_kind_shows_its_own_summary(
    kind: str, run: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_results(kind, summary_of(run))
    assert word in capsys.readouterr().out


def test_every_kind_of_run_has_a_view_and_no_other_has() -> None:
    for kind in KINDS:
        assert view_of(kind).stopping.startswith("stopping")
    with pytest.raises(InvalidInput):
        view_of("dance")


def test_a_training_counts_steps_and_the_others_rollouts() -> None:
    assert view_of("train").progress(TRAINING) == "step 3 of 20"
    assert view_of("eval").progress(PLAYING) == "48 of 192 · 7 passed"


@pytest.mark.parametrize(("kind", "beat"), [("train", TRAINING), ("check", PLAYING)])
def test_the_time_left_is_shown_once_it_is_known(kind: str, beat: dict[str, Any]) -> None:
    assert "left" not in view_of(kind).progress(beat | {"seconds_left": None})
    assert "10 min left" in view_of(kind).progress(beat | {"seconds_left": 600})


def test_a_training_is_resumed_once_it_has_a_step() -> None:
    hint = view_of("train").resume_hint
    for beat in ({}, {"step": 0}):
        assert hint(beat, "bell-1").startswith("no step has ended")
    assert hint(TRAINING, "bell-1").startswith("`sparring run resume bell-1` ")


def test_a_run_with_rollouts_left_gets_a_hint_to_resume() -> None:
    hint = view_of("prove").resume_hint
    assert hint({}, "bell-1") == ""
    assert hint(PLAYING | {"rollouts": 192}, "bell-1") == ""
    assert hint(PLAYING, "bell-1").startswith(
        "48 of 192 rollouts are saved: `sparring run resume bell-1`"
    )


def test_a_training_prints_what_is_new_in_a_heartbeat_and_the_others_nothing() -> None:
    lines = view_of("train").lines()
    beat = TRAINING | {"pid": 1, "messages": ["batch of 4"], "metrics": {"loss": 0.5}}
    assert lines(beat) == ["batch of 4", "step 3/20 · loss +0.500"]
    assert lines(beat) == []
    assert view_of("eval").lines()(PLAYING) == []
