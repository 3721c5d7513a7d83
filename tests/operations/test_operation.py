import os

import pytest

from sparring.contracts.errors import NotPermitted, RunNotFound
from sparring.contracts.specs import Frozen
from sparring.operations import evaluating, models, rollouts
from sparring.operations.operation import REGISTRY, Caller, Role
from sparring.run_folder import RunFolder
from sparring.runs.local import RunState, find_run, status_of

assert evaluating
assert models
assert rollouts


def test_every_operation_says_what_it_takes_gives_and_does():
    assert set(REGISTRY) >= {"eval.start", "eval.resume", "eval.summary", "run.status"}
    for operation in REGISTRY.values():
        assert issubclass(operation.request, Frozen)
        assert issubclass(operation.result, Frozen)
        assert operation.summary.endswith((".", ","))


def test_a_role_below_the_operations_is_refused(tmp_path):
    operation = REGISTRY["eval.start"]
    viewer = Caller(Role.VIEWER, tmp_path, "guest")
    with pytest.raises(NotPermitted, match="takes the role operator, and guest is viewer"):
        operation(operation.request(target="x.py:X"), viewer)


def test_a_run_is_found_by_the_beginning_of_its_name(tmp_path):
    for name in ("library-1", "library-2", "other-1"):
        RunFolder(tmp_path / name).create({"format": 1})
    assert find_run(tmp_path, "other").id == "other-1"
    for number, name in enumerate(("lab-20260101-000000-aa", "lab-20260102-000000-bb")):
        RunFolder(tmp_path / name).create({"format": 1})
        os.utime(tmp_path / name / "spec.json", (number, number))
    assert find_run(tmp_path, "lab").id == "lab-20260102-000000-bb"  # the newest of that name
    with pytest.raises(RunNotFound, match="fits 2 runs"):
        find_run(tmp_path, "library")
    with pytest.raises(RunNotFound, match="the newest are"):
        find_run(tmp_path, "nobody")


@pytest.mark.parametrize("name", ["../secret", "/etc", "*", "..", "runs/../../x", ""])
def test_no_name_leads_out_of_the_runs_folder(tmp_path, name):
    RunFolder(tmp_path / "secret").create({"format": 1})
    runs = tmp_path / "runs"
    runs.mkdir()
    with pytest.raises(RunNotFound):
        find_run(runs, name)


def test_a_worker_that_vanished_without_a_word_has_failed(tmp_path):
    from sparring.run_folder.files import append_line, write_json

    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 1})
    assert status_of(folder).state is RunState.STARTING
    append_line(folder.events, {"event": "started", "pid": 1})
    for _ in range(2):  # killed while loading, and killed while playing
        status = status_of(folder)
        assert status.state is RunState.FAILED
        assert "without a word" in status.message
        write_json(folder.heartbeat, {"rollouts": 3})


def test_held_out_reasons_are_for_the_owner_only(tmp_path):
    from sparring.run_folder.files import write_json

    folder = RunFolder(tmp_path / "run")
    folder.create({"format": 1})
    secret = {"count": 1, "reason": "expected 'the secret'", "shape": "expected …"}
    measure = {"pass_rate": {"value": 0.5}, "reasons_for_failing": [secret]}
    summary = {"split": "held-out", "measures": {"m": measure}, "causes": [secret]}
    write_json(folder.summary, summary)
    read = REGISTRY["eval.summary"]
    shown = {
        role: read(read.request(run="run"), Caller(role, tmp_path)).model_dump_json()
        for role in (Role.VIEWER, Role.OWNER)
    }
    assert "secret" not in shown[Role.VIEWER]
    assert "0.5" in shown[Role.VIEWER]
    assert "secret" in shown[Role.OWNER]
