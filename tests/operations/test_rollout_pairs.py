"""Rollouts are paired by case: fixed, broken, both wrong or both right."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput
from sparring.operations.rollout_pairs import PairRollouts, pair_rollouts
from sparring.run_folder.rollout_log import RolloutWriter
from tests.surfaces.web.viewed import TRAINING, copy_samples, make_training, owner_in, played

OUTCOMES = {"a": (False, True), "b": (True, False), "c": (False, False), "d": (True, True)}


def make_proof(runs: Path) -> str:
    folder = make_training(runs, "proof-shop-1")
    for place, player in enumerate(("base", "trained")):
        with RolloutWriter(folder.rollouts_of(player)) as writer:
            for case, outcome in OUTCOMES.items():
                writer.append(played(case, 0, 0, is_right=outcome[place]), 1.0)
    return folder.id


def test_every_case_is_classified_by_its_change(tmp_path: Path) -> None:
    name = make_proof(tmp_path / "runs")
    found = pair_rollouts(PairRollouts(run=name), owner_in(tmp_path))
    assert {each.case: each.change for each in found.pairs} == {
        "a": "fixed",
        "b": "broken",
        "c": "both wrong",
        "d": "both right",
    }
    assert {name: count for name, count in found.counts.items() if count} == {
        "fixed": 1, "broken": 1, "both wrong": 1, "both right": 1,
    }  # fmt: skip
    assert [each.case for each in found.pairs[:2]] == ["b", "a"]
    fixed = next(each for each in found.pairs if each.case == "a")
    assert fixed.before_example == "base/a.0.0"
    assert fixed.reason == "numeric: no number in the answer"


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ((False, False), (True, False), "improved"),
        ((True, False), (True, True), "fixed"),
        ((True, False), (False, False), "worsened"),
        ((True, True), (True, False), "broken"),
        ((True, False), (False, True), "both wrong"),
    ],
)
def test_of_several_rollouts_the_mean_counts(
    tmp_path: Path, before: tuple[bool, bool], after: tuple[bool, bool], change: str
) -> None:
    folder = make_training(tmp_path / "runs", "proof-shop-1")
    for player, outcomes in (("base", before), ("trained", after)):
        with RolloutWriter(folder.rollouts_of(player)) as writer:
            for index, is_right in enumerate(outcomes):
                writer.append(played("a", 0, index, is_right=is_right), 1.0)
    (pair,) = pair_rollouts(PairRollouts(run=folder.id), owner_in(tmp_path)).pairs
    assert (pair.change, pair.before_rollouts, pair.after_rollouts) == (change, 2, 2)


def test_rewards_outside_of_zero_and_one_have_examples_too(tmp_path: Path) -> None:
    folder = make_training(tmp_path / "runs", "proof-shop-1")
    for player, reward in (("base", 5.0), ("trained", -7.0)):
        with RolloutWriter(folder.rollouts_of(player)) as writer:
            writer.append(played("a", 0, 0, is_right=True, reward=reward), 1.0)
    (pair,) = pair_rollouts(PairRollouts(run=folder.id), owner_in(tmp_path)).pairs
    assert (pair.before_example, pair.after_example) == ("base/a.0.0", "trained/a.0.0")


def test_two_runs_are_paired_and_a_single_side_is_refused(tmp_path: Path) -> None:
    copy_samples(tmp_path / "runs")
    make_training(tmp_path / "runs")
    make_training(tmp_path / "runs", "shop-2", steps=1)
    owner = owner_in(tmp_path)
    found = pair_rollouts(PairRollouts(run=TRAINING, other="shop-2"), owner)
    assert [(each.case, each.before_rollouts, each.after_rollouts) for each in found.pairs] == [
        ("lamps", 16, 4)
    ]
    with pytest.raises(InvalidInput, match="name another run in `other`"):
        pair_rollouts(PairRollouts(run=TRAINING), owner)
    sample = PairRollouts(run="proof-bell-20261116-184334-e4fc")
    assert pair_rollouts(sample, owner).counts["both wrong"] == 24
