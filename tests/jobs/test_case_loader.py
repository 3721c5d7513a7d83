"""Held-out cases are not in the training process: not in its spec, its memory or its files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sparring import Suite
from sparring.contracts.cases import Split
from sparring.contracts.errors import CasesBroken, InvalidInput, SuiteError
from sparring.contracts.kinds import CheckSpec
from sparring.contracts.specs import EvalSpec, PolicySpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.jobs.case_loader import CaseLoader
from sparring.operations.operation import Caller, Role
from sparring.operations.run_views import ListRuns, LogQuery, RunQuery, WaitFor
from sparring.operations.runs import list_runs, run_logs, run_status, show_run, wait_for_run
from sparring.run_folder import RunFolder
from sparring.source_files import code_digest
from sparring.suites.training_view import TrainingView, write_training_view
from tests.supervised import completed, ended, ranks_of, start, wait_for

SECRETIVE = f"{Path(__file__).parent}/secretive.py:Secretive"
SECRET, OPEN = "zebrafinch", "meadowlark"


def written(place: Path) -> Path:
    sides = {"training": (30, OPEN), "validation": (20, OPEN), "held-out": (20, SECRET)}
    rows = [
        {"input": f"{word} {side} {n}", "split": side, "place": str(place)}
        for side, (count, word) in sides.items()
        for n in range(count)
    ]
    file = place / "cases.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def in_memory(pid: int, word: bytes) -> int:
    """How often a process has a word anywhere that it can write to."""
    found = 0
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            edges = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line)
            if edges is None or not edges[3].startswith("rw"):
                continue
            first, last = int(edges[1], 16), int(edges[2], 16)
            try:
                memory.seek(first)
                found += memory.read(last - first).count(word)
            except OSError:
                continue
    return found


@pytest.mark.timeout(300)
def test_no_held_out_case_is_in_the_training_process(tmp_path: Path, tiny_folder: Path) -> None:
    cases = written(tmp_path)
    spec = TrainSpec(
        target=SECRETIVE,
        code_digest=code_digest(SECRETIVE),
        environment="secretive",
        config={"cases": str(cases)},
        policy=PolicySpec(model=str(tiny_folder)),
        settings=TrainSettings(max_steps=1, max_completion_length=8, cases_per_batch=1),
    )
    folder = RunFolder(tmp_path / "runs" / "secret")
    folder.create(spec.model_dump(mode="json"))
    start(folder)
    wait_for((tmp_path / "playing").exists)
    (rank,) = ranks_of(folder)
    seen = {word: in_memory(rank.pid, word.encode()) for word in (OPEN, SECRET)}
    (tmp_path / "looked").touch()
    completed(folder)
    assert seen[OPEN] > 0, "looking in memory finds nothing at all"
    assert seen[SECRET] == 0
    log = folder.log(1, "cases")
    assert SECRET in log.read_text()  # its suite() prints all that it reads
    for path in folder.path.rglob("*"):
        if path.is_file() and path != log:
            assert SECRET.encode() not in path.read_bytes(), path
    operator = Caller(Role.OPERATOR, folder.path.parent, name="robot")
    assert "cases" not in run_logs(LogQuery(run=folder.id), operator).there_are
    with pytest.raises(InvalidInput, match="no log 'cases'"):
        run_logs(LogQuery(run=folder.id, process="cases"), operator)
    assert SECRET in run_logs(LogQuery(run=folder.id, process="cases"), owner_of(folder)).text


def owner_of(folder: RunFolder) -> Caller:
    return Caller(Role.OWNER, folder.path.parent)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind",
    ["eval", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("train", "check"))],
)
def test_an_error_that_quotes_a_record_is_for_the_owner(kind, tmp_path, tiny_folder) -> None:
    row = {"input": {"question": SECRET}, "split": "held-out", "place": str(tmp_path)}
    (tmp_path / "cases.jsonl").write_text(json.dumps(row) + "\n")
    kinds = {"train": TrainSpec, "eval": EvalSpec, "check": CheckSpec}
    spec = kinds[kind](
        target=SECRETIVE,
        code_digest=code_digest(SECRETIVE),
        environment="secretive",
        config={"cases": str(tmp_path / "cases.jsonl")},
        policy=PolicySpec(model=str(tiny_folder)),
    )
    folder = RunFolder(tmp_path / "runs" / kind)
    folder.create(spec.model_dump(mode="json"))
    ended(start(folder))
    shown = show_run(RunQuery(run=kind), owner_of(folder))
    assert SECRET in shown.message
    operator = Caller(Role.OPERATOR, folder.path.parent, name="robot")
    view = show_run(RunQuery(run=kind), operator)
    assert view.message.startswith("SuiteError at record 0 while reading the cases")
    pages = [view, run_status(RunQuery(run=kind), operator), list_runs(ListRuns(), operator)]
    pages += [run_logs(LogQuery(run=kind), operator)]
    pages += [run_logs(LogQuery(run=kind, process="supervisor"), operator)]
    pages += [wait_for_run(WaitFor(run=kind, since=0), operator)]
    for page in pages:
        assert SECRET not in page.model_dump_json()


def view_of(suite: Suite, place: Path) -> TrainingView:
    with (place / "cases").open("wb") as file:
        write_training_view(suite, file)
    return TrainingView((place / "cases").open("rb"))


def records(count: int = 60) -> list[dict[str, Any]]:
    return [{"input": f"question {n}", "expected": (n, "a"), "topic": n % 3} for n in range(count)]


def test_a_training_view_reads_like_its_suite(tmp_path: Path) -> None:
    suite = Suite.from_records(records(), minimum_cases=1)
    copy = view_of(suite, tmp_path)
    assert copy.digest == suite.digest
    assert len(copy) == len(suite)
    for split in Split:
        assert copy.size(split) == suite.size(split)
        assert copy.question_digests(split) == suite.question_digests(split)
    for split in (Split.TRAINING, Split.VALIDATION):
        assert list(copy.cases(split)) == list(suite.cases(split))
        case_id = copy.case_ids(split)[0]
        assert copy.finder(split)(case_id) == suite.finder(split)(case_id)


def test_a_training_view_contains_no_held_out_case(tmp_path: Path) -> None:
    suite = Suite.from_records(records(), minimum_cases=1)
    assert suite.size(Split.HELD_OUT) > 0
    with pytest.raises(SuiteError, match="prove"):
        list(view_of(suite, tmp_path).cases(Split.HELD_OUT))
    held_out = next(suite.cases(Split.HELD_OUT))
    assert held_out.input.encode() not in (tmp_path / "cases").read_bytes()


def test_a_record_that_cannot_be_serialised_is_refused_with_its_number(tmp_path: Path) -> None:
    rows = [{"input": f"q{n}", "split": "training", "judge": lambda: 1} for n in range(3)]
    with pytest.raises(SuiteError, match="cannot be passed"):
        view_of(Suite.from_records(rows, minimum_cases=1), tmp_path)


def test_an_error_of_the_case_process_is_raised_in_the_worker(tmp_path: Path) -> None:
    apart = CaseLoader(SECRETIVE, {"cases": str(tmp_path / "none.jsonl")}, is_unsandboxed=False)
    with pytest.raises(CasesBroken, match="No such file"):
        apart.suite()
