"""Each report leads with its verdict, and shows what its summary has and nothing more."""

from __future__ import annotations

from typing import Any

import pytest

from sparring.contracts.rollouts import Message, RequestedCall
from sparring.contracts.summaries import Flip
from sparring.reports.document import Block, Document, Grid, Heading, SideBySide, VerdictBlock
from sparring.reports.pictures import Curve
from sparring.reports.run_reports import (
    audit_report,
    check_report,
    comparison_report,
    eval_report,
    proof_report,
    training_report,
)
from sparring.reports.training_report import TrainingFacts
from tests.proofs.made import answered
from tests.summaries import completing

DIFFERENCE = {
    "before": 0.1, "after": 0.8, "value": 0.7, "low": 0.5, "high": 0.9, "cases": 40,
    "differing": 28, "smallest_effect": 0.2, "mcnemar": 0.0001,
}  # fmt: skip
FLIP: dict[str, Any] = {
    "case": "a",
    "before": 0.0,
    "after": 1.0,
    "base": "a.0.0",
    "trained": "a.0.0",
}
FIGURES = {
    "measures": {
        "exact": {
            "pass_rate": {"value": 0.25, "low": 0.1, "high": 0.5}, "weight": 1.0, "judged": 16,
        },
        "silent": {"pass_rate": None, "weight": 0.0, "judged": 0},
    },
    "parse_rate": 1.0, "called_a_tool": None, "truncated": 0.5,
    "tool_failures": {"raised": 3}, "unscored": 2, "rollouts": 16,
}  # fmt: skip
AMOUNT = {"value": 2.0, "low": 1.0, "high": 4.0}
FINDING = {"measure": "exact", "fault": "flaky", "message": "it wavers", "rollout": "a.0.0"}
FACTS = TrainingFacts("swift-lark", {"environment": "shop"}, None, [], {})


def proof(**given: Any) -> dict[str, Any]:
    return {
        "environment": "shop", "verdict": "better", "sentence": "It is better.", "model": "tiny",
        "training": "swift-lark", "checkpoint": "runs/swift-lark/checkpoints/step-4",
        "cases": 40, "split": "held-out", "rollouts_per_case": 2, "reward": DIFFERENCE,
        "measures": {"exact": DIFFERENCE, "polite": {**DIFFERENCE, "is_guard": True}},
        "picked_from": 1, "is_good": True,
        "proofs_on_these_cases": 1, "regressed": [], "flips": [FLIP], **given,
    }  # fmt: skip


def check(**given: Any) -> dict[str, Any]:
    case = {
        "case": "c1", "question": "Why?", "low": 0.1, "high": 0.9, "passed": 8, "rollouts": 16,
    }  # fmt: skip
    return {
        "environment": "shop", "verdict": "learnable", "why": "it moves", "model": "tiny",
        "group_size": 4, "cases": [case], "notes": [], "live": [], "models": [],
        "estimate": None, "figures": FIGURES, "audit": [], **given,
    }  # fmt: skip


def headings(document: Document) -> list[str]:
    return [each.text for each in document.blocks if isinstance(each, Heading)]


def under(document: Document, heading: str) -> Block:
    """The first block after a heading."""
    place = next(
        n
        for n, each in enumerate(document.blocks)
        if isinstance(each, Heading) and heading in each.text
    )
    return document.blocks[place + 1]


def rows(document: Document, heading: str) -> list[list[str]]:
    grid = under(document, heading)
    assert isinstance(grid, Grid)
    return [list(row) for row in grid.rows]


def tone(document: Document) -> str:
    return next(each.tone for each in document.blocks if isinstance(each, VerdictBlock))


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        ({}, "good"),
        ({"is_good": False}, "doubtful"),
        ({"verdict": "worse"}, "bad"),
        ({"verdict": "not shown"}, "doubtful"),
    ],
)
def test_a_proof_is_good_only_if_it_is_better_and_at_a_good_level(
    summary: dict[str, Any], expected: str
) -> None:
    assert tone(completing(proof_report)(proof(**summary), [], None)) == expected


def test_a_proof_shows_every_difference_with_its_interval_and_names_guards() -> None:
    second = {**DIFFERENCE, "value": -0.1, "low": -0.2, "high": 0.0}
    summary = proof(also=second, also_environment="sums")
    found = rows(completing(proof_report)(summary, [], None), "Before and after")
    assert [row[0] for row in found] == [
        "reward", "exact", "polite (guard)", "sums (second suite)",
    ]  # fmt: skip
    assert found[0][1:] == ["0.100", "0.800", "+0.700", "+0.500 … +0.900", "40"]
    assert found[3][3] == "-0.100"


def test_a_proof_says_what_was_played_and_what_it_is_corrected_for() -> None:
    text = completing(proof_report)(proof(picked_from=3, regressed=["polite"]), [], None).markdown()
    assert "played the same 40 held-out cases, 2 rollouts each" in text
    assert "swift-lark, step-4" in text
    assert "p = 0.0001" in text
    assert "Corrected for 3 candidates" in text
    assert "Got worse without being trained on: polite" in text
    assert "Corrected for" not in completing(proof_report)(proof(), [], None).markdown()


def test_a_flipped_case_shows_both_rollouts_with_calls_and_verdicts() -> None:
    base, trained = answered("a", 0.0), answered("a", 1.0, answer="")
    calls = (Message("assistant", "", calls=(RequestedCall("1", "look", "{}"),)),)
    called = type(base)(base.key, base.case, base.ending, "", calls, judgements=base.judgements)
    document = completing(proof_report)(proof(), [(Flip(**FLIP), called, trained)], None)
    block = under(document, "Cases that flipped: 1")
    assert isinstance(block, SideBySide)
    assert block.title == "0.00 → 1.00: question a (case a)"
    left, right = block.columns
    assert (left.title, right.title) == ("base, reward none", "trained, reward 1.00")
    assert left.lines == [("assistant", "→ look({})"), ("verdict", "right: failed: so much")]
    assert ("assistant", "(nothing)") in right.lines


