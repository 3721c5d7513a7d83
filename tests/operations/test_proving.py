"""What checks, audits and proofs are started from, and by whom."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from typing import Any

import pytest

from sparring.contracts.errors import IllegalMove, InvalidInput, NotPermitted, OverBudget
from sparring.contracts.kinds import ProveSpec
from sparring.operations.checking import StartCheck, start_check
from sparring.operations.operation import Caller, Role
from sparring.operations.proving import StartProof, start_proof
from sparring.operations.run_control import ResumeRun, resume_run, stop_run
from sparring.operations.run_views import RunQuery
from sparring.operations.runs import show_run
from sparring.operations.training import StartTrain, start_train
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import MANIFEST
from sparring.run_folder.events import append_state
from sparring.run_folder.files import write_json
from sparring.runs import queue, status
from sparring.runs.finding import find_run
from sparring.runs.history import read_history
from sparring.runs.launchers import SupervisorPresence
from sparring.runs.lifecycle import RunState

SHOP = """
from sparring import Environment
class Shop(Environment):
    settings = {"max_completion_length": 77, "max_steps": 5, "num_generations": 8}
"""


@pytest.fixture
def owner(tmp_path, monkeypatch) -> Caller:
    """Of a project whose runs are started in name only."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.setattr(queue, "launch", lambda *_: {})
    for module in (queue, status):
        monkeypatch.setattr(module, "find_supervisor", lambda *_: SupervisorPresence.YES)
    return Caller(Role.OWNER, tmp_path / "runs", folder=tmp_path)


@pytest.fixture
def operator(owner) -> Caller:
    return Caller(Role.OPERATOR, owner.runs, "agent", folder=owner.folder)


def spec_of(caller: Caller, run: str) -> dict[str, Any]:
    return RunFolder(caller.runs / run).read_spec()


def trained(owner: Caller, *states: RunState, **given: Any) -> tuple[str, str]:
    started = start_train(StartTrain(environment="shop", **given), owner)
    for state in states:
        append_state(RunFolder(owner.runs / started.run), state, author="supervisor", epoch=1)
    if states:
        place = RunFolder(owner.runs / started.run).checkpoints / "step-5"
        write_json(place / MANIFEST, {"format": 1, "step": 5, "score": 0.5})
    return started.run, started.proof


DONE = (RunState.STARTING, RunState.RUNNING, RunState.COMPLETED)


def test_a_training_brings_its_proof_which_waits_for_it(owner):
    run, proof = trained(owner)
    spec = ProveSpec.model_validate(spec_of(owner, proof))
    assert (spec.run, spec.after, spec.split) == (run, run, "held-out")
    assert spec.play.max_completion_length == 77
    assert show_run(RunQuery(run=proof), owner).message == f"waiting for {run}, which is queued"
    assert trained(owner, prove=False)[1] == ""


def test_a_training_is_meant_where_its_proof_would_fit_as_well(owner):
    run, _ = trained(owner)
    assert find_run(owner.runs, run[-4:]).id == run
    assert find_run(owner.runs, "shop").id == run
    assert find_run(owner.runs, "proof-shop").id == f"proof-{run}"


def test_a_proof_is_of_a_training_that_has_ended(owner):
    run, proof = trained(owner)
    with pytest.raises(IllegalMove, match="wait for it"):
        start_proof(StartProof(run=run), owner)
    with pytest.raises(InvalidInput, match="not a training run"):
        start_proof(StartProof(run=proof), owner)
    done, _ = trained(owner, *DONE, prove=False)
    assert spec_of(owner, start_proof(StartProof(run=done), owner).run)["rollouts"] == 4


def test_a_second_proof_of_a_checkpoint_is_refused_until_the_first_has_ended(owner):
    run, proof = trained(owner, *DONE)
    assert show_run(RunQuery(run=run), owner).proof == proof
    assert show_run(RunQuery(run=run), owner).proof_standing == "queued"
    for checkpoint in ("", "step-5"):
        with pytest.raises(IllegalMove, match=f"{proof} already proves step-5 .* it is queued"):
            start_proof(StartProof(run=run, checkpoint=checkpoint), owner)
    write_json(RunFolder(owner.runs / run).checkpoints / "step-3" / MANIFEST, {"step": 3})
    start_proof(StartProof(run=run, checkpoint="step-3"), owner)
    start_proof(StartProof(run=run, split="validation"), owner)
    append_state(RunFolder(owner.runs / proof), RunState.STOPPED, author="owner")
    start_proof(StartProof(run=run), owner)


