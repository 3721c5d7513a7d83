"""From check to proof, on the tiny model: through the command line, killed and resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import InvalidInput, NotPermitted
from sparring.contracts.kinds import ProveSpec
from sparring.operations.operation import Caller, Role
from sparring.operations.reporting import CompareRuns, compare_runs
from sparring.operations.run_views import LogQuery, ResultsQuery, RunQuery
from sparring.operations.runs import run_logs, run_results, run_status
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.runs.lifecycle import RunState
from tests.jobs.run_here import last_event, run_here
from tests.supervised import ended, ranks_of, wait_for

ROOT = Path(__file__).resolve().parents[3]
HEALTHY = f"{Path(__file__).parents[1]}/made_up.py:Healthy"
COMMAND = [sys.executable, "-c", "from sparring.surfaces.cli.main import run; run()"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
pytestmark = [pytest.mark.timeout(600)]


def sparring(place: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=place, capture_output=True, text=True, check=False, env=ENVIRONMENT,
    )  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proving")


@pytest.fixture(scope="module")
def trained(place: Path, tiny_folder: Path) -> dict[str, Any]:
    """A training and its proof, in the foreground."""
    options = ("--model", tiny_folder, "--max-completion-length", 48, "--json")
    done = sparring(place, "train", HEALTHY, "--max-steps", 2, "--validation-cases", 0, *options)
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def test_a_training_ends_with_its_proof(place: Path, trained: dict[str, Any]) -> None:
    proof = trained["proof"]
    assert proof["training"] == trained["run"]
    assert proof["run"] == f"proof-{trained['run']}"
    assert proof["split"] == "held-out"
    assert proof["reward"]["cases"] == proof["cases"] > 20
    assert proof["proofs_on_these_cases"] == 1


def test_a_proof_that_is_not_better_exits_with_110_and_is_counted(
    place: Path, trained: dict[str, Any]
) -> None:
    done = sparring(place, "prove", trained["run"], "--rollouts", 1, "--json")
    shown = json.loads(done.stdout)
    assert done.returncode == (0 if shown["verdict"] == "better" else 110), done.stderr
    assert shown["proofs_on_these_cases"] == 2
    assert shown["reward"]["mcnemar"] is not None


@pytest.mark.nightly
def test_a_killed_proof_resumes_to_the_same_result(place: Path, trained: dict[str, Any]) -> None:
    one = sparring(place, "prove", trained["run"], "--rollouts", 8, "--json")
    whole = json.loads(one.stdout)
    started = sparring(place, "prove", trained["run"], "--rollouts", 8, "--detach", "--json")
    folder = RunFolder(Path(json.loads(started.stdout)["folder"]))
    log = folder.rollouts_of("trained")
    wait_for(lambda: log.is_dir() and any(log.glob("*.idx")))
    ranks_of(folder)[0].kill()
    assert ended(folder).state is RunState.COMPLETED
    again = read_json(folder.summary)
    for same in ("reward", "measures", "flips", "checkpoint", "cases_digest"):
        assert again[same] == whole[same]


def test_an_operator_sees_figures_of_held_out_cases_and_no_case(
    place: Path, trained: dict[str, Any]
) -> None:
    operator = Caller(Role.OPERATOR, place / "runs", "agent", folder=place)
    proof = f"proof-{trained['run']}"
    results = run_results(ResultsQuery(run=proof), operator)
    assert results.summary["reward"] is not None
    assert "flips" not in results.summary
    with pytest.raises(NotPermitted):
        run_logs(LogQuery(run=proof), operator)
    runs = (trained["run"], proof)
    compared = compare_runs(CompareRuns(runs=runs), operator)
    assert all(each["flips"] == [] for each in compared.differences)
    assert compared.html == ""


def test_runs_are_compared_case_by_case(place: Path, trained: dict[str, Any]) -> None:
    others = [each.name for each in (place / "runs").glob("proof-*")]
    assert len(others) > 1
    done = sparring(place, "run", "compare", trained["run"], *sorted(others)[:1], "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    (difference,) = shown["differences"]
    assert difference["reward"]["cases"] > 20
    assert "Settings that differ" in Path(shown["html"]).read_text()


@pytest.mark.nightly
def test_the_proof_of_a_stopped_training_waits_until_it_is_resumed(
    place: Path, tiny_folder: Path
) -> None:
    options = ("--model", tiny_folder, "--max-completion-length", 24, "--save-steps", 1)
    started = sparring(
        place, "train", HEALTHY, "--max-steps", 30, "--validation-cases", 0, *options,
        "--detach", "--json",
    )  # fmt: skip
    answer = json.loads(started.stdout)
    training, proof = (RunFolder(place / "runs" / answer[name]) for name in ("run", "proof"))
    owner = Caller(Role.OWNER, place / "runs", folder=place)
    assert run_status(RunQuery(run=proof.id), owner).state is RunState.QUEUED
    wait_for(lambda: list(training.checkpoints.glob("step-*/manifest.json")))
    sparring(place, "run", "stop", training.id, "--wait")
    assert ended(training).state is RunState.STOPPED
    assert ended(proof).state is RunState.STOPPED
    done = sparring(place, "run", "resume", training.id, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["proof"]["run"] == proof.id
    time.sleep(0.1)
    assert ended(proof).state is RunState.COMPLETED


@pytest.mark.nightly
def test_a_training_without_a_checkpoint_cannot_be_proved(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "proof-swift-lark")
    folder.create(ProveSpec(target=HEALTHY, run="swift-lark").model_dump(mode="json"))
    with pytest.raises(InvalidInput, match="run swift-lark has no readable checkpoint"):
        run_here(folder)
    assert last_event(folder) == "failed"
