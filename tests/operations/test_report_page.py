"""A report is one file with the app and its answers: of limited size, with few held-out cases."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.rollouts import Message
from sparring.contracts.summaries import ProveSummary
from sparring.operations.operation import Caller, Role
from sparring.operations.report_page import BUNDLE, comparison_report, run_report
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event
from sparring.run_folder.files import write_json
from sparring.run_folder.rollout_log import RolloutWriter
from tests.summaries import completed
from tests.surfaces.web.viewed import HIDDEN, SECRET, TRAINING, make_secret, make_training, played

FLIPPED, SAME = 14, 4


@pytest.fixture
def owner(tmp_path: Path) -> Caller:
    make_training(tmp_path / "runs")
    return Caller(Role.OWNER, tmp_path / "runs", folder=tmp_path, outer_operation="run.report")


def make_proof(runs: Path) -> RunFolder:
    """A proof on held-out cases, of which some flipped."""
    folder = RunFolder(runs / f"proof-{TRAINING}")
    folder.create({"format": 1, "kind": "prove", "run": TRAINING, "split": "held-out"})
    for player in ("base", "trained"):
        with RolloutWriter(folder.rollouts_of(player)) as writer:
            for number in range(FLIPPED + SAME):
                is_right = player == "trained" and number < FLIPPED
                case = f"flips-{number}" if number < FLIPPED else f"same-{number}"
                for index in range(2):
                    text = f"{player} says {case}.{index}"
                    writer.append(played(case, 0, index, is_right=is_right, answer=text), 0.1)
    summary = {"verdict": "better", "sentence": "It is.", "training": TRAINING, "run": folder.id}
    write_json(folder.summary, completed(ProveSummary, {**summary, "split": "held-out"}))
    return folder


def opened(page: str) -> dict[str, Any]:
    """What the app finds in a report."""
    found = re.search(r'id="answers">([^<]*)</script>', page)
    assert found is not None
    content: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    return content


def test_a_report_asks_for_nothing_and_runs_one_script(owner: Caller) -> None:
    page = run_report(RunFolder(owner.runs / TRAINING), owner)
    assert re.findall(r'(?:src|href)="(?!data:)([^"]*)"', page.partition("<style>")[0]) == []
    assert page.count("</script") == 2, "the answers, and the app, which is not cut short"
    assert "<!--" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src" not in policy[1]
    assert (BUNDLE / "app.css").read_text() in page


def test_a_training_has_its_curves_settings_and_rollouts(owner: Caller) -> None:
    found = opened(run_report(RunFolder(owner.runs / TRAINING), owner))
    assert found["place"] == f"#/run/{TRAINING}/report"
    assert found["left_out"] == []
    answers = found["answers"]
    for name in ("run.show", "run.curves", "run.details", "run.checkpoints"):
        assert answers[f'{name} {{"run":"{TRAINING}"}}']["run"] == TRAINING
    page = answers[f'rollout.list {{"count":100,"run":"{TRAINING}"}}']
    groups = [each for key, each in answers.items() if key.startswith("rollout.group ")]
    shown = {each["record"]["id"] for group in groups for each in group["rollouts"]}
    assert shown == {line["id"] for line in page["rollouts"]}
    assert len(groups) == 4  # each group once


def test_larger_runs_leave_out_the_oldest_conversations_and_say_so(owner: Caller) -> None:
    folder = RunFolder(owner.runs / TRAINING)
    with RolloutWriter(folder.rollouts(1)) as writer:
        for number in range(1_200):
            noise = "".join(f"{number * place % 9973:04d}" for place in range(1, 400))
            talk = (Message("assistant", noise, "clerk"),)
            writer.append(played(f"c{number}", 9, 0, is_right=False, messages=talk), 0.1)
    page = run_report(folder, owner)
    assert 900_000 < len(page.encode()) <= 1_000_000
    found = opened(page)
    rollouts, conversations = found["left_out"]
    assert rollouts == "216 of 1,216 rollouts, the oldest"
    assert re.fullmatch(r"the conversations of \d+ of 1,000 rollouts", conversations)
    lines = [
        line["id"]
        for key, page in found["answers"].items()
        if key.startswith("rollout.list ")
        for line in page["rollouts"]
    ]
    assert len(lines) == 1_000
    assert lines[-1] == "c1199.9.0", "the newest are kept"
    assert f'rollout.group {{"rollout":"c1199.9.0","run":"{TRAINING}"}}' in found["answers"]
    assert f'rollout.group {{"rollout":"{lines[0]}","run":"{TRAINING}"}}' not in found["answers"]


def test_a_proof_shows_twelve_flipped_cases_and_no_other_held_out_case(owner: Caller) -> None:
    folder = make_proof(owner.runs)
    found = opened(run_report(folder, owner))
    answers = found["answers"]
    pairs = answers[f'rollout.pairs {{"run":"{folder.id}"}}']
    assert [pair["change"] for pair in pairs["pairs"]] == ["fixed"] * 12
    assert pairs["counts"]["fixed"] == FLIPPED
    shown = [each for key, each in answers.items() if key.startswith("rollout.show ")]
    assert len(shown) == 24, "one rollout of each side"
    assert all("rows" not in each["record"] for each in shown)
    assert "same-" not in json.dumps(answers)
    assert f'run.curves {{"run":"{TRAINING}"}}' in answers, "the training that it proves"
    assert found["left_out"] == ["rollouts on held-out cases"]


def test_an_evaluation_on_held_out_cases_shows_figures_only(owner: Caller) -> None:
    make_secret(owner.runs)
    found = opened(run_report(RunFolder(owner.runs / SECRET), owner))
    text = json.dumps(found)
    assert HIDDEN not in text
    assert "plum" not in text
    results = found["answers"][f'run.results {{"rows":0,"run":"{SECRET}"}}']
    assert results["summary"]["reward"] == 0.5


def test_text_of_models_and_tools_cannot_become_markup_of_a_report(owner: Caller) -> None:
    folder = RunFolder(owner.runs / TRAINING)
    append_event(folder, "warning", author="worker", message="</script><script>owned()</script>")
    page = run_report(folder, owner)
    assert "owned()" not in page, "answers are compressed"
    assert "owned()" in json.dumps(opened(page))


def test_a_comparison_has_the_curves_of_all_runs_and_the_rollouts_of_flips(owner: Caller) -> None:
    make_training(owner.runs, "shop-2")
    sides = [{"run": run, "log": "rollouts", "player": ""} for run in (TRAINING, "shop-2")]
    flip = {"case": "lamps", "before": 0, "after": 1, "base": "lamps.0.1", "trained": "lamps.0.0"}
    difference = {"run": "shop-2", "flips": [flip], "sides": sides}
    compared = {"runs": [TRAINING, "shop-2"], "settings": [], "differences": [difference]}
    page = comparison_report((TRAINING, "shop-2"), compared, owner)
    found = opened(page)
    assert "<title>2 runs compared</title>" in page
    assert found["place"] == f"#/overlay?runs={TRAINING},shop-2"
    assert found["answers"][f'run.compare {{"runs":["{TRAINING}","shop-2"]}}'] == compared
    for run, rollout in ((TRAINING, "lamps.0.1"), ("shop-2", "lamps.0.0")):
        assert f'run.curves {{"run":"{run}"}}' in found["answers"]
        assert f'rollout.show {{"rollout":"{rollout}","run":"{run}"}}' in found["answers"]


def test_reading_for_a_report_is_not_logged_as_refused(owner: Caller) -> None:
    make_secret(owner.runs)
    run_report(RunFolder(owner.runs / SECRET), replace(owner, outer_operation="run.report"))
    assert not (owner.runs / ".sparring" / "activity.jsonl").exists()
