"""A card has the verdict and the figures of a proof or a shipment; what it quotes stays text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparring.contracts.summaries import ProveSummary, ShipSummary
from sparring.operations.cards import card_of
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from tests.summaries import completed
from tests.surfaces.cli.test_ship_tables import SUMMARY

DIFFERENCE = {
    "before": 0.25, "after": 0.75, "value": 0.5, "low": 0.31, "high": 0.69, "cases": 24,
    "differing": 12, "smallest_effect": 0.2,
}  # fmt: skip


def proved(place: Path, **given: Any) -> str:
    folder = RunFolder(place / "proof-1")
    summary = {
        "environment": "shop", "verdict": "better", "sentence": "It answers more.",
        "model": "tiny", "training": "shop-1", "checkpoint": "/x/checkpoints/step-4",
        "cases": 24, "split": "held-out", "rollouts_per_case": 4, "reward": DIFFERENCE,
        "measures": {"exact": DIFFERENCE}, **given,
    }  # fmt: skip
    write_json(folder.summary, completed(ProveSummary, summary))
    return card_of(folder)


def shipped(place: Path, **given: Any) -> str:
    folder = RunFolder(place / "ship-1")
    write_json(folder.summary, completed(ShipSummary, {**SUMMARY, **given}))
    return card_of(folder)


def test_a_proof_has_its_verdict_what_was_played_and_each_difference(tmp_path: Path) -> None:
    text = proved(tmp_path)
    assert text.startswith("# shop: better\n\n**better**: It answers more.\n")
    assert "(shop-1, step-4) played the same 24 held-out cases, 4 rollouts each." in text
    assert "| reward | 0.250 | 0.750 | +0.500 | +0.310 … +0.690 | 24 |" in text
    assert "| exact | 0.250 |" in text


def test_a_shipment_has_its_files_and_what_the_held_out_cases_say(tmp_path: Path) -> None:
    text = shipped(tmp_path)
    assert text.startswith("# porter: equal")
    assert "Held-out cases, played by gguf q8" in text
    assert "| gguf/porter-q8\\_0.gguf | 1.5 | 1.0e-03 | 1.0e-05 | equal |" in text
    assert "| merged | 4.0 | – | – | not played |" in text
    assert "lost" in shipped(tmp_path, held_out=None, artefacts=[], problem="lost")


def test_text_of_models_and_data_is_no_markup(tmp_path: Path) -> None:
    hostile = "[x](http://evil) <b>| a |</b>\x1b[31m \u202e\nnext *line*"
    text = proved(tmp_path, sentence=hostile)
    assert r"\[x\](http://evil) \<b\>\| a \|\</b\>" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"next \*line\*" in text


def test_other_runs_and_runs_without_results_have_no_card(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "eval-1")
    assert card_of(folder) == ""
    write_json(folder.summary, {"format": 1, "kind": "eval"})
    assert card_of(folder) == ""
