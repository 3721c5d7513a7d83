"""Looking at runs, on folders that are made by hand."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sparring.contracts.errors import IllegalMove, InvalidInput, NotFinished, NotPermitted
from sparring.contracts.specs import EvalSpec
from sparring.contracts.training import TrainSpec
from sparring.operations import run_control
from sparring.operations.operation import Caller, NoArguments, Role
from sparring.operations.run_control import delete_run, stop_run
from sparring.operations.run_views import ListRuns, LogQuery, ResultsQuery, RunQuery, WaitFor
from sparring.operations.runs import (
    list_runs,
    reindex_runs,
    run_checkpoints,
    run_details,
    run_logs,
    run_results,
    run_status,
    show_run,
    wait_for_run,
)
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import write_json
from sparring.runs import queue
from sparring.runs.launchers import SupervisorPresence
from sparring.runs.lifecycle import RunState
from tests.operations.handmade import (
    RUNNING,
    agent_in,
    make_free_project,
    make_run,
    owner_of,
    write_figures,
)
from tests.surfaces.web.viewed import TRAINING, make_training, owner_in


@pytest.fixture
def project(tmp_path, monkeypatch):
    return make_free_project(tmp_path, monkeypatch)


@pytest.fixture
def owner(project, tmp_path):
    return owner_of(tmp_path)


@pytest.fixture
def operator(project, tmp_path):
    return agent_in(tmp_path)


def test_an_early_status_request_gets_the_last_answer_unless_there_is_news(operator, owner):
    folder = make_run(operator, "shop-1", *RUNNING)
    write_figures(folder, 1)
    first = show_run(RunQuery(run="shop-1"), operator)
    write_figures(folder, 2)
    again = show_run(RunQuery(run="shop-1"), operator)
    assert again.is_repeated
    assert again.step == first.step == 1
    assert 0 < again.next_check_seconds <= first.next_check_seconds
    assert show_run(RunQuery(run="shop-1"), owner).step == 2  # a person is answered
    other = Caller(Role.OPERATOR, operator.runs, "another", folder=operator.folder)
    assert show_run(RunQuery(run="shop-1"), other).step == 2
    append_event(folder, "warning", author="worker", message="the judge is slow")
    assert show_run(RunQuery(run="shop-1"), operator).warning == "the judge is slow"
    append_state(
        folder, RunState.FAILED, author="supervisor", epoch=1, cause="hung", message="hung"
    )
    failed = show_run(RunQuery(run="shop-1"), operator)
    assert (failed.state, failed.cause, failed.is_repeated) == (RunState.FAILED, "hung", False)


def test_looking_at_a_folder_from_elsewhere_starts_nothing(project, owner, monkeypatch):
    for module in (queue, run_control):
        monkeypatch.setattr(module, "find_supervisor", lambda *_: SupervisorPresence.NO)
    make_run(owner, "lost-1", *RUNNING)
    make_run(owner, "lost-2", *RUNNING)
    make_run(owner, "waiting-1")
    onlooker = replace(owner, can_supervise=False)
    assert len(list_runs(ListRuns(), onlooker).runs) == 3
    for name in ("lost-1", "waiting-1"):
        show_run(RunQuery(run=name), onlooker)
        run_status(RunQuery(run=name), onlooker)
        wait_for_run(WaitFor(run=name, timeout=0), onlooker)
    reindex_runs(NoArguments(), onlooker)
    with pytest.raises(IllegalMove, match="remove the copy's folder"):
        delete_run(RunQuery(run="lost-1"), onlooker)
    assert stop_run(RunQuery(run="lost-1"), onlooker).state is RunState.STOPPED
    assert project == []
    list_runs(ListRuns(), owner)
    assert sorted(project) == ["lost-2", "waiting-1"]


def test_interim_results_on_held_out_cases_are_for_the_owner(owner, operator):
    folder = RunFolder(owner.runs / "secret-1")
    folder.create(EvalSpec(target="x.py:X", split="held-out").model_dump(mode="json"))
    for state in (RunState.QUEUED, *RUNNING):
        append_state(folder, state, author="supervisor", epoch=1)
    write_json(folder.heartbeat, {"format": 1, "rollouts": 20, "passed": 17})
    for caller, is_shown in ((owner, True), (operator, False)):
        progress = run_status(RunQuery(run="secret-1"), caller).progress
        assert progress["rollouts"] == 20
        assert ("passed" in progress) == is_shown


def test_waiting_returns_on_news_and_not_before(owner):
    folder = make_run(owner, "shop-1", *RUNNING)
    nothing = wait_for_run(WaitFor(run="shop-1", since=None, timeout=0.3), owner)
    assert (nothing.news, nothing.exit_code) == ((), 101)

    def later() -> None:
        time.sleep(0.4)
        append_event(folder, "note", author="worker", message="no news")
        append_event(folder, "checkpoint", author="worker", step=3)

    thread = threading.Thread(target=later)
    started = time.monotonic()
    thread.start()
    news = wait_for_run(WaitFor(run="shop-1", since=nothing.cursor, timeout=20), owner)
    thread.join()
    assert time.monotonic() - started < 10
    assert [event["event"] for event in news.news] == ["checkpoint"]
    append_state(folder, RunState.FAILED, author="supervisor", epoch=1, exit_code=100, message="no")
    end = wait_for_run(WaitFor(run="shop-1", since=news.cursor, timeout=20), owner)
    assert (end.has_ended, end.exit_code, end.message) == (True, 100, "no")
    for cursor in (end.cursor, 10**9):  # nothing more will come
        again = wait_for_run(WaitFor(run="shop-1", since=cursor, timeout=20), owner)
        assert (again.has_ended, again.news) == (True, ())


def test_results_say_what_came_of_it_and_refuse_before_there_are_any(owner):
    folder = make_run(owner, "shop-1", *RUNNING)
    with pytest.raises(NotFinished, match="sparring run wait shop-1") as refused:
        run_results(ResultsQuery(run="shop-1"), owner)
    assert refused.value.exit_code == 101
    for step in range(1, 41):
        write_figures(folder, step)
    write_json(folder.summary, {"format": 1, "kind": "train", "steps": 40})
    append_state(folder, RunState.COMPLETED, author="supervisor", epoch=1)
    found = run_results(ResultsQuery(run="shop-1"), owner)
    assert len(found.history) == 10
    assert (found.history[0]["step"], found.history[-1]["step"]) == (1, 40)
    assert found.final["step"] == 40


def test_a_run_from_python_has_no_log_of_its_own(owner):
    folder = RunFolder(owner.runs / "mine")
    folder.create(TrainSpec(target="(python) agent").model_dump(mode="json"))
    with pytest.raises(InvalidInput, match="the process that started it"):
        run_logs(LogQuery(run="mine"), owner)


def test_logs_of_runs_on_held_out_cases_are_for_the_owner(owner, operator):
    folder = RunFolder(owner.runs / "secret")
    folder.create(EvalSpec(target="x.py:X", split="held-out").model_dump(mode="json"))
    folder.log(1).parent.mkdir(parents=True)
    folder.log(1).write_text("case 7\n")
    assert run_logs(LogQuery(run="secret"), owner).text == "case 7"
    with pytest.raises(NotPermitted, match="held-out"):
        run_logs(LogQuery(run="secret"), operator)
    details = {"cause": "exception", "message": "KeyError: case 7"}
    append_state(folder, RunState.QUEUED, author="ada")
    append_state(folder, RunState.FAILED, author="supervisor", epoch=1, **details)
    for caller, is_shown in ((owner, True), (operator, False)):
        words = [
            show_run(RunQuery(run="secret"), caller).model_dump_json(),
            run_status(RunQuery(run="secret"), caller).model_dump_json(),
            list_runs(ListRuns(), caller).model_dump_json(),
            wait_for_run(WaitFor(run="secret", since=0, timeout=0), caller).model_dump_json(),
        ]
        assert all(("case 7" in each) == is_shown for each in words), words


def test_every_setting_has_a_source(tmp_path: Path) -> None:
    make_training(tmp_path / "runs")
    details = run_details(RunQuery(run=TRAINING), owner_in(tmp_path))
    sources = {each.name: each.source for each in details.settings}
    assert sources["learning_rate"] == "sparring.toml:3"
    assert sources["temperature"] == "defaults"
    assert sources["guards.entropy.limit"] == "defaults"


def test_checkpoints_have_a_size_and_one_is_the_best(tmp_path: Path) -> None:
    make_training(tmp_path / "runs")
    (found,) = run_checkpoints(RunQuery(run=TRAINING), owner_in(tmp_path)).checkpoints
    assert (found.step, found.score, found.is_best, found.bytes) == (2, 0.5, True, 1000)


def test_the_model_has_the_source_that_set_it(tmp_path: Path) -> None:
    folder = make_training(tmp_path / "runs")
    spec = folder.read_spec()
    spec["policy"] = {"model": "tiny"}
    spec["sources"] = {**spec["sources"], "model": "the command"}
    spec["locks"] = {"model": "the owner"}
    write_json(folder.spec, spec)
    details = run_details(RunQuery(run=TRAINING), owner_in(tmp_path))
    (model,) = [each for each in details.settings if each.name == "policy.model"]
    assert (model.source, model.locked_by) == ("the command", "the owner")


def test_a_proof_names_its_training_and_its_settings(tmp_path: Path) -> None:
    folder = make_training(tmp_path / "runs")
    spec = {**folder.read_spec(), "kind": "prove", "run": "shop-1", "play": {"seed": 3}}
    del spec["settings"]
    write_json(folder.spec, spec)
    details = run_details(RunQuery(run=TRAINING), owner_in(tmp_path))
    assert details.training == "shop-1"
    assert {each.name: each.value for each in details.settings}["seed"] == 3
