"""Runs are compared with the first one, on cases that both have played and by what both have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.cases import Case
from sparring.contracts.errors import InvalidInput
from sparring.contracts.rollouts import Rollout
from sparring.jobs.comparison import Side, compare, main, panels_to_compare, read_side
from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line, write_json
from sparring.run_folder.held_out_ledger import record_look
from sparring.run_folder.rollout_log import RolloutWriter
from tests.proofs.made import answered

CASES = [f"case {n}" for n in range(40)]


def passing(share: float) -> list[Rollout]:
    return [answered(case, float(n < share * len(CASES))) for n, case in enumerate(CASES)]


def evaluated(
    runs: Path, name: str, played: Sequence[Rollout], split: str = "validation", **spec: Any
) -> RunFolder:
    folder = RunFolder(runs / name)
    folder.create({"format": 1, "kind": "eval", "split": split, "target": "x.py:X", **spec})
    with RolloutWriter(folder.rollouts()) as writer:
        for each in played:
            writer.append(each, 0.1)
    return folder


def difference(*folders: RunFolder) -> dict[str, Any]:
    compared = compare([read_side(folder) for folder in folders])
    found: dict[str, Any] = compared["differences"][0]
    return found


def test_a_run_that_passes_more_of_the_same_cases_is_better(tmp_path: Path) -> None:
    found = difference(
        evaluated(tmp_path, "one", passing(0.1)), evaluated(tmp_path, "two", passing(0.9))
    )
    assert (found["run"], found["standing"]) == ("two", "better")
    assert found["basis"] == "over the validation cases that both have played"
    assert found["reward"]["cases"] == len(CASES)
    assert len(found["flips"]) == 32


def test_settings_that_differ_are_listed_and_sources_are_not(tmp_path: Path) -> None:
    one = evaluated(tmp_path, "one", [], play={"seed": 1}, sources={"play": "command"}, cases=4)
    two = evaluated(tmp_path, "two", [], play={"seed": 2}, code_digest="abc", cases=4)
    assert compare([read_side(one), read_side(two)])["settings"] == [("play.seed", [1, 2])]


def test_pass_rates_are_compared_measure_by_measure() -> None:
    one = [{"step": 1, "reward": 0.5, "pass_rate/a": 0.1, "pass_rate/b": 0.9}]
    two = [{"step": 1, "reward": 0.6, "pass_rate/b": 0.8}]
    sides = [
        Side(RunFolder(Path(name)), {}, history, {}) for name, history in (("1", one), ("2", two))
    ]
    drawn = {
        title: [(line.label, *line.values) for line in lines]
        for title, lines in panels_to_compare(sides).items()
        if any(line.values for line in lines)
    }
    assert drawn == {
        "reward": [("1", 0.5), ("2", 0.6)],
        "pass rate of a": [("1", 0.1)],
        "pass rate of b": [("1", 0.9), ("2", 0.8)],
    }


def test_equal_ids_with_different_inputs_are_different_cases(tmp_path: Path) -> None:
    other = [
        Rollout(each.key, Case(each.case.id, "another question"), each.ending, "", reward=1.0)
        for each in passing(0.5)
    ]
    found = difference(evaluated(tmp_path, "one", passing(0.5)), evaluated(tmp_path, "two", other))
    assert found["reward"] is None
    assert found["basis"] == ""
    assert found["sentence"].startswith("the two runs have no case in common (one played ")


def test_runs_on_different_splits_are_told_to_be_proved(tmp_path: Path) -> None:
    one = evaluated(tmp_path, "one", passing(0.5))
    two = evaluated(tmp_path, "two", passing(0.5), "training")
    sentence = difference(one, two)["sentence"]
    assert "(one played validation and two played training); prove both" in sentence


def test_held_out_rollouts_are_not_looked_at_before_the_run_has_ended(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, "one", passing(0.5), "held-out")
    assert read_side(folder).played == {}
    write_json(folder.summary, {})
    assert len(read_side(folder).played["held-out"]) == len(CASES)


def test_a_gain_on_held_out_cases_is_corrected_for_every_candidate_that_looked(
    tmp_path: Path,
) -> None:
    one = evaluated(tmp_path, "one", passing(0.25), "held-out")
    two = evaluated(tmp_path, "two", passing(0.475), "held-out")
    for folder in (one, two):
        write_json(folder.summary, {})
    assert difference(one, two)["standing"] == "better"
    for number in range(200):
        append_line(two.proofs, {"run": f"r{number}", "cases": "d", "candidate": f"m{number}"})
    record_look(two, "d", "mine")
    assert difference(one, two)["standing"] == "not shown"


def test_the_report_shows_curves_and_flips_in_html_and_markdown(tmp_path: Path) -> None:
    folders = [
        evaluated(tmp_path, "one", passing(0.1)), evaluated(tmp_path, "two", passing(0.9))
    ]  # fmt: skip
    trained = RunFolder(tmp_path / "three")
    trained.create({"format": 1, "kind": "train", "target": "x.py:X"})
    append_line(trained.metrics, {"attempt": 1, "step": 1, "reward": 0.5})
    report = tmp_path / "out" / "report.html"
    report.parent.mkdir()
    compared = main(str(report), [str(each.path) for each in (*folders, trained)])
    assert compared["runs"] == ["one", "two", "three"]
    text = report.with_suffix(".md").read_text()
    assert "3 runs compared" in text
    assert "Cases that flipped: 32, of which 12 are shown" in text
    assert "reward" in text
    assert "two compared with one" in report.read_text()


def test_one_run_is_not_a_comparison(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, "one", passing(0.5))
    with pytest.raises(InvalidInput, match="two runs or more"):
        main("", [str(folder.path)])


def test_a_shipment_that_still_plays_held_out_cases_is_not_looked_at(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "shipment")
    folder.create({"format": 1, "kind": "ship", "target": "x.py:X"})
    assert read_side(folder).played == {}
