"""Every file of a run has one path, below the run's folder or beside all runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.errors import NewerFormat, RunNotFound
from sparring.contracts.specs import FORMAT
from sparring.run_folder import RunFolder
from sparring.run_folder.files import write_json
from sparring.run_folder.layout import (
    existing_folder,
    new_run_id,
    short_id,
    trainings_named,
    whole_path,
)

SHARED = {"proofs", "journal"}  # by all runs of the folder
TALK = "talk-20261116-184334-8542"


def paths_of(folder: RunFolder) -> dict[str, Path]:
    names = [name for name, value in vars(RunFolder).items() if isinstance(value, property)]
    found = {name: getattr(folder, name) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, Path)}


def test_no_two_files_of_a_run_have_the_same_path(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "one")
    paths = [*paths_of(folder).values(), folder.log(1), folder.log(2), folder.log(1, "rank-1")]
    paths += [folder.rollouts(0), folder.rollouts(1), folder.rollouts_of("base")]
    paths += [folder.validation_rollouts(), folder.demonstrations(), folder.host(1), folder.host(2)]
    paths += [folder.rank_heartbeat(0), folder.rank_heartbeat(1)]
    assert len(set(paths)) == len(paths)


def test_only_ledgers_are_outside_of_the_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "one")
    outside = {
        name for name, path in paths_of(folder).items() if not path.is_relative_to(folder.path)
    }
    assert outside == SHARED
    other = RunFolder(tmp_path / "runs" / "two")
    assert all(paths_of(folder)[name] == paths_of(other)[name] for name in SHARED)


def test_a_run_is_called_like_its_folder(tmp_path: Path) -> None:
    assert RunFolder(tmp_path / "runs" / "shop-20260101-ab12").id == "shop-20260101-ab12"


@settings(max_examples=25)
@given(st.sets(st.integers(0, 2000), min_size=1, max_size=12))
def test_rollout_logs_are_listed_by_the_number_of_their_rank(
    tmp_path_factory: pytest.TempPathFactory, ranks: set[int]
) -> None:
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    for rank in ranks:
        folder.rollouts(rank).mkdir(parents=True)
    assert folder.rollout_logs() == [folder.rollouts(rank) for rank in sorted(ranks)]


def test_rollout_logs_of_players_come_after_those_of_ranks(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for name in ("trained", "base", "rank-1"):
        folder.rollouts_of(name).mkdir(parents=True)
    (folder.path / "rollouts" / "notes.txt").write_text("no log")
    assert [path.name for path in folder.rollout_logs()] == ["rank-1", "base", "trained"]


def test_a_run_that_has_played_nothing_has_the_log_of_rank_zero(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.rollout_logs() == [folder.rollouts(0)]


def test_attempts_are_counted_by_their_logs(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.attempts() == 0
    for attempt in (1, 2):
        folder.log(attempt).parent.mkdir(parents=True)
    (folder.path / "logs" / "host-1.log").write_text("")
    assert folder.attempts() == 2


def test_a_run_is_created_once_and_keeps_its_first_spec(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.create({"format": FORMAT, "kind": "train"})
    with pytest.raises(FileExistsError):
        folder.create({"format": FORMAT, "kind": "eval"})
    assert folder.read_spec() == {"format": FORMAT, "kind": "train"}


def test_a_spec_without_a_format_is_an_old_one_and_is_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create({"kind": "train"})
    assert folder.read_spec() == {"kind": "train"}


def test_a_newer_format_is_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 99})
    with pytest.raises(NewerFormat, match="upgrade"):
        folder.read_spec()


def test_a_missing_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="nobody"):
        RunFolder(tmp_path / "nobody").read_spec()


@pytest.mark.parametrize(
    ("run", "short"),
    [
        (new_run_id("my_agent", 0, "605c"), "605c"),
        (f"proof-{new_run_id('my_agent', 0, '605c')}", "proof-605c"),
        ("a-name-of-the-users", "a-name-of-the-users"),
    ],
)
def test_the_last_letters_of_an_id_stand_for_it(run, short):
    assert short_id(run) == short


def run(runs: Path, name: str, kind: str) -> Path:
    (runs / name).mkdir()
    write_json(runs / name / "spec.json", {"kind": kind}, durable=False)
    return runs / name


def test_a_training_is_found_and_its_proof_is_not(tmp_path: Path) -> None:
    training = run(tmp_path, TALK, "train")
    run(tmp_path, f"proof-{TALK}", "prove")
    assert whole_path(tmp_path / "8542") == training
    assert whole_path(tmp_path / "184334-8542") == training


def test_other_paths_are_returned_unchanged(tmp_path: Path) -> None:
    training = run(tmp_path, TALK, "train")
    (tmp_path / "8542").mkdir()
    (tmp_path / "model-1f2e").mkdir()  # no run
    others = [tmp_path / "8542", training, tmp_path / "542", tmp_path / "1f2e"]
    for path in (*others, tmp_path / "gone" / "8542", Path("smollm2"), Path(), Path("x" * 5000)):
        assert whole_path(path) == path
    assert existing_folder(training) == training
    assert existing_folder(tmp_path / "542") is existing_folder(Path("x" * 5000)) is None


def test_several_trainings_are_all_named(tmp_path: Path) -> None:
    both = [run(tmp_path, f"{name}-20261116-184334-8542", "train") for name in ("a", "b")]
    assert trainings_named(tmp_path / "8542") == both
    assert whole_path(tmp_path / "8542") == tmp_path / "8542"
