from __future__ import annotations

import pytest

from sparring.contracts.errors import AmbiguousRun, RunNotFound
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_state
from sparring.run_folder.layout import short_id
from sparring.runs.finding import find_run
from sparring.runs.lifecycle import RunState


@pytest.fixture
def runs(tmp_path):
    place = tmp_path / "runs"
    place.mkdir()
    return place


def make(runs, name, environment="bell", kind="train"):
    folder = RunFolder(runs / name)
    folder.create({"format": 1, "kind": kind, "environment": environment})
    append_state(folder, RunState.QUEUED, author="test")


def test_a_run_is_found_by_a_part_of_its_name(runs):
    for name in ("library-1", "library-2", "other-1"):
        make(runs, name)
    assert find_run(runs, "other").id == "other-1"
    for name in ("my-lab-20260101-000000-aa01", "my-lab-20260102-000000-bb02"):
        make(runs, name)
    assert find_run(runs, "my_lab").id == "my-lab-20260102-000000-bb02"  # the newest of that name
    assert find_run(runs, "aa01").id == "my-lab-20260101-000000-aa01"
    with pytest.raises(RunNotFound, match="matches 2 runs"):
        find_run(runs, "library")
    with pytest.raises(RunNotFound, match="the newest runs are "):
        find_run(runs, "nobody")


def test_the_name_of_an_environment_means_its_newest_run_of_any_kind(runs):
    make(runs, "my-lab-20260101-000000-aa01", "my_lab", "eval")
    make(runs, "check-my-lab-20260102-000000-bb02", "my_lab", "check")
    assert find_run(runs, "my_lab").id == "check-my-lab-20260102-000000-bb02"


def test_the_name_of_an_environment_finds_its_newest_training_where_one_is_needed(runs):
    make(runs, "my-lab-20260101-000000-aa01", "my_lab", "train")
    make(runs, "proof-my-lab-20260101-000000-aa01", "my_lab", "prove")
    make(runs, "my-lab-20260103-000000-cc03", "my_lab", "eval")
    assert find_run(runs, "my_lab", kind="train").id == "my-lab-20260101-000000-aa01"
    assert find_run(runs, "my_lab").id == "my-lab-20260103-000000-cc03"


def test_a_name_with_hyphens_also_means_the_newest_training(runs):
    make(runs, "my-lab-20260101-000000-aa01", "my_lab", "train")
    make(runs, "my-lab-20260103-000000-cc03", "my_lab", "eval")
    assert find_run(runs, "my-lab", kind="train").id == "my-lab-20260101-000000-aa01"


@pytest.mark.parametrize("name", ["customer-support-triage-agent", "a" * 40, "b" * 64])
def test_an_id_that_is_gone_is_not_another_run_however_long_it_is(runs, name):
    make(runs, f"{name[:40]}-20261115-093012-aa01", name)
    with pytest.raises(RunNotFound, match="there is no run"):
        find_run(runs, f"{name[:40]}-20261115-093011-bb02")
    assert find_run(runs, name).id.endswith("aa01")
    assert find_run(runs, f"{name[:40]}-20261115-0930").id.endswith("aa01")


def test_where_there_is_no_training_the_newest_run_says_what_it_is(runs):
    make(runs, "check-my-lab-20260102-000000-bb02", "my_lab", "check")
    assert find_run(runs, "my_lab", kind="train").id == "check-my-lab-20260102-000000-bb02"


@pytest.mark.parametrize("name", ["../secret", "/etc", "*", "..", "runs/../../x", "", "%", "_"])
def test_no_name_leads_out_of_the_runs_folder(runs, name):
    RunFolder(runs.parent / "secret").create({"format": 1})
    with pytest.raises(RunNotFound):
        find_run(runs, name)


def test_the_short_name_of_a_proof_finds_it_whoever_started_it(runs):
    make(runs, "my-lab-20260101-000000-aa01", "my_lab", "train")
    make(runs, "proof-my-lab-20260101-000000-aa01", "my_lab", "prove")  # follows the training
    make(runs, "proof-my-lab-20260102-000000-bb02", "my_lab", "prove")  # was started by itself
    for token in ("20260101-000000-aa01", "20260102-000000-bb02"):
        proof = f"proof-my-lab-{token}"
        assert find_run(runs, short_id(proof)).id == proof


def test_a_proof_is_that_of_the_environment_that_was_named(runs):
    for name, day in (("calc", "01"), ("calc_hard", "02")):
        run = f"{name.replace('_', '-')}-202601{day}-000000-aa{day}"
        make(runs, run, name, "train")
        make(runs, f"proof-{run}", name, "prove")
    assert find_run(runs, "proof-calc").id == "proof-calc-20260101-000000-aa01"
    assert find_run(runs, "proof-calc_hard").id == "proof-calc-hard-20260102-000000-aa02"


def test_an_environment_without_a_proof_gets_none_of_a_longer_name(runs):
    make(runs, "calc-20260101-000000-aa01", "calc", "train")
    make(runs, "calc-hard-20260102-000000-aa02", "calc_hard", "train")
    make(runs, "proof-calc-hard-20260102-000000-aa02", "calc_hard", "prove")
    with pytest.raises(RunNotFound):
        find_run(runs, "proof-calc")


def test_an_old_proof_counts_among_many_newer_runs(runs):
    for day in range(1, 10):
        run = f"calc-hard-2026010{day}-000000-aa0{day}"
        make(runs, run, "calc_hard", "train")
        if day in (1, 9):
            make(runs, f"proof-{run}", "calc_hard", "prove")
    with pytest.raises(AmbiguousRun, match="matches 2 runs"):
        find_run(runs, "proof-calc-hard-2026")


def test_a_proof_whose_short_name_fits_another_as_well_is_not_guessed(runs):
    for day in ("01", "02"):
        make(runs, f"my-lab-202601{day}-000000-aa01", "my_lab", "train")
        make(runs, f"proof-my-lab-202601{day}-000000-aa01", "my_lab", "prove")
    with pytest.raises(AmbiguousRun, match="'proof-aa01' matches 2 runs"):
        find_run(runs, "proof-aa01")
