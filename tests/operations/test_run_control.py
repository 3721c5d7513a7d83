"""Runs are stopped, resumed, cloned, deleted and joined, on folders that are made by hand."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.contracts.errors import (
    IllegalMove,
    InvalidInput,
    LauncherFailed,
    LockedField,
    NotPermitted,
    OverBudget,
    RunChanged,
    RunNotFound,
)
from sparring.contracts.kinds import CheckSpec, ProveSpec
from sparring.contracts.specs import EndpointSpec, EvalSpec, PolicySpec, RunSpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations import run_control
from sparring.operations.operation import Caller, Role
from sparring.operations.run_control import (
    CloneRun,
    JoinRun,
    ResumeRun,
    clone_run,
    delete_run,
    join_run,
    resume_run,
    stop_run,
)
from sparring.operations.run_views import ListRuns, RunQuery
from sparring.operations.runs import list_runs
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import read_lines, write_json
from sparring.runs import status
from sparring.runs.finding import find_run
from sparring.runs.history import read_history
from sparring.runs.launchers import SupervisorPresence
from sparring.runs.lifecycle import RunState
from sparring.source_files import digests_of
from tests.operations.handmade import RUNNING, agent_in, make_free_project, make_run, owner_of

STOPPED = (RunState.STARTING, RunState.STOPPING, RunState.STOPPED)
FAILED = (RunState.STARTING, RunState.FAILED)
SERVERS = PolicySpec(
    model="other", endpoints=(EndpointSpec(base_url="http://127.0.0.1:1/v1", model="other"),)
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return make_free_project(tmp_path, monkeypatch)


@pytest.fixture
def owner(project: list[str], tmp_path: Path) -> Caller:
    return owner_of(tmp_path)


@pytest.fixture
def operator(project: list[str], tmp_path: Path) -> Caller:
    """Of no run that is made by hand: those are ada's."""
    return agent_in(tmp_path)


@pytest.fixture
def ada(operator: Caller) -> Caller:
    """The operator whose runs are made by hand."""
    return replace(operator, name="ada")


def made(caller: Caller, spec: RunSpec, *states: RunState) -> RunFolder:
    folder = RunFolder(caller.runs / "other-1")
    folder.create(spec.model_dump(mode="json"))
    append_state(folder, RunState.QUEUED, author="ada")
    for state in states:
        append_state(folder, state, author="supervisor", epoch=1)
    return folder


def state_of(folder: RunFolder) -> RunState:
    return read_history(folder).history.state


# ---------------------------------------------------------------------- stop


def test_a_stop_is_requested_in_the_history_and_ends_a_queued_run_at_once(owner: Caller) -> None:
    running = make_run(owner, "shop-1", *RUNNING)
    shown = stop_run(RunQuery(run="shop-1"), owner)
    assert (shown.state, shown.is_stopping_for) == (RunState.RUNNING, "ada")
    assert read_history(running).history.is_stop_requested
    make_run(owner, "shop-2")
    waiting = stop_run(RunQuery(run="shop-2"), owner)
    assert (waiting.state, waiting.exit_code) == (RunState.STOPPED, 103)
    assert waiting.message == "stopped by ada"
    assert stop_run(RunQuery(run="shop-2"), owner).state is RunState.STOPPED  # again: no harm


def test_an_operator_does_not_undo_the_stop_of_another(owner: Caller, project: list[str]) -> None:
    coach = Caller(Role.OPERATOR, owner.runs, "ada", folder=owner.folder)
    owner = replace(owner, name="boss")
    folder = make_run(owner, "shop-1", *RUNNING)  # ada's
    stop_run(RunQuery(run="shop-1"), owner)
    assert stop_run(RunQuery(run="shop-1"), coach).is_stopping_for == "boss"
    append_state(folder, RunState.STOPPING, author="supervisor", epoch=1)
    append_state(folder, RunState.STOPPED, author="supervisor", epoch=1)
    with pytest.raises(NotPermitted, match="stopped by boss"):
        resume_run(ResumeRun(run="shop-1"), coach)
    stop_run(RunQuery(run="shop-1"), owner)


