"""Each kind's summary on a terminal, with everything that qualifies a verdict, in 80 columns."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from sparring.contracts.kinds import KINDS
from sparring.operations.reporting import Comparison
from sparring.surfaces.cli.kind_views import result_parts
from sparring.surfaces.cli.page import show
from sparring.surfaces.cli.results import comparison_parts
from tests.summaries import completed
from tests.surfaces.cli.terminal import AUDIT, CHECK, EVAL, PROOF, SHIPMENT, TRAIN, summary_of


def shown(kind: str, summary: dict[str, Any], width: int = 220) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        show(result_parts(kind, completed(KINDS[kind].summary, summary)), console)
    return capture.get()


def line_with(text: str, word: str) -> str:
    (line,) = [" ".join(line.split()) for line in text.splitlines() if word in line]
    return line


def test_a_check_gives_its_verdict_first_and_each_note_with_its_advice() -> None:
    summary = summary_of(CHECK)
    text = shown("check", summary)
    assert text.strip().startswith("broken: 44 of 48 rollouts are cut off")
    assert text.index("✗ truncated: ") < text.index("→ no tool is called")
    assert "● tools are not called: 0% of rollouts" in text
    assert line_with(text, "got_in").startswith("got_in 0 of 48 0% never passes")
    assert line_with(text, "planned").startswith("2 4% 0% … 25% planned")
    assert line_with(text, "hello Ada").startswith("hello Ada 0 of 16 0% … 14% ━━·")
    assert "0 of 48 rollouts pass the measure" in text
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
    text = shown("check", summary_of(CHECK) | {"estimate": ESTIMATE})
    assert line_with(text, "the whole run takes") == "the whole run takes 2.0 h (1.5 h … 3.0 h)"
    assert line_with(text, "on an idle machine").endswith("60 min; this check had 2.5 of its cores")
    assert line_with(text, "memory ") == "memory 3.0 GiB of this machine's 16 GiB"
    assert line_with(text, "cost") == "cost 4.00 (3.00 … 6.00)"
    assert line_with(text, "based on") == "based on two tried steps"


def test_models_are_compared_only_if_there_are_others() -> None:
    summary = summary_of(CHECK)
    assert "any correct" not in shown("check", summary | {"models": [MODEL]})
    other = MODEL | {"name": "large\x1b", "is_learner": False, "accuracy": 0.5, "message": "no"}
    text = shown("check", summary | {"models": [MODEL, other]})
    assert line_with(text, "tiny ") == "tiny 3 0 of 48 0% – 2 min"
    assert line_with(text, "large") == "large\\x1b (see above) 3 0 of 48 50% – 2 min"


FINDING = {
    "measure": "got_in", "message": "an empty answer passes", "rollout": "empty/1.0",
    "advice": "fail empty answers", "is_grave": True,
}  # fmt: skip


def test_an_audit_counts_its_findings_and_says_which_are_grave() -> None:
    summary = summary_of(AUDIT)
    assert "nothing found: got_in made 96 judgements" in shown("audit", summary)
    text = shown("audit", summary | {"audit": [FINDING]})
    assert "1 finding, some serious: " in text
    assert "✗ got_in: an empty answer passes  empty/1.0" in text
    assert "→ fail empty answers" in text
    mild = shown("audit", summary | {"audit": [FINDING | {"is_grave": False}] * 2})
    assert "2 findings: " in mild
    assert "✗" not in mild
    short = shown("audit", summary | {"left_out": ["3 of 9 answers were judged"]})
    assert "● 3 of 9 answers were judged" in short


def test_a_proof_shows_both_models_the_interval_and_what_still_fails() -> None:
    text = shown("prove", summary_of(PROOF))
    assert text.strip().startswith("not shown: still poor now")
    assert line_with(text, "reward  ").startswith("reward 0.000 0.000 +0.000 -0.107 … +0.107")
    assert "played the same 24 held-out cases, 4 rollouts each, at temperature 0.8." in text
    assert "0 of 24 cases came out differently" in text
    assert "It took 43 s." in text
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
    text = shown("prove", summary | changed | {"also": summary["reward"]})
    assert "Exact McNemar test: p = 0.0123" in text
    assert "corrected for 3 candidates" in text
    assert "run number 2 that measured these cases" in text
    assert "Rollouts that could not be scored: 5 of trained" in text
    assert text.count("got worse") == 3
    assert "got_in (guard)" in text
    assert "shop (second suite)" in text


def test_a_proof_without_any_score_has_no_row_and_no_power() -> None:
    summary = summary_of(PROOF) | {"reward": None, "measures": {}}
    text = shown("prove", summary)
    assert "cases came out differently" not in text
    assert "got_in  " not in text
    assert not [line for line in text.splitlines() if line.startswith("reward")]


@pytest.mark.parametrize("settings", [[["beta", [0.0, 0.1]]], []])
def test_a_comparison_names_the_settings_that_differ_and_each_difference(
    settings: list[Any],
) -> None:
    flips = [{"case": f"case-{n}", "before": 0.0, "after": 1.0} for n in range(7)]
    difference = {"run": "b-2", "standing": "better", "sentence": "+0.5", "basis": "7 cases"}
    found = Comparison(
        runs=("a-1", "b-2"),
        settings=settings,
        differences=(difference | {"flips": flips},),
        html="/runs/comparison.html",
    )
    console = Console(width=80)
    with console.capture() as capture:
        show(comparison_parts(found), console)
    text = capture.get()
    assert ("beta" in text, "no setting differs" in text) == (bool(settings), not settings)
    assert "better: b-2 compared with a-1: +0.5" in text
    assert text.count("0.00 → 1.00") == 5
    assert "/runs/comparison.html" in text


def test_an_evaluation_shows_measures_endings_and_reasons() -> None:
    text = shown("eval", summary_of(EVAL))
    assert "tiny on 3 validation cases × 1, temperature 0.8" in text
    assert line_with(text, "56.1%").startswith("got_in 0.0% 0.0% … 56.1% ●━━")
    assert line_with(text, "endings") == "endings 2 answered, 1 unparsable_call"
    assert line_with(text, "3 ×") == "3 × like 0 calls, where one was needed"
    assert "why rollouts ended without an answer" in text
    assert "sparring rollout list 77fe" in text
    assert "unscored" not in text
    assert "sandbox" not in text


def test_an_evaluation_that_could_not_judge_says_so() -> None:
    summary = summary_of(EVAL)
    measure = summary["measures"]["got_in"]
    measure |= {"judged": 0, "cannot_tell": 3, "pass_rate": None, "weight": 0}
    changed = {"reward": None, "unscored": 3, "parse_rate": None, "unsandboxed": True, "seconds": 0}
    text = shown("eval", summary | changed | {"hung_tools": ["find", "find"]})
    assert "got_in could not judge any rollout" in text
    assert line_with(text, "got_in  ") == "got_in – – shown 0 3"
    assert line_with(text, "reward") == "reward –"
    assert line_with(text, "unscored") == "unscored 3 of 3"
    assert line_with(text, "hung tools") == "hung tools 2 find"
    assert "ran without a sandbox" in text


def test_a_training_shows_its_last_step_its_validations_and_its_weights() -> None:
    text = shown("train", summary_of(TRAIN))
    assert "tiny: 2 steps of 2 cases × 2 rollouts" in text
    assert line_with(text, "last step") == "last step loss +0.000, reward 0.000"
    assert line_with(text, "got_in") == "got_in 0.0% passed"
    assert line_with(text, "at step 2") == "validation at step 2 reward 0.000 on 2 cases"
    assert line_with(text, "weights") == "weights step-2, the best on validation (0.000)"
    assert line_with(text, "7 s") == "time 7 s for 2 steps"


def test_a_training_tells_what_could_not_be_scored_and_where_it_began() -> None:
    summary = summary_of(TRAIN)
    first = summary["validation"][0] | {"rollouts": 4, "unscored": 0.25}
    changed = {"warm_start": {"demonstrations": 12}, "validation": [first], "best_score": None}
    changed |= {"last": {}, "links": {"wandb": "https://x\x1b"}}
    text = shown("train", summary | changed)
    assert line_with(text, "validation") == (
        "validation at step 0 (after the warm start) reward 0.000 on 3 cases; "
        "1 more could not be scored"
    )
    assert line_with(text, "demonstrations") == "warm start 12 demonstrations"
    assert line_with(text, "weights") == "weights step-2"
    assert line_with(text, "wandb") == "wandb https://x\\x1b"
    assert "last step" not in text


GGUF = {
    "name": "gguf q8_0", "path": "gguf/my-agent-9c4e-q8_0.gguf", "size": 144_800_000,
    "server": "llama.cpp (xllamacpp)", "prompts": {"conversations": 44},
    "gap": {"mean": 0.001, "largest": 0.02, "kl": 1e-5},
    "warning": "it may have undone part of the training",
    "validation": {"mean_reward": 0.9, "rollouts": 24, "same_answers": 20},
}  # fmt: skip
SHIPPED = {
    "run": "ship-bell-20261117-010101-aaaa", "training": "bell-1", "verdict": "shipped",
    "sentence": "3 forms of the model written to /x/porter, each verified", "is_fine": True,
    "comparison": "gguf q8_0 on held-out cases: about 70 cases would exclude a loss of 0.05",
    "to": "/x/porter", "uploads": ["would upload README.md"],
    "artefacts": [
        GGUF,
        {"name": "merged", "path": "merged", "size": 4_000_000, "server": "transformers"},
    ],
}  # fmt: skip


def test_a_shipment_begins_with_what_was_written_and_ends_with_how_it_plays() -> None:
    text = shown("ship", SHIPPED)
    assert text.strip().startswith("shipped: 3 forms of the model written to /x/porter, each")
    row = line_with(text, "q8_0.gguf")
    assert row.endswith("144.8 1.0e-03 0.90 20 of 24 llama.cpp (xllamacpp)")
    assert "● gguf q8_0: it may have undone part of the training" in text
    assert text.index("merged") < text.index("about 70 cases would exclude")
    assert "would upload README.md" in text
    assert "cat /x/porter/how_to_run.md" in text
    assert "client = " not in text


def test_a_refused_shipment_shows_the_fault_and_no_commands() -> None:
    refused = {"verdict": "refused", "is_fine": False, "to": "", "problem": "merged: no training"}
    text = shown("ship", SHIPPED | refused)
    assert "✗ merged: no training" in text
    assert "how_to_run" not in text


def test_a_trial_says_what_was_left_out_and_how_to_ship() -> None:
    changed = {"warnings": ["gguf was left out: unknown"], "is_trial": True, "to": ""}
    text = shown("ship", SHIPPED | changed)
    assert "● gguf was left out: unknown" in text
    assert "sparring ship bell-1 --to FOLDER" in text


LONG = "answered_only_after_it_has_looked_up_the_order_in_the_shop"
QUESTION = "How many of the blue lamps that came in last week are still in the cellar of the shop?"


def widest(kind: str) -> dict[str, Any]:
    """Return the sample of a kind, with long names, questions, notes and commands in it."""
    run = {"train": TRAIN, "eval": EVAL, "check": CHECK, "audit": AUDIT, "prove": PROOF}.get(kind)
    summary = summary_of(run or SHIPMENT)
    advice = f"`sparring train support_agent --warm-start {'demonstrations' * 5}.jsonl`"
    match kind:
        case "train":
            more = {f"pass_rate/{LONG}": 0.5}
            return summary | {"last": summary["last"] | more, "plan": f"{QUESTION} {QUESTION}"}
        case "eval":
            return summary | {"measures": {LONG: summary["measures"]["got_in"]}}
        case "check":
            measure, case = summary["measures"][0], summary["cases"][0]
            other = MODEL | {"name": "mistralai/mistral-small-3.2-24b-instruct", "message": "no"}
            return summary | {
                "measures": [measure | {"name": LONG}],
                "cases": [case | {"question": QUESTION, "passed": 128, "rollouts": 256}],
                "models": [MODEL, other | {"is_learner": False, "any_correct": 0.5}],
                "notes": [{"what": "tools", "message": QUESTION, "advice": advice}],
                "estimate": ESTIMATE | {"plan": f"{QUESTION} {QUESTION}"},
            }
        case "audit":
            return summary | {"audit": [FINDING | {"measure": LONG, "advice": advice}]}
        case "prove":
            row = summary["measures"]["got_in"] | {"is_guard": True}
            return summary | {"measures": {LONG: row}, "verdict": "better"}
        case _:
            return summary | {"artefacts": SHIPPED["artefacts"], "to": "/home/somebody/" + "x" * 80}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_summary_fits_80_columns_and_no_cell_is_cut(kind: str) -> None:
    text = shown(kind, widest(kind), width=80)
    for line in text.splitlines():
        is_alone = re.fullmatch(r"\S+|`?(sparring|cat) .*", line.strip())
        assert cell_len(line) <= 80 or is_alone, line
    cut = set(re.findall(r"[^\s\"=]+…", text))
    assert cut <= {"in…"}  # of the question, which is shortened


def test_the_columns_of_a_shipment_keep_their_headings_whole() -> None:
    text = shown("ship", SHIPPED, width=80)
    assert "file MB gap reward same answers played by" in line_with(text, "same answers  ")
    assert "gguf/my-agent-9c4e-q8_0.gguf" in text


def test_the_count_of_a_case_is_kept_whole() -> None:
    text = shown("check", widest("check"), width=80)
    assert "How many of the blue lamps that came in… 128 of 256" in " ".join(text.split())
