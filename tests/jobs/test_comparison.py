"""Runs are compared with the first one, on cases that both have played and by what both have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.cases import Case
from sparring.contracts.errors import InvalidInput
from sparring.contracts.rollouts import Rollout, RolloutKey
from sparring.contracts.summaries import ProveSummary
from sparring.jobs.comparison import compare, main, played_cases, read_side
from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line, write_json
from sparring.run_folder.held_out_ledger import record_look
from sparring.run_folder.rollout_log import RolloutWriter
from tests.proofs.made import answered
from tests.summaries import completed

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


def test_equal_ids_with_different_inputs_are_different_cases(tmp_path: Path) -> None:
    other = [
        Rollout(each.key, Case(each.case.id, "another question"), each.ending, "", reward=1.0)
        for each in passing(0.5)
    ]
    found = difference(evaluated(tmp_path, "one", passing(0.5)), evaluated(tmp_path, "two", other))
    assert found["reward"] is None
    assert found["basis"] == ""
    assert found["sentence"].startswith("the two runs have no case in common (one played ")


def test_comparing_runs_on_different_splits_suggests_proofs(tmp_path: Path) -> None:
    one = evaluated(tmp_path, "one", passing(0.5))
    two = evaluated(tmp_path, "two", passing(0.5), "training")
    sentence = difference(one, two)["sentence"]
    assert "(one played validation and two played training); prove both" in sentence


def test_held_out_rollouts_are_not_looked_at_before_the_run_has_ended(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, "one", passing(0.5), "held-out")
    assert read_side(folder).played == {}
    write_json(folder.summary, {})
    assert len(read_side(folder).played["held-out"].rollouts) == len(CASES)


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


def test_a_difference_says_where_the_rollouts_of_both_sides_are(tmp_path: Path) -> None:
    trained = training(tmp_path)
    proof = RunFolder(tmp_path / "proof-swift-lark")
    log(proof.rollouts_of("trained"), *passing(0.9))
    write_json(proof.summary, completed(ProveSummary, {"split": "held-out"}))
    one = evaluated(tmp_path, "one", passing(0.1), "held-out")
    write_json(one.summary, {})
    found = main([str(one.path), str(trained.path)])["differences"][0]
    assert found["sides"] == [
        {"run": "one", "log": "rollouts", "player": ""},
        {"run": "proof-swift-lark", "log": "rollouts", "player": "trained"},
    ]


def test_a_comparison_of_one_run_is_refused(tmp_path: Path) -> None:
    folder = evaluated(tmp_path, "one", passing(0.5))
    with pytest.raises(InvalidInput, match="two runs or more"):
        main([str(folder.path)])


def test_a_shipment_that_still_plays_held_out_cases_is_not_looked_at(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "shipment")
    folder.create({"format": 1, "kind": "ship", "target": "x.py:X"})
    assert read_side(folder).played == {}


def training(runs: Path) -> RunFolder:
    folder = RunFolder(runs / "swift-lark")
    folder.create({"format": 1, "kind": "train", "environment": "shop", "target": "shop.py:Shop"})
    return folder


def at_step(step: int, case: str) -> Rollout:
    made = answered(case, 1.0)
    return Rollout(RolloutKey(0, step, case, 0), made.case, made.ending, "", reward=1.0)


def log(place: Path, *rollouts: Rollout) -> None:
    with RolloutWriter(place) as writer:
        for each in rollouts:
            writer.append(each, 0.1)


def cases(folder: RunFolder) -> dict[str, list[str]]:
    found = played_cases(folder, folder.read_spec())
    return {split: [each.case.id for each in played.rollouts] for split, played in found.items()}


def test_only_the_last_validation_of_all_ranks_is_compared(tmp_path: Path) -> None:
    folder = training(tmp_path)
    assert cases(folder) == {"validation": []}
    log(folder.validation_rollouts(0), at_step(0, "a"), at_step(8, "a"))
    log(folder.validation_rollouts(1), at_step(0, "b"), at_step(8, "b"))
    validated = played_cases(folder, folder.read_spec())["validation"]
    assert [each.id for each in validated.rollouts] == ["a.8.0", "b.8.0"]
    assert validated.place() == {"run": "swift-lark", "log": "validation", "player": ""}


def test_a_completed_proof_comes_before_the_validation(tmp_path: Path) -> None:
    folder, proof = training(tmp_path), RunFolder(tmp_path / "proof-swift-lark")
    log(proof.rollouts_of("base"), answered("base", 0.0))
    log(proof.rollouts_of("trained"), answered("trained", 1.0))
    assert list(cases(folder)) == ["validation"]  # it has not completed
    write_json(proof.summary, completed(ProveSummary, {"split": "held-out"}))
    assert cases(folder) == {"held-out": ["trained"], "validation": []}


@pytest.mark.parametrize(
    ("kind", "player", "split"),
    [
        ("check", "learner", "training"),
        ("prove", "trained", "held-out"),
        ("ship", "held-out", "held-out"),
    ],
)
def test_a_run_is_compared_by_one_of_its_players(
    tmp_path: Path, kind: str, player: str, split: str
) -> None:
    folder = RunFolder(tmp_path / kind)
    folder.create({"format": 1, "kind": kind})
    log(folder.rollouts_of(player), answered("own", 1.0))
    log(folder.rollouts_of("another"), answered("other", 1.0))
    write_json(folder.summary, {})
    assert cases(folder) == {split: ["own"]}


def test_the_rollouts_of_every_rank_are_compared_under_the_split_of_the_spec(
    tmp_path: Path,
) -> None:
    folder = evaluated(tmp_path, "one", [])
    for rank in (0, 1):
        log(folder.rollouts(rank), answered(f"of rank {rank}", 1.0))
    assert cases(folder) == {"validation": ["of rank 0", "of rank 1"]}


def test_null_players_are_not_compared_with_models(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "audit")
    folder.create({"format": 1, "kind": "audit"})
    log(folder.rollouts_of("null-players"), answered("a", 1.0))
    assert cases(folder) == {}