def test_a_run_from_python_whose_host_is_gone_can_be_stopped(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_control, "_HEARTBEAT_WAIT_SECONDS", 0.0)
    folder = RunFolder(owner.runs / "mine")
    folder.create(TrainSpec(target="(python) agent").model_dump(mode="json"))
    append_event(folder, "started", author="worker", pid=1, host="gone")
    assert stop_run(RunQuery(run="mine"), owner).state is RunState.RUNNING  # it may be loading
    monkeypatch.setattr(run_control, "_SILENT_SECONDS", 0.0)
    beats = ({"step": step} for step in range(9))
    with monkeypatch.context() as patch:
        read = {folder.heartbeat: beats}
        patch.setattr(run_control, "read_json_or_empty", lambda path: next(read[path]))
        assert stop_run(RunQuery(run="mine"), owner).state is RunState.RUNNING
    stopped = stop_run(RunQuery(run="mine"), owner)
    assert stopped.state is RunState.STOPPED
    assert stopped.message == "stopped by ada: its process on gone no longer answers"
    assert delete_run(RunQuery(run="mine"), owner).run == "mine"


@pytest.mark.parametrize("states", [(), RUNNING])
def test_an_operator_neither_stops_nor_resumes_the_run_of_another(
    owner: Caller, operator: Caller, states: tuple[RunState, ...]
) -> None:
    folder = make_run(owner, "shop-1", *states)
    for act in (
        lambda: stop_run(RunQuery(run="shop-1"), operator),
        lambda: resume_run(ResumeRun(run="shop-1"), operator),
    ):
        with pytest.raises(NotPermitted, match="run shop-1 is ada's, and agent controls only its"):
            act()
    assert not read_history(folder).history.is_stop_requested


def test_a_viewer_stops_nothing(owner: Caller) -> None:
    folder = make_run(owner, "shop-1", *RUNNING)
    with pytest.raises(NotPermitted, match="needs the role operator"):
        stop_run(RunQuery(run="shop-1"), replace(owner, role=Role.VIEWER))
    assert not read_history(folder).history.is_stop_requested


def test_a_stop_after_the_end_changes_nothing(owner: Caller) -> None:
    folder = make_run(owner, "shop-1", RunState.STARTING, RunState.COMPLETED)
    before = folder.events.read_bytes()
    assert stop_run(RunQuery(run="shop-1"), owner).state is RunState.COMPLETED
    assert folder.events.read_bytes() == before


@pytest.mark.parametrize(("is_withdrawn", "state"), [(True, "stopped"), (False, "starting")])
def test_a_run_stops_at_once_if_its_scheduler_withdraws_the_job(
    owner: Caller, monkeypatch: pytest.MonkeyPatch, is_withdrawn: bool, state: str
) -> None:
    scheduler = SimpleNamespace(stop=lambda *_: is_withdrawn)
    monkeypatch.setattr(run_control, "launcher_of", lambda _: scheduler)
    make_run(owner, "shop-1", RunState.STARTING)
    assert stop_run(RunQuery(run="shop-1"), owner).state == state


def test_a_queued_run_stops_also_where_its_scheduler_does_not_answer(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: RunFolder) -> None:
        raise LauncherFailed("no scheduler here")

    monkeypatch.setattr(run_control, "launcher_of", fail)
    make_run(owner, "shop-1")
    assert stop_run(RunQuery(run="shop-1"), owner).state is RunState.STOPPED