def test_the_proof_of_a_training_that_failed_does_not_stand_in_the_way_of_another(owner):
    run, _ = trained(owner, RunState.STARTING, RunState.FAILED)
    assert start_proof(StartProof(run=run), owner).is_new


def test_the_standing_of_a_proof_has_its_time_left(owner):
    run, proof = trained(owner, *DONE)
    folder = RunFolder(owner.runs / proof)
    for state in (RunState.STARTING, RunState.RUNNING):
        append_state(folder, state, author="supervisor", epoch=1)
    beat = {"rollouts": 8, "total": 32, "passed": 4, "sampled_tokens": 9, "seconds_left": 720.0}
    write_json(folder.heartbeat, beat | {"time": time.time()})
    assert show_run(RunQuery(run=run), owner).proof_standing == "running, 12 min left"


def test_without_the_checkpoint_there_is_nothing_to_prove(owner):
    run, _ = trained(owner, *DONE)
    with pytest.raises(InvalidInput, match="has no 'step-3'; it has step-5"):
        start_proof(StartProof(run=run, checkpoint="step-3"), owner)
    early, _ = trained(owner, RunState.STARTING, RunState.FAILED)
    shutil.rmtree(RunFolder(owner.runs / early).checkpoints)
    with pytest.raises(InvalidInput, match="nothing to prove"):
        start_proof(StartProof(run=early), owner)


def test_training_cases_prove_nothing(owner):
    run, _ = trained(owner, *DONE)
    with pytest.raises(InvalidInput, match="training cases prove nothing"):
        start_proof(StartProof(run=run, split="training"), owner)


def test_a_proof_plays_no_more_than_the_budget_allows(owner):
    (owner.folder / "sparring.toml").write_text("[budget]\nrollouts = 400\n")
    run, proof = trained(owner, *DONE, settings={"validation_cases": 0, "max_steps": 2})
    assert spec_of(owner, proof)["cases"] == 50
    with pytest.raises(OverBudget, match="lower cases or rollouts"):
        start_proof(StartProof(run=run, cases=51), owner)
    with pytest.raises(OverBudget):
        start_check(StartCheck(environment="shop", cases=100, rollouts=100), owner)


def test_a_second_suite_is_the_owners_to_name(owner, operator):
    run, _ = trained(owner, *DONE, prove=False)
    with pytest.raises(NotPermitted):
        start_proof(StartProof(run=run, also="shop"), operator)
    proof = start_proof(StartProof(run=run, also="shop"), owner).run
    assert spec_of(owner, proof)["also"].endswith("shop.py:Shop")


def test_a_training_that_is_resumed_brings_its_proof_with_the_accepted_changes(owner):
    run, proof = trained(owner, RunState.STARTING, RunState.STOPPING, RunState.STOPPED)
    folder = RunFolder(owner.runs / proof)
    assert read_history(folder).history.state is RunState.QUEUED
    assert resume_run(ResumeRun(run=run, accept_changes=True), owner).proof == proof
    history = read_history(folder).history
    assert (history.state, history.accept_changes) == (RunState.QUEUED, True)


def test_a_proof_that_the_owner_stopped_stays_stopped_if_an_operator_resumes(owner, operator):
    (owner.folder / "sparring.toml").write_text("[budget]\nhours = 5\n")
    run, proof = trained(operator, RunState.STARTING, RunState.STOPPING, RunState.STOPPED)
    stop_run(RunQuery(run=proof), replace(owner, name="boss"))
    assert resume_run(ResumeRun(run=run), operator).proof == ""
    assert read_history(RunFolder(owner.runs / proof)).history.state is RunState.STOPPED