def test_a_proof_shows_what_still_fails_its_audit_and_its_training() -> None:
    fails = [{"measure": "exact", "count": 3, "reason": "wrong city"}]
    whole = completing(proof_report)(proof(still_fails=fails, audit=[]), [], FACTS)
    assert rows(whole, "What still fails") == [["exact", "3", "wrong city"]]
    assert {"Audit of the measures", "What was trained"} <= set(headings(whole))
    bare = headings(completing(proof_report)(proof(), [], None))
    assert bare == ["Before and after"]


def test_a_check_leads_with_its_verdict_and_the_figures_it_stands_on() -> None:
    measures = [
        {"name": "exact", "passed": 4, "scored": 16, "live": 0.5, "movement": "can be learned"}
    ]
    live = [
        {"group_size": 8, "value": 0.9, "low": 0.5, "high": 1.0},
        {"group_size": 4, "value": 0.75, "low": 0.25, "high": 1.0},
    ]
    document = completing(check_report)(check(measures=measures, live=live))
    assert (document.title, tone(document)) == ("shop: learnable", "good")
    assert "tiny played 16 rollouts of 1 training cases" in document.markdown()
    assert rows(document, "Measures that carry reward") == [
        ["exact", "4 of 16", "50%", "can be learned"]
    ]
    assert rows(document, "live groups") == [
        ["4", "75%", "25% … 100%", "planned"],
        ["8", "90%", "50% … 100%", ""],
    ]


def test_a_check_shows_models_notes_and_the_estimate_where_there_are_any() -> None:
    model = {
        "name": "tiny", "is_learner": True, "cases": 3, "rollouts": 12, "correct": 6,
        "accuracy": 0.5, "any_correct": None, "message": "",
    }  # fmt: skip
    note = {"what": "truncated", "is_grave": True, "message": "m", "advice": "a", "rollout": "r"}
    estimate = {
        "plan": "4 × 4", "seconds_per_step": AMOUNT, "hours": AMOUNT, "sampled_tokens": AMOUNT,
        "memory": 2**30, "memory_of": "4 GiB", "cost": AMOUNT, "basis": "2 batches", "parity": "",
    }  # fmt: skip
    document = completing(check_report)(check(models=[model], notes=[note], estimate=estimate))
    assert rows(document, "Models")[0][:2] == ["tiny (to be trained)", "3"]
    assert rows(document, "Models")[0][4:6] == ["50%", "–"]
    assert rows(document, "What was found") == [["✗ truncated", "m", "a", "r"]]
    shown = dict(rows(document, "Estimate of the training"))
    assert shown["one step"] == "2.0 s (1.0 … 4.0)"
    assert shown["cost"] == "2.00 (1.00 … 4.00)"
    assert shown["memory"] == "1.0 GiB of 4 GiB"
    bare = headings(completing(check_report)(check(cases=[])))
    assert bare == ["Measures", "Audit of the measures"]


def test_figures_without_a_value_are_dashes() -> None:
    document = completing(eval_report)({"run": "swift-lark", **FIGURES})
    assert rows(document, "Measures") == [
        ["exact", "25%", "10% … 50%", "1", "16"],
        ["silent", "–", "–", "0", "0"],
    ]
    text = document.markdown()
    assert "3 raised" in text
    assert "2 of 16" in text


def test_an_audit_is_good_only_without_findings() -> None:
    summary = {"environment": "", "judgements": 9, "measures": {"exact": 1.0}}
    clean = completing(audit_report)({**summary, "audit": []})
    assert (clean.title, tone(clean)) == ("Audit: nothing found", "good")
    assert "null players do not pass" in clean.markdown()
    short = completing(audit_report)(
        {**summary, "audit": [], "left_out": ["3 of 9 answers were judged"]}
    )
    assert tone(short) == "doubtful"
    assert "3 of 9 answers were judged" in short.markdown()
    found = completing(audit_report)({**summary, "audit": [FINDING, FINDING]})
    assert (found.title, tone(found)) == ("Audit: 2 findings", "bad")
    assert rows(found, "Audit") == [["exact", "flaky", "it wavers", "a.0.0"]] * 2


def test_a_training_without_an_environment_is_called_by_its_run() -> None:
    assert training_report(FACTS).title == "shop: training"
    assert training_report(TrainingFacts("lark", {}, None, [], {})).title == "lark: training"


def test_runs_are_compared_with_the_first_and_one_without_a_basis_says_why() -> None:
    better = {
        "run": "two", "basis": "over the validation cases", "standing": "better",
        "sentence": "two is better", "reward": DIFFERENCE, "measures": {}, "flips": [FLIP] * 3,
    }  # fmt: skip
    apart = {**better, "run": "three", "reward": None, "sentence": "no case in common"}
    compared = {
        "runs": ["one", "two", "three"], "settings": [("seed", [1, 2, 3])],
        "differences": [better, apart],
    }  # fmt: skip
    pairs = {"two": [(Flip(**FLIP), answered("a", 0.0), answered("a", 1.0))]}
    panels = {"reward": [Curve("one", [1], [0.5])]}
    document = comparison_report(compared, panels, pairs)
    assert rows(document, "Settings that differ") == [["seed", "1", "2", "3"]]
    assert isinstance(under(document, "two compared with one"), VerdictBlock)
    assert "Cases that flipped: 3, of which 1 are shown" in headings(document)
    assert "no case in common" in document.markdown()
    same = comparison_report({**compared, "settings": []}, {}, {})
    assert "none" in same.markdown()
