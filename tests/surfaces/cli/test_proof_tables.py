"""Checks, audits, proofs and comparisons, with everything that qualifies a verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich.console import Console

from sparring.surfaces.cli.proof_tables import (
    show_audit,
    show_check,
    show_comparison,
    show_proof,
)
from tests.summaries import completing
from tests.surfaces.cli.terminal import AUDIT, CHECK, PROOF, summary_of


def shown(show: Any, summary: dict[str, Any]) -> str:
    console = Console(width=220)
    with console.capture() as capture:
        completing(show)(summary, console)
    return capture.get()


def line_with(text: str, word: str) -> str:
    (line,) = [" ".join(line.split()) for line in text.splitlines() if word in line]
    return line


def test_a_check_gives_its_verdict_first_and_each_note_with_its_advice() -> None:
    summary = summary_of(CHECK)
    text = shown(show_check, summary)
    assert text.strip().startswith("broken: 44 of 48 rollouts are cut off")
    assert text.index("✗ truncated: ") < text.index("→ no tool is called")
    assert "● tools are not called: 0% of rollouts" in text
    assert line_with(text, "got_in").startswith("got_in 0 of 48 0% never passes")
    assert line_with(text, "planned").startswith("2 4% 0% … 25% planned")
    assert line_with(text, "hello Ada").startswith("hello Ada 0 of 16 0% … 14% ━━━━·")
    assert "the audit of the measures found nothing" in text


ESTIMATE = {
    "plan": "20 steps",
    "seconds_per_step": {"value": 2.0, "low": 1.5, "high": 3.0},
    "hours": {"value": 2.0, "low": 1.5, "high": 3.0},
    "hours_alone": 1.0,
    "cores_had": 2.5,
    "proof_hours": 0.5,
    "sampled_tokens": {"value": 12345.0},
    "memory": 3 * 2**30,
    "memory_of": "this machine's 16 GiB",
    "cost": {"value": 4.0, "low": 3.0, "high": 6.0},
    "basis": "two tried steps",
}
MODEL = {
    "name": "tiny", "is_learner": True, "cases": 3, "rollouts": 48, "correct": 0,
    "accuracy": 0.0, "any_correct": None, "seconds": 100.0, "message": "",
}  # fmt: skip


def test_an_estimate_is_shown_with_its_range_and_its_basis() -> None:
    text = shown(show_check, summary_of(CHECK) | {"estimate": ESTIMATE})
    assert line_with(text, "the whole run takes") == "the whole run takes 2.0 h (1.5 h … 3.0 h)"
    assert line_with(text, "on an idle machine").endswith("60 min; this check had 2.5 of its cores")
    assert line_with(text, "memory ") == "memory 3.0 GiB of this machine's 16 GiB"
    assert line_with(text, "cost") == "cost 4.00 (3.00 … 6.00)"
    assert line_with(text, "based on") == "based on two tried steps"


def test_models_are_compared_only_if_there_are_others() -> None:
    summary = summary_of(CHECK)
    assert "any correct" not in shown(show_check, summary | {"models": [MODEL]})
    other = MODEL | {"name": "large\x1b", "is_learner": False, "accuracy": 0.5, "message": "no"}
    text = shown(show_check, summary | {"models": [MODEL, other]})
    assert line_with(text, "tiny ") == "tiny 3 48 0 0% – 2 min"
    assert line_with(text, "large") == "large\\x1b 3 48 0 50% – 2 min see above"


FINDING = {
    "measure": "got_in", "message": "an empty answer passes", "rollout": "empty/1.0",
    "advice": "fail empty answers", "is_grave": True,
}  # fmt: skip


def test_an_audit_counts_its_findings_and_says_which_are_grave() -> None:
    summary = summary_of(AUDIT)
    assert "nothing found: got_in made 96 judgements" in shown(show_audit, summary)
    text = shown(show_audit, summary | {"audit": [FINDING]})
    assert "1 finding, some serious: " in text
    assert "✗ got_in an empty answer passes  empty/1.0" in text
    assert "→ fail empty answers" in text
    mild = shown(show_audit, summary | {"audit": [FINDING | {"is_grave": False}] * 2})
    assert "2 findings: " in mild
    assert "✗" not in mild
    short = shown(show_audit, summary | {"left_out": ["3 of 9 answers were judged"]})
    assert "● 3 of 9 answers were judged" in short


def test_a_proof_shows_both_models_the_interval_and_what_still_fails() -> None:
    text = shown(show_proof, summary_of(PROOF))
    assert text.strip().startswith("not shown: still poor now")
    assert line_with(text, "reward  ").startswith("reward 0.000 0.000 +0.000 -0.107 … +0.107")
    assert "24 held-out cases × 4 rollouts of each model, at temperature 0.8; 43 s" in text
    assert "0 cases came out differently; an effect of 0.355 would be detected" in text
    assert "still fails got_in 96 times, as in: 0 calls" in text
    for unusual in ("McNemar", "corrected", "run number", "could not be scored", "guard"):
        assert unusual not in text


def test_a_proof_tells_everything_that_makes_luck_likelier() -> None:
    summary = summary_of(PROOF)
    summary["reward"]["mcnemar"] = 0.0123
    summary["measures"]["got_in"]["is_guard"] = True
    flips = [{"case": f"c{n}", "before": 1.0, "after": n / 10} for n in range(9)]
    changed = {"picked_from": 3, "proofs_on_these_cases": 2, "flips": flips}
    changed |= {"unscored": {"base": 0, "trained": 5}, "also_environment": "shop"}
    text = shown(show_proof, summary | changed | {"also": summary["reward"]})
    assert "exact McNemar test: p = 0.0123" in text
    assert "corrected for 3 candidates" in text
    assert "run number 2 that measured these cases" in text
    assert "rollouts that could not be scored: 5 of trained" in text
    assert text.count("got worse") == 3
    assert line_with(text, "got_in  ").endswith("guard")
    assert "shop (second suite)" in text


def test_a_proof_without_any_score_has_no_row_and_no_power() -> None:
    summary = summary_of(PROOF) | {"reward": None, "measures": {}}
    text = shown(show_proof, summary)
    assert "would be detected" not in text
    assert "got_in  " not in text
    assert not [line for line in text.splitlines() if line.startswith("reward")]


@pytest.mark.parametrize("settings", [[["beta", [0.0, 0.1]]], []])
def test_a_comparison_names_the_settings_that_differ_and_each_difference(
    settings: list[Any],
) -> None:
    flips = [{"case": f"case-{n}", "before": 0.0, "after": 1.0} for n in range(7)]
    difference = {"run": "b-2", "standing": "better", "sentence": "+0.5", "basis": "7 cases"}
    comparison = {
        "runs": ["a-1", "b-2"],
        "settings": settings,
        "differences": [difference | {"flips": flips}],
        "html": "/runs/comparison.html",
    }
    text = shown(show_comparison, json.loads(json.dumps(comparison)))
    assert ("beta" in text, "no setting differs" in text) == (bool(settings), not settings)
    assert "better: b-2 compared with a-1: +0.5" in text
    assert text.count("0.00 → 1.00") == 5
    assert "/runs/comparison.html" in text
