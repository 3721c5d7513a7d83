"""Looks at the same cases are counted by candidate, and nobody can make them fewer."""

import shutil
import threading
from pathlib import Path

import pytest

from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line, write_json
from sparring.run_folder.held_out_ledger import record_look, runs_that_looked


@pytest.fixture
def run(tmp_path: Path):
    def make(name: str, kind: str = "prove") -> RunFolder:
        folder = RunFolder(tmp_path / "runs" / name)
        folder.path.mkdir(parents=True, exist_ok=True)
        write_json(folder.spec, {"kind": kind})
        return folder

    return make


def test_each_candidate_counts_once(run):
    assert record_look(run("p1"), "cases", "a") == 1
    assert record_look(run("p2"), "cases", "b") == 2
    assert record_look(run("p3"), "cases", "a") == 2
    assert record_look(run("p4"), "others", "c") == 1


def test_a_later_look_changes_no_earlier_count(run):
    assert record_look(run("p1"), "cases", "a") == 1
    assert record_look(run("p2"), "cases", "b") == 2
    assert record_look(run("p1"), "cases", "a") == 1


def test_neither_a_lost_file_nor_a_removed_run_is_forgotten(run):
    record_look(run("p1"), "cases", "a")
    record_look(run("p2"), "cases", "b")
    shutil.rmtree(run("p1").path)
    assert record_look(run("p3"), "cases", "c") == 3
    run("p3").proofs.unlink()
    assert record_look(run("p4"), "cases", "d") == 3  # p2, p3 and itself


def test_evaluations_of_candidates_count_too(run):
    record_look(run("e1", "eval"), "cases", "a")
    assert record_look(run("p1"), "cases", "b") == 2
    assert runs_that_looked(run("p1"), "cases") == {"e1", "p1"}


def test_rows_of_earlier_versions_are_read(run):
    folder = run("p1")
    append_line(folder.proofs, {"proof": "old", "training": "t", "cases": "cases"})
    assert record_look(folder, "cases", "a") == 2


def test_looks_at_the_same_time_each_get_their_own_number(run):
    folders = [run(f"p{number}") for number in range(8)]
    counts: list[int] = []
    threads = [
        threading.Thread(
            target=lambda each=each: counts.append(record_look(each, "cases", each.id))
        )
        for each in folders
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counts) == list(range(1, 9))
