"""A claim is made once, by one process, and the newest epoch has it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.run_folder import RunFolder
from sparring.runs.claims import claim, claimant, newest_epoch
from sparring.runs.processes import identity_of


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create({"format": 1})
    return made


def test_a_claim_names_the_process_that_made_it(folder: RunFolder) -> None:
    assert newest_epoch(folder) == 0
    assert claim(folder, 1)
    assert newest_epoch(folder) == 1
    assert claimant(folder, 1) == identity_of(os.getpid())


def test_of_many_who_claim_an_epoch_one_gets_it(folder: RunFolder) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda _: claim(folder, 1), range(16)))
    assert won.count(True) == 1
    assert [path.name for path in folder.epochs.iterdir()] == ["000001.json"]


@settings(max_examples=20)
@given(st.lists(st.integers(1, 5), max_size=12))
def test_an_epoch_is_claimed_only_if_it_is_newer_than_all_before(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[int]
) -> None:
    folder = RunFolder(tmp_path_factory.mktemp("claims") / "run")
    folder.create({"format": 1})
    newest = 0
    for epoch in epochs:
        assert claim(folder, epoch) == (epoch > newest)
        newest = max(newest, epoch)
        assert newest_epoch(folder) == newest


def test_epochs_are_compared_as_numbers(folder: RunFolder) -> None:
    assert claim(folder, 999_999)
    assert claim(folder, 1_000_000)
    assert newest_epoch(folder) == 1_000_000


def test_files_that_are_no_claims_are_ignored(folder: RunFolder) -> None:
    assert claim(folder, 2)
    for name in ("²", ".abc", "notes.txt", "-7.json"):
        (folder.epochs / name).write_text("")
    assert newest_epoch(folder) == 2


def test_a_claim_that_cannot_be_read_has_no_claimant(folder: RunFolder) -> None:
    assert claimant(folder, 1) is None
    folder.epochs.mkdir()
    for text in ("{", "[]", '{"pid": "x"}'):
        (folder.epochs / "000001.json").write_text(text)
        assert claimant(folder, 1) is None


def test_a_deleted_run_cannot_be_claimed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        claim(RunFolder(tmp_path / "gone"), 1)
    assert not (tmp_path / "gone").exists()
