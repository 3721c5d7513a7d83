"""A run is created whole, and is then started or says why it waits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from sparring.contracts.errors import InvalidInput, LauncherFailed, SettingError
from sparring.contracts.kinds import ProveSpec
from sparring.contracts.specs import RunSpec, Supervision
from sparring.contracts.training import TrainSpec
from sparring.operations import starting
from sparring.operations.activity_log import ActivityLog
from sparring.operations.operation import Caller
from sparring.operations.run_views import ListRuns, RunQuery
from sparring.operations.runs import list_runs, show_run
from sparring.operations.starting import begin, new_name, start
from sparring.operations.training import StartTrain, start_train
from sparring.run_folder import RunFolder
from sparring.runs import queue
from sparring.runs.history import read_history
from sparring.runs.launchers import SupervisorPresence
from sparring.runs.lifecycle import RunState
from tests.operations.handmade import RUNNING, agent_in, make_free_project, make_run, owner_of


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return make_free_project(tmp_path, monkeypatch)


@pytest.fixture
def owner(project: list[str], tmp_path: Path) -> Caller:
    return owner_of(tmp_path)


def training(**fields: object) -> TrainSpec:
    return TrainSpec.model_validate({"target": "shop.py:Shop", "environment": "shop", **fields})


def test_a_run_starts_at_once_where_runs_are_not_limited(owner: Caller, project: list[str]) -> None:
    started = start(training(), owner, runs_at_once=None)
    assert (started.state, started.is_new, started.message) == (RunState.QUEUED, True, "")
    folder = RunFolder(Path(started.folder))
    assert (folder.path, project) == (owner.runs / started.run, [started.run])
    history = read_history(folder).history
    assert (history.author, history.runs_at_once) == ("ada", None)


def test_a_run_waits_for_the_run_that_it_follows(owner: Caller, project: list[str]) -> None:
    make_run(owner, "shop-1", *RUNNING)
    spec = ProveSpec(target="shop.py:Shop", environment="shop", run="shop-1", after="shop-1")
    started = start(spec, owner, runs_at_once=None, name="proof-shop-1")
    assert (started.run, started.message) == ("proof-shop-1", "waiting for shop-1")
    folder = RunFolder(Path(started.folder))
    assert begin(folder, is_limited=False).message == "waiting for shop-1, which is running"
    assert project == []


@pytest.mark.parametrize("most", [None, 1])
def test_a_run_that_its_launcher_refuses_has_failed_and_says_why(
    owner: Caller, monkeypatch: pytest.MonkeyPatch, most: int | None
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no room for processes")

    monkeypatch.setattr(queue, "launch", refuse)
    monkeypatch.setattr(queue, "find_supervisor", lambda *_: SupervisorPresence.NO)
    with pytest.raises(LauncherFailed, match=r"^run shop-1 could not be started: no room for"):
        start(training(), owner, runs_at_once=most, name="shop-1")
    assert read_history(RunFolder(owner.runs / "shop-1")).history.state is RunState.FAILED


def test_an_unknown_launcher_is_refused_before_there_is_a_run(owner: Caller) -> None:
    spec = training(supervision=Supervision(launcher="pigeon"))
    with pytest.raises(SettingError, match="there is no launcher 'pigeon'"):
        start(spec, owner, runs_at_once=None)
    assert not owner.runs.exists()


@pytest.mark.parametrize(("kind", "prefix"), [("train", ""), ("prove", "proof-")])
def test_runs_of_an_environment_have_different_names_that_begin_with_it(
    kind: str, prefix: str
) -> None:
    target = {"target": "shop.py:Shop", "environment": "my_shop"}
    specs: Iterable[RunSpec] = (
        [TrainSpec(**target)] * 2 if kind == "train" else [ProveSpec(**target, run="shop-1")] * 2
    )
    first, second = map(new_name, specs)
    assert first != second
    assert re.fullmatch(rf"{prefix}my[_-]shop-\d{{8}}-\d{{6}}-[0-9a-f]{{4}}", first)


def test_runs_wait_for_their_turn_where_the_project_says_so(
    owner: Caller, project: list[str]
) -> None:
    (owner.folder / "sparring.toml").write_text("[budget]\nruns_at_once = 1\n")
    make_run(owner, "shop-1", *RUNNING)
    started = start_train(StartTrain(environment="shop", settings={"max_steps": 1}), owner)
    assert project == []
    assert started.message == "waiting for its turn: 1 of at most 1 runs are running"
    assert show_run(RunQuery(run=started.run), owner).state is RunState.QUEUED


def test_a_run_is_there_whole_or_not_at_all(owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before it could say that it waits, it leaves nothing that looks like a run."""

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(starting, "append_event", die)
    request = StartTrain(environment="shop", settings={"max_steps": 1})
    with pytest.raises(KeyboardInterrupt):
        start_train(request, owner)
    assert list_runs(ListRuns(), owner).runs == ()


def test_a_run_that_was_created_counts_as_a_start_although_launching_failed(
    owner: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = agent_in(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise InvalidInput("another run's file is of a newer format")

    monkeypatch.setattr(starting, "reconcile_folder", fail)
    for _ in range(2):
        with pytest.raises(LauncherFailed, match="was created but not started"):
            start_train(StartTrain(environment="shop"), operator)
    assert ActivityLog(operator.runs).starts_today() == 2