@pytest.mark.parametrize("states", [RUNNING, (*RUNNING, RunState.STOPPING)])
def test_a_run_whose_supervisor_died_is_ended_where_no_other_is_started(
    owner: Caller, monkeypatch: pytest.MonkeyPatch, states: tuple[RunState, ...]
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(run_control, "end_all", ended.append)
    folder = make_run(owner, "shop-1", *states)
    onlooker = replace(owner, can_supervise=False)
    monkeypatch.setattr(run_control, "find_supervisor", lambda _: SupervisorPresence.YES)
    assert stop_run(RunQuery(run="shop-1"), onlooker).state is states[-1]
    assert ended == []
    monkeypatch.setattr(run_control, "find_supervisor", lambda _: SupervisorPresence.NO)
    stopped = stop_run(RunQuery(run="shop-1"), onlooker)
    assert (stopped.state, stopped.exit_code) == (RunState.STOPPED, 103)
    assert stopped.message == "stopped by ada: it had no supervisor"
    assert ended == [run_control.mark_of(folder)]
    states_written = [each.get("state") for each in read_lines(folder.events)]
    assert states_written.count("stopping") == states_written.count("stopped") == 1


# ---------------------------------------------------------------------- resume


def test_resuming_puts_a_run_into_the_queue_and_leaves_others_alone(
    owner: Caller, project: list[str]
) -> None:
    stopped = make_run(owner, "shop-1", RunState.STARTING, RunState.STOPPING, RunState.STOPPED)
    again = resume_run(ResumeRun(run="shop-1", accept_changes=True), owner)
    assert again.is_new
    assert project == ["shop-1"]
    assert read_history(stopped).history.life == 2
    assert not resume_run(ResumeRun(run="shop-1"), owner).is_new
    make_run(owner, "shop-2", RunState.STARTING, RunState.STOPPING)
    with pytest.raises(IllegalMove, match="still stopping"):
        resume_run(ResumeRun(run="shop-2"), owner)
    make_run(owner, "shop-3", RunState.STARTING, RunState.COMPLETED)
    assert resume_run(ResumeRun(run="shop-3"), owner).state is RunState.COMPLETED
    assert project == ["shop-1"]


def test_a_run_without_hours_left_resumes_only_after_the_budget_is_raised(
    owner: Caller, project: list[str]
) -> None:
    folder = make_run(owner, "shop-1", RunState.STARTING, RunState.STOPPING, RunState.STOPPED)
    write_json(folder.supervisor, {"seconds": 7200.0})
    project_file = owner.folder / "sparring.toml"
    project_file.write_text("[budget]\nhours = 2\n")
    with pytest.raises(OverBudget, match=r"raise \[budget\] hours"):
        resume_run(ResumeRun(run="shop-1", accept_changes=True), owner)
    project_file.write_text("[budget]\nhours = 3\n")
    resume_run(ResumeRun(run="shop-1", accept_changes=True), owner)
    assert read_history(folder).history.hours == 3


def test_a_run_whose_hours_its_supervisor_enforced_is_resumed_by_its_operator(
    owner: Caller, ada: Caller
) -> None:
    folder = make_run(owner, "shop-1", *RUNNING)
    append_event(folder, "stop_requested", author="supervisor")
    for state in (RunState.STOPPING, RunState.STOPPED):
        append_state(folder, state, author="supervisor", epoch=1)
    assert resume_run(ResumeRun(run="shop-1"), ada).is_new
    assert state_of(folder) is RunState.QUEUED


@pytest.mark.parametrize("states", [STOPPED, FAILED])
def test_changed_code_is_refused_until_the_owner_accepts_it(
    owner: Caller, ada: Caller, project: list[str], states: tuple[RunState, ...]
) -> None:
    code = owner.folder / "shop.py"
    folder = make_run(owner, "shop-1", *states, code_files=digests_of([code]))
    code.write_text(code.read_text() + "# changed\n")
    for caller in (owner, ada):
        with pytest.raises(RunChanged, match=r"shop\.py has changed since run shop-1 was created"):
            resume_run(ResumeRun(run="shop-1"), caller)
    with pytest.raises(NotPermitted, match="only the owner may accept changes"):
        resume_run(ResumeRun(run="shop-1", accept_changes=True), ada)
    assert (state_of(folder), project) == (states[-1], [])
    resume_run(ResumeRun(run="shop-1", accept_changes=True), owner)
    assert read_history(folder).history.accept_changes
    assert project == ["shop-1"]


def test_code_that_did_not_change_is_resumed_without_being_accepted(
    owner: Caller, project: list[str]
) -> None:
    code = digests_of([owner.folder / "shop.py"])
    folder = make_run(owner, "shop-1", *FAILED, code_files=code)
    write_json(folder.epochs / "000003.json", {"format": 1})
    assert resume_run(ResumeRun(run="shop-1"), owner).is_new
    history = read_history(folder).history
    assert not history.accept_changes
    assert history.queued_epoch == 3, "a supervisor of an earlier epoch is none of this life's"
    assert project == ["shop-1"]


@pytest.mark.parametrize("given", [{"split": "held-out"}, {"policy": SERVERS}])
def test_evaluations_on_held_out_cases_or_servers_are_the_owners_to_resume(
    owner: Caller, ada: Caller, project: list[str], given: dict[str, Any]
) -> None:
    target = f"{owner.folder / 'shop.py'}:Shop"
    made(owner, EvalSpec(target=target, environment="shop", **given), *STOPPED)
    with pytest.raises(NotPermitted, match="servers or held-out cases"):
        resume_run(ResumeRun(run="other-1"), ada)
    assert resume_run(ResumeRun(run="other-1"), owner).is_new
    assert project == ["other-1"]


def test_an_operator_resumes_within_the_locks_of_today(
    owner: Caller, ada: Caller, project: list[str]
) -> None:
    command = {"settings": TrainSettings(beta=0.5), "sources": {"beta": "the command"}}
    make_run(owner, "shop-1", *STOPPED, **command)
    (owner.folder / "sparring.toml").write_text('[[lock]]\nfield = "beta"\nvalue = 0.2\n')
    with pytest.raises(LockedField, match=r"beta is locked to 0\.2"):
        resume_run(ResumeRun(run="shop-1"), ada)
    assert resume_run(ResumeRun(run="shop-1"), owner).is_new


def test_a_training_is_resumed_with_its_proof(owner: Caller) -> None:
    make_run(owner, "shop-1", *STOPPED)
    proof = RunFolder(owner.runs / "proof-shop-1")
    target = f"{owner.folder / 'shop.py'}:Shop"
    spec = ProveSpec(target=target, environment="shop", run="shop-1", after="shop-1")
    proof.create(spec.model_dump(mode="json"))
    for state in (RunState.QUEUED, RunState.STOPPED):
        append_state(proof, state, author="sparring")
    assert resume_run(ResumeRun(run="shop-1"), owner).proof == "proof-shop-1"
    assert state_of(proof) is RunState.QUEUED


@pytest.fixture
def elsewhere(owner: Caller, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run whose supervisor wrote a heartbeat on another host."""
    monkeypatch.setattr(run_control, "_HEARTBEAT_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(status, "find_supervisor", lambda *_: SupervisorPresence.ELSEWHERE)
    folder = make_run(owner, "shop-1", *RUNNING)
    write_json(folder.epochs / "000003.json", {"format": 1})
    write_json(folder.supervisor, {"format": 1, "host": "far", "beats": 1})
    return folder


def test_a_silent_host_s_run_is_taken_over_when_the_owner_asks(
    owner: Caller, ada: Caller, elsewhere: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[str, int]] = []
    monkeypatch.setattr(run_control, "launch", lambda run, epoch: taken.append((run.id, epoch)))
    with pytest.raises(NotPermitted, match="take over"):
        resume_run(ResumeRun(run="shop-1", take_over=True), ada)
    assert not resume_run(ResumeRun(run="shop-1"), owner).is_new
    assert taken == []
    assert resume_run(ResumeRun(run="shop-1", take_over=True), owner).is_new
    assert taken == [("shop-1", 4)]


def test_a_host_that_still_answers_keeps_its_run(
    owner: Caller, elsewhere: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beat(_: float) -> None:
        write_json(elsewhere.supervisor, {"format": 1, "host": "far", "beats": 2})

    def launch(*_: object) -> None:
        raise AssertionError("it has a supervisor")

    monkeypatch.setattr(run_control, "launch", launch)
    monkeypatch.setattr(time, "sleep", beat)
    with pytest.raises(IllegalMove, match="run shop-1 is alive on far; stop it from there"):
        resume_run(ResumeRun(run="shop-1", take_over=True), owner)


# ---------------------------------------------------------------------- clone


def test_a_clone_has_the_settings_of_the_run_but_for_what_is_changed(
    owner: Caller, project: list[str]
) -> None:
    settings = TrainSettings(max_steps=7, learning_rate=0.5, lora={"r": 4}, beta=0.1)
    chosen = {"max_steps": "the command", "learning_rate": "sparring.toml:3"}
    chosen |= {"lora.r": "the command", "beta": "Shop in shop.py", "restarts": "the command"}
    policy = PolicySpec(model="tiny")
    given = {"settings": settings, "sources": {**chosen, "model": "the command"}, "policy": policy}
    folder = make_run(owner, "shop-1", *RUNNING, **given)
    started = clone_run(CloneRun(run="shop-1", settings={"lora": {"r": 8}}), owner)
    spec = json.loads((Path(started.folder) / "spec.json").read_text())
    assert started.run != folder.id
    assert spec["settings"]["lora"] == {"r": 8}
    assert (spec["settings"]["max_steps"], spec["settings"]["learning_rate"]) == (7, 0.5)
    assert spec["policy"]["model"] == "tiny"
    assert not started.proof, "as of the first, which was started without one"


def test_a_clone_has_a_proof_if_the_first_run_was_started_with_one(
    owner: Caller, project: list[str]
) -> None:
    make_run(owner, "shop-1", *RUNNING)
    proof = RunFolder(owner.runs / "proof-shop-1")
    proof.create({"format": 1, "kind": "prove", "run": "shop-1", "after": "shop-1"})
    started = clone_run(CloneRun(run="shop-1"), owner)
    assert started.proof == f"proof-{started.run}"


def test_a_clone_of_an_evaluation_plays_the_same_cases_on_the_same_servers(owner: Caller) -> None:
    target = f"{owner.folder / 'shop.py'}:Shop"
    given: dict[str, Any] = {"split": "held-out", "cases": 7, "policy": SERVERS}
    made(owner, EvalSpec(target=target, environment="shop", **given))
    clone = clone_run(CloneRun(run="other-1", settings={"temperature": 0.25}), owner)
    spec = EvalSpec.model_validate(RunFolder(Path(clone.folder)).read_spec())
    assert (spec.split, spec.cases, spec.play.temperature) == ("held-out", 7, 0.25)
    assert spec.policy.endpoints == SERVERS.endpoints


def test_an_operator_s_clone_is_of_the_project_s_environment_whatever_file_the_run_had(
    owner: Caller, ada: Caller, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("elsewhere") / "shop.py"
    shutil.copy(owner.folder / "shop.py", other)
    made(owner, TrainSpec(target=f"{other}:Shop", environment="shop"))
    targets = [
        RunFolder(Path(clone_run(CloneRun(run="other-1"), caller).folder)).read_spec()["target"]
        for caller in (owner, ada)
    ]
    assert targets == [f"{other}:Shop", f"{owner.folder / 'shop.py'}:Shop"]


def test_only_trainings_and_evaluations_are_cloned(owner: Caller, project: list[str]) -> None:
    made(owner, CheckSpec(target=f"{owner.folder / 'shop.py'}:Shop", environment="shop"))
    with pytest.raises(InvalidInput, match="a run of kind check cannot be cloned"):
        clone_run(CloneRun(run="other-1"), owner)
    assert project == []


def test_a_run_from_python_is_resumed_and_cloned_in_python(owner: Caller) -> None:
    folder = RunFolder(owner.runs / "mine")
    folder.create(TrainSpec(target="(python) agent").model_dump(mode="json"))
    append_event(folder, "started", author="worker", pid=1)
    for act in (
        lambda: resume_run(ResumeRun(run="mine"), owner),
        lambda: clone_run(CloneRun(run="mine"), owner),
    ):
        with pytest.raises(InvalidInput, match=r"train\(…, run='mine'\)"):
            act()


# ---------------------------------------------------------------------- delete


def test_deleting_takes_the_whole_id_and_a_run_that_has_ended(
    owner: Caller, operator: Caller
) -> None:
    folder = make_run(owner, "shop-1", *RUNNING)
    with pytest.raises(InvalidInput, match="the whole id"):
        delete_run(RunQuery(run="shop"), owner)
    with pytest.raises(IllegalMove, match="sparring run stop shop-1"):
        delete_run(RunQuery(run="shop-1"), owner)
    append_state(folder, RunState.COMPLETED, author="supervisor", epoch=1)
    with pytest.raises(NotPermitted):
        delete_run(RunQuery(run="shop-1"), operator)
    assert delete_run(RunQuery(run="shop-1"), owner).bytes > 0
    assert not folder.path.exists()
    assert list_runs(ListRuns(), owner).runs == ()


def test_a_deleted_run_is_in_no_list_and_its_bytes_are_counted(owner: Caller) -> None:
    folder = make_run(owner, "shop-1", *FAILED)
    kept = make_run(owner, "shop-2", *FAILED)
    weights = folder.path / "checkpoints" / "step-1" / "weights"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"x" * 5000)
    weights.parent.with_name("link").symlink_to(kept.path)
    assert {each.run for each in list_runs(ListRuns(), owner).runs} == {"shop-1", "shop-2"}
    files = sum(each.lstat().st_size for each in folder.path.rglob("*") if each.is_file())
    assert 5000 < files == delete_run(RunQuery(run="shop-1"), owner).bytes
    assert [each.run for each in list_runs(ListRuns(), owner).runs] == ["shop-2"]
    assert kept.spec.is_file(), "a link is removed, not what it leads to"
    assert list(read_lines(folder.journal))[-1] == {"run": "shop-1"}, "for indexes elsewhere"
    with pytest.raises(RunNotFound):
        find_run(owner.runs, "shop-1")


def test_a_run_that_is_deleted_in_part_is_no_run_any_more(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    folder = make_run(owner, "shop-1", *FAILED)
    delete_run(RunQuery(run="shop-1"), owner)
    assert not folder.path.exists()
    assert list_runs(ListRuns(), owner).runs == ()


# ---------------------------------------------------------------------- join


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The commands of the processes that joining starts, in name only."""
    commands: list[Sequence[str]] = []

    def popen(command: Sequence[str], **given: Any) -> SimpleNamespace:
        given["stdout"].write(b"joined\n")
        assert given["start_new_session"], "it outlives this terminal"
        commands.append(command)
        return SimpleNamespace(pid=77)

    monkeypatch.setattr(subprocess, "Popen", popen)
    return commands


def test_a_further_host_joins_with_the_next_number_and_its_own_log(
    owner: Caller, processes: list[Sequence[str]]
) -> None:
    folder = make_run(owner, "shop-1", *RUNNING, nodes=3, rendezvous="host0:29500")
    joined = [join_run(JoinRun(run="shop"), owner) for _ in range(2)]
    assert [(each.run, each.role, each.number, each.pid) for each in joined] == [
        ("shop-1", "host", number, 77) for number in (1, 2)
    ]
    command = [sys.executable, "-m", "sparring.runs.hosts", str(folder.path.resolve())]
    assert processes == [[*command, "1"], [*command, "2"]]
    for number in (1, 2):
        assert (folder.path / "logs" / f"host-{number}.log").read_text() == "joined\n"


def test_a_player_joins_a_training_that_waits_for_players(
    owner: Caller, processes: list[Sequence[str]]
) -> None:
    settings = TrainSettings.model_validate({"players": 1, "sampling": {"servers": "joined"}})
    folder = make_run(owner, "shop-1", *RUNNING, settings=settings)
    joined = join_run(JoinRun(run="shop-1", role="player"), owner)
    words = ["sparring.runs.joined_helper", str(folder.path.resolve()), "player"]
    assert processes == [[sys.executable, "-m", *words, str(joined.number)]]


@pytest.mark.parametrize(
    ("role", "refusal"),
    [("host", "start it with --nodes 2 or more"), ("player", "no separate players")],
)
@pytest.mark.parametrize("kind", [TrainSpec, EvalSpec])
def test_a_run_that_is_for_one_host_is_not_joined(
    owner: Caller,
    processes: list[Sequence[str]],
    kind: type[TrainSpec | EvalSpec],
    role: str,
    refusal: str,
) -> None:
    folder = made(owner, kind(target="shop.py:Shop", environment="shop"), *RUNNING)
    with pytest.raises(InvalidInput, match=refusal):
        join_run(JoinRun.model_validate({"run": "other-1", "role": role}), owner)
    assert processes == []
    assert not (folder.path / "logs").exists()


def test_joining_is_the_owner_s(owner: Caller, ada: Caller, processes: list[Any]) -> None:
    make_run(owner, "shop-1", *RUNNING, nodes=2, rendezvous="host0:29500")
    with pytest.raises(NotPermitted, match=r"run\.join needs the role owner"):
        join_run(JoinRun(run="shop-1"), ada)
    assert processes == []
