"""Tokens are shown with their text, their author and their probability."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from sparring.contracts.rollouts import Span, TokenKind, TokenRow
from sparring.operations import token_views
from sparring.operations.rollouts import ShowRollout
from sparring.operations.token_views import show_tokens
from sparring.run_folder.events import append_event
from sparring.run_folder.rollout_log import RolloutWriter
from tests.surfaces.web.viewed import TRAINING, make_training, owner_in, played


def test_spans_have_texts_probabilities_versions_and_gaps(tmp_path: Path) -> None:
    folder = make_training(tmp_path / "runs")
    row = TokenRow(
        "clerk",
        array("i", range(7)),
        array("f", [-1.0, -2.0, -3.0]),
        (Span(TokenKind.PROMPT, 2), Span(TokenKind.SAMPLED, 3), Span(TokenKind.OBSERVED, 2)),
        versions=((4, 2), (5, 1)),
        gaps=array("f", [0.5, 0.25, 0.125]),
    )
    with RolloutWriter(folder.rollouts()) as writer:
        writer.append(played("versions", 9, 0, is_right=True, rows=(row,)), 1.0)
    request = ShowRollout(run=TRAINING, rollout="versions.9.0")
    (shown,) = show_tokens(request, owner_in(tmp_path)).rows
    prompt, sampled, observed = shown.spans
    assert [len(span.texts) for span in shown.spans] == [2, 3, 2]
    assert (prompt.kind, sampled.kind, observed.kind) == ("prompt", "sampled", "observed")
    assert sampled.logprobs == (-1.0, -2.0, -3.0)
    assert sampled.versions == ((4, 2), (5, 1))
    assert sampled.gaps == (0.5, 0.25, 0.125)
    assert prompt.texts == ("⟨0⟩", "⟨1⟩")  # there is no tokenizer


def test_the_tokenizer_of_a_checkpoint_decodes(tmp_path: Path, tiny_folder: Path) -> None:
    folder = make_training(tmp_path / "runs")
    place = folder.checkpoints / "step-2" / "tokenizer.json"
    place.write_bytes((tiny_folder / "tokenizer.json").read_bytes())
    shown = show_tokens(ShowRollout(run=TRAINING, rollout="lamps.0.0"), owner_in(tmp_path))
    assert shown.tokenizer == str(place)
    texts = [text for row in shown.rows for span in row.spans for text in span.texts]
    assert not any(text.startswith("⟨") for text in texts)


def test_the_tokenizer_that_a_run_has_recorded_decodes(tmp_path: Path, tiny_folder: Path) -> None:
    folder = make_training(tmp_path / "runs")
    tokenizer = str(tiny_folder / "tokenizer.json")
    append_event(folder, "inputs", author="worker", model="tiny", tokenizer=tokenizer)
    shown = show_tokens(ShowRollout(run=TRAINING, rollout="lamps.0.0"), owner_in(tmp_path))
    assert shown.tokenizer == tokenizer
    texts = [text for row in shown.rows for span in row.spans for text in span.texts]
    assert not any(text.startswith("⟨") for text in texts)


def test_a_long_row_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_views, "_MAX_TOKENS", 3)
    make_training(tmp_path / "runs")
    shown = show_tokens(ShowRollout(run=TRAINING, rollout="lamps.0.0"), owner_in(tmp_path))
    assert shown.is_partial
    assert sum(len(span.texts) for span in shown.rows[0].spans) == 3
