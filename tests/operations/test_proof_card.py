"""A card has the verdict and the figures of a proof; what it quotes stays text."""

from __future__ import annotations

from typing import Any

from sparring.contracts.summaries import ProveSummary
from sparring.operations.proof_card import proof_card
from tests.summaries import complete

DIFFERENCE = {
    "before": 0.25, "after": 0.75, "value": 0.5, "low": 0.31, "high": 0.69, "cases": 24,
    "differing": 12, "smallest_effect": 0.2,
}  # fmt: skip


def card(**given: Any) -> str:
    summary = {
        "run": "proof-1", "environment": "shop", "verdict": "better",
        "sentence": "It answers more.", "model": "tiny", "training": "shop-1",
        "checkpoint": "/x/checkpoints/step-4", "cases": 24, "split": "held-out",
        "rollouts_per_case": 4, "reward": DIFFERENCE, "measures": {"exact": DIFFERENCE}, **given,
    }  # fmt: skip
    return proof_card(complete(ProveSummary, summary))


def test_a_proof_has_its_verdict_what_was_played_and_each_difference() -> None:
    text = card()
    assert text.startswith("# shop: better\n\n**better**: It answers more.\n")
    assert "(shop-1, step-4) played the same 24 held-out cases, 4 rollouts each, at" in text
    assert "| reward | 0.250 | 0.750 | +0.500 | +0.310 … +0.690 | 24 |" in text
    assert "| exact | 0.250 |" in text


def test_text_of_models_and_data_is_no_markup() -> None:
    hostile = "[x](http://evil) <b>| a |</b>\x1b[31m \u202e\nnext *line*"
    text = card(sentence=hostile)
    assert r"\[x\](http://evil) \<b\>\| a \|\</b\>" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"next \*line\*" in text
