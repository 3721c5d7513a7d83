"""Cards say what was measured, what was not, and what hubs need to know."""

from __future__ import annotations

from dataclasses import replace

from sparring.contracts.summaries import ArtefactRow, ExamplesRow, HeldOutRow, ProveSummary
from sparring.shipping.cards import CardFacts, model_card, proof_card
from sparring.shipping.source import read_front_matter
from tests.summaries import complete

FACTS = CardFacts(
    "porter", "bell", "Qwen/Qwen3-0.6B", True, "apache-2.0", "bell-1", "step-6", 6,
    ["ring"], "Let them in.", {"torch": "2.13"},
)  # fmt: skip
ROW = {"before": 0.2, "after": 0.9, "value": 0.7, "low": 0.5, "high": 0.8, "cases": 40}
PROOF = complete(ProveSummary, {
    "verdict": "better", "sentence": "good now", "model": "/home/me/base",
    "split": "held-out", "reward": ROW, "measures": {"got in": ROW},
    "cases": 40, "rollouts_per_case": 4, "temperature": 0.8, "cases_digest": "d" * 64,
    "picked_from": 1,
})  # fmt: skip
MERGED = complete(ArtefactRow, {
    "name": "merged", "path": "merged", "size": 5_000_000, "server": "transformers",
    "prompts": {"conversations": 44, "tokens": 900}, "gap": {"mean": 1e-6, "kl": 1e-9},
    "warning": "",
})  # fmt: skip
HELD_OUT = complete(HeldOutRow, {
    "artefact": "merged", "likeness": "equal", "sentence": "a loss is excluded",
    "against_base": "better",
})  # fmt: skip


def test_the_model_card_has_the_metadata_that_hubs_read() -> None:
    metadata = read_front_matter(model_card(FACTS, PROOF, [MERGED], ""))
    assert metadata["license"] == "apache-2.0"
    assert metadata["base_model"] == "Qwen/Qwen3-0.6B"
    (index,) = metadata["model-index"]
    metrics = index["results"][0]["metrics"]
    assert [(each["type"], each["value"]) for each in metrics] == [("reward", 0.9), ("got_in", 0.9)]


def test_a_local_base_is_not_linked_and_an_unproven_model_has_no_results() -> None:
    card = model_card(replace(FACTS, is_base_public=False, licence=""), None, [MERGED], "")
    metadata = read_front_matter(card)
    assert "base_model" not in metadata
    assert "model-index" not in metadata
    assert metadata["license"] == "other"
    assert "Unproven" in card


def test_the_proof_card_says_what_was_measured_and_what_was_not() -> None:
    card = proof_card(FACTS, PROOF, [MERGED], HELD_OUT)
    assert "| reward | 0.200 | 0.900 | +0.700 | +0.500 … +0.800 | 40 |" in card
    assert "played the same 40 held-out cases, 4 rollouts each, at temperature 0.8." in card
    assert "/home" not in card
    assert "44 prompts (900 tokens) give the ids that were trained on" in card
    assert "- vLLM: the commands are written from its documentation, not run here" in card
    assert "held-out cases with merged" not in card
    assert "held-out cases with merged" in proof_card(FACTS, PROOF, [MERGED], None)
    assert "**Unproven.**" in proof_card(FACTS, None, [MERGED], None)


def test_the_model_card_says_how_the_files_play() -> None:
    comparison = "merged on held-out cases: a loss is excluded"
    card = model_card(FACTS, PROOF, [MERGED], comparison)
    assert "| merged | 5.0 | 1.0e-06 | – | – | transformers |" in card
    assert f"Each file was verified against the checkpoint. {comparison}." in card


def test_the_cards_say_with_how_many_examples_the_figures_were_measured() -> None:
    facts = replace(FACTS, examples=2)
    worth = ExamplesRow(examples=2, cases=24, reward=1.0, without=0.0)
    card = proof_card(facts, PROOF, [MERGED], HELD_OUT, worth)
    replies = "Every figure was measured with the 2 worked examples in `agent.json`"
    assert replies in card
    assert "without the 2 examples: 0.00, with: 1.00, on 24 validation cases." in card
    assert replies in model_card(facts, PROOF, [MERGED], "")
    plain = proof_card(FACTS, PROOF, [MERGED], None), model_card(FACTS, PROOF, [MERGED], "")
    assert not any("example" in card for card in plain)
