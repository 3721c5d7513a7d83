"""Looking at runs and steering them, on folders that are made by hand."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.errors import (
    IllegalMove,
    InvalidInput,
    NotFinished,
    NotPermitted,
    OverBudget,
)
from sparring.contracts.specs import EvalSpec, PolicySpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.operations import run_control, starting
from sparring.operations.operation import Caller, Role
from sparring.operations.run_control import (
    CloneRun,
    ResumeRun,
    clone_run,
    delete_run,
    resume_run,
    stop_run,
)
from sparring.operations.run_views import ListRuns, LogQuery, ResultsQuery, RunQuery, WaitFor
from sparring.operations.runs import (
    list_runs,
    run_logs,
    run_results,
    run_status,
    show_run,
    wait_for_run,
)
from sparring.run_folder import RunFolder
from sparring.run_folder.events import tell, tell_state
from sparring.run_folder.files import append_line, write_json
from sparring.run_folder.metrics import sampled
from sparring.runs import queue, status
from sparring.runs.history import read_history
from sparring.runs.launching import Watched
from sparring.runs.lifecycle import RunState

SHOP = '''
from sparring import Environment

class Shop(Environment):
    """Sells things."""
    settings = {"beta": 0.1}
'''


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose runs are started in name only."""
    (tmp_path / "shop.py").write_text(SHOP)
    started: list[str] = []

    def launch(folder: RunFolder, _: int) -> dict[str, Any]:
        started.append(folder.id)
        return {}

    monkeypatch.setattr(queue, "launch", launch)
    for module in (queue, status):
        monkeypatch.setattr(module, "is_watched", lambda *_: Watched.YES)
    return started


@pytest.fixture
def owner(project, tmp_path):
    return Caller(Role.OWNER, tmp_path / "runs", "ada", folder=tmp_path)


@pytest.fixture
def operator(project, tmp_path):
    return Caller(Role.OPERATOR, tmp_path / "runs", "agent", folder=tmp_path)


def make(caller: Caller, name: str = "shop-1", *states: RunState, **spec: Any) -> RunFolder:
    folder = RunFolder(caller.runs / name)
    target = f"{caller.folder / 'shop.py'}:Shop"
    made = TrainSpec(target=target, environment="shop", **spec)
    folder.create(made.model_dump(mode="json"))
    tell_state(folder, RunState.QUEUED, author="ada")
    for state in states:
        tell_state(folder, state, author="supervisor", epoch=1)
    return folder


RUNNING = (RunState.STARTING, RunState.RUNNING)


def figures(folder: RunFolder, step: int, *, seconds: float = 2.0) -> None:
    row = {"loss": 0.5, "reward": 0.25, "pass_rate/right": 0.5, "seconds": seconds}
    append_line(folder.metrics, {"attempt": 1, "step": step, **row})
    beat = {"step": step, "steps": 10, "metrics": row, "said": [], "tokens_drawn": 5}
    write_json(folder.heartbeat, {"format": 1, **beat}, durable=False)


def test_a_run_shows_its_figures_and_how_long_it_will_take_and_why(owner):
    folder = make(owner, "shop-1", *RUNNING)
    for step in (1, 2, 3, 4):
        figures(folder, step, seconds=float(step))
    validated = {"validation/reward": 0.75, "validation/pass_rate/right": 0.8}
    append_line(folder.metrics, {"attempt": 1, "step": 4, **validated})
    shown = show_run(RunQuery(run="shop"), owner)
    assert (shown.state, shown.step, shown.steps, shown.loss) == (RunState.RUNNING, 4, 10, 0.5)
    assert (shown.pass_rates, shown.validation_pass_rates) == ({"right": 0.5}, {"right": 0.8})
    assert shown.seconds_left == 6 * 2.5
    assert shown.estimate_basis.startswith("6 steps left, at the mean of the last 4: 2.5 s")


def test_who_asks_too_soon_hears_the_same_again_but_never_misses_news(operator, owner):
    folder = make(operator, "shop-1", *RUNNING)
    figures(folder, 1)
    first = show_run(RunQuery(run="shop-1"), operator)
    figures(folder, 2)
    again = show_run(RunQuery(run="shop-1"), operator)
    assert again.is_repeated
    assert again.step == first.step == 1
    assert 0 < again.next_check_seconds <= first.next_check_seconds
    assert show_run(RunQuery(run="shop-1"), owner).step == 2  # a person is answered
    other = Caller(Role.OPERATOR, operator.runs, "another", folder=operator.folder)
    assert show_run(RunQuery(run="shop-1"), other).step == 2
    tell(folder, "warning", author="worker", message="the judge is slow")
    assert show_run(RunQuery(run="shop-1"), operator).warning == "the judge is slow"
    tell_state(folder, RunState.FAILED, author="supervisor", epoch=1, cause="hung", message="hung")
    failed = show_run(RunQuery(run="shop-1"), operator)
    assert (failed.state, failed.cause, failed.is_repeated) == (RunState.FAILED, "hung", False)


def test_waiting_returns_on_news_and_not_before(owner):
    folder = make(owner, "shop-1", *RUNNING)
    nothing = wait_for_run(WaitFor(run="shop-1", since=None, timeout=0.3), owner)
    assert (nothing.news, nothing.exit_code) == ((), 101)

    def later() -> None:
        time.sleep(0.4)
        tell(folder, "note", author="worker", message="no news")
        tell(folder, "checkpoint", author="worker", step=3)

    thread = threading.Thread(target=later)
    started = time.monotonic()
    thread.start()
    news = wait_for_run(WaitFor(run="shop-1", since=nothing.cursor, timeout=20), owner)
    thread.join()
    assert time.monotonic() - started < 10
    assert [event["event"] for event in news.news] == ["checkpoint"]
    tell_state(folder, RunState.FAILED, author="supervisor", epoch=1, exit_code=100, message="no")
    end = wait_for_run(WaitFor(run="shop-1", since=news.cursor, timeout=20), owner)
    assert (end.has_ended, end.exit_code, end.message) == (True, 100, "no")
    for cursor in (end.cursor, 10**9):  # nothing more will come
        again = wait_for_run(WaitFor(run="shop-1", since=cursor, timeout=20), owner)
        assert (again.has_ended, again.news) == (True, ())


def test_results_say_what_came_of_it_and_refuse_before_there_are_any(owner):
    folder = make(owner, "shop-1", *RUNNING)
    with pytest.raises(NotFinished, match="sparring run wait shop-1") as refused:
        run_results(ResultsQuery(run="shop-1"), owner)
    assert refused.value.exit_code == 101
    for step in range(1, 41):
        figures(folder, step)
    write_json(folder.summary, {"format": 1, "kind": "train", "steps": 40})
    tell_state(folder, RunState.COMPLETED, author="supervisor", epoch=1)
    found = run_results(ResultsQuery(run="shop-1"), owner)
    assert len(found.history) == 10
    assert (found.history[0]["step"], found.history[-1]["step"]) == (1, 40)
    assert found.final["step"] == 40


def test_a_sample_has_the_first_and_the_last_row():
    rows = [{"step": number} for number in range(100)]
    assert [row["step"] for row in sampled(rows, 3)] == [0, 50, 99]
    assert sampled(rows, 0) == []
    assert sampled(rows, 1) == [{"step": 99}]
    assert sampled(rows[:2], 10) == rows[:2]
    assert [row["step"] for row in sampled(rows, 4, best=70)] == [0, 33, 70, 99]


def test_stop_is_a_wish_in_the_history_and_a_waiting_run_obeys_at_once(owner):
    running = make(owner, "shop-1", *RUNNING)
    shown = stop_run(RunQuery(run="shop-1"), owner)
    assert (shown.state, shown.is_stopping_for) == (RunState.RUNNING, "ada")
    assert read_history(running).history.is_to_stop
    make(owner, "shop-2")
    waiting = stop_run(RunQuery(run="shop-2"), owner)
    assert (waiting.state, waiting.exit_code) == (RunState.STOPPED, 103)
    assert waiting.message == "stopped by ada"
    assert stop_run(RunQuery(run="shop-2"), owner).state is RunState.STOPPED  # again: no harm


def test_resuming_puts_a_run_into_the_queue_and_leaves_others_alone(owner, project):
    stopped = make(owner, "shop-1", RunState.STARTING, RunState.STOPPING, RunState.STOPPED)
    again = resume_run(ResumeRun(run="shop-1", accept_changes=True), owner)
    assert again.is_new
    assert project == ["shop-1"]
    assert read_history(stopped).history.life == 2
    assert not resume_run(ResumeRun(run="shop-1"), owner).is_new
    make(owner, "shop-2", RunState.STARTING, RunState.STOPPING)
    with pytest.raises(IllegalMove, match="still stopping"):
        resume_run(ResumeRun(run="shop-2"), owner)
    make(owner, "shop-3", RunState.STARTING, RunState.COMPLETED)
    assert resume_run(ResumeRun(run="shop-3"), owner).state is RunState.COMPLETED
    assert project == ["shop-1"]


def test_hours_that_are_used_up_are_not_gone_on_with_until_there_are_more(owner, project):
    folder = make(owner, "shop-1", RunState.STARTING, RunState.STOPPING, RunState.STOPPED)
    write_json(folder.supervisor, {"seconds": 7200.0})
    project_file = owner.folder / "sparring.toml"
    project_file.write_text("[budget]\nhours = 2\n")
    with pytest.raises(OverBudget, match=r"raise \[budget\] hours"):
        resume_run(ResumeRun(run="shop-1", accept_changes=True), owner)
    project_file.write_text("[budget]\nhours = 3\n")
    resume_run(ResumeRun(run="shop-1", accept_changes=True), owner)
    assert read_history(folder).history.hours == 3


def test_a_run_that_waits_says_what_for(owner, project):
    (owner.folder / "sparring.toml").write_text("[budget]\nruns_at_once = 1\n")
    make(owner, "shop-1", *RUNNING)
    request = run_control.StartTrain(environment="shop", settings={"max_steps": 1})
    started = [run_control.start_train(request, owner) for _ in range(2)]
    assert started[0].message == "it waits for its turn: 1 of at most 1 runs are on"
    shown = [show_run(RunQuery(run=each.run), owner).message for each in started]
    assert sorted("and 1 wait before it" in each for each in shown) == [False, True]


def test_what_happened_before_a_restart_is_no_message_of_the_run_that_goes_on(owner):
    folder = make(owner, "shop-1", *RUNNING)
    told = {"cause": "killed", "message": "rank-1 was killed"}
    tell(folder, "restart", author="supervisor", epoch=1, attempt=1, **told)
    shown = show_run(RunQuery(run="shop-1"), owner)
    assert (shown.message, shown.last_restart) == ("", "killed: rank-1 was killed")


def test_a_run_from_python_is_gone_on_with_in_python(owner):
    folder = RunFolder(owner.runs / "mine")
    folder.create(TrainSpec(target="(python) agent").model_dump(mode="json"))
    tell(folder, "started", author="worker", pid=1)
    for act in (
        lambda: resume_run(ResumeRun(run="mine"), owner),
        lambda: clone_run(CloneRun(run="mine"), owner),
    ):
        with pytest.raises(InvalidInput, match=r"train\(…, run='mine'\)"):
            act()
    with pytest.raises(InvalidInput, match="where it was started"):
        run_logs(LogQuery(run="mine"), owner)


def test_a_clone_has_the_settings_of_the_run_but_for_what_is_changed(owner, project):
    settings = TrainSettings(max_steps=7, learning_rate=0.5, lora={"r": 4}, beta=0.1)
    told = {"max_steps": "the command", "learning_rate": "sparring.toml:3"}
    told |= {"lora.r": "the command", "beta": "Shop in shop.py", "restarts": "the command"}
    policy = PolicySpec(model="tiny")
    given = {"settings": settings, "sources": {**told, "model": "the command"}, "policy": policy}
    folder = make(owner, "shop-1", *RUNNING, **given)
    started = clone_run(CloneRun(run="shop-1", settings={"lora": {"r": 8}}), owner)
    spec = json.loads((Path(started.folder) / "spec.json").read_text())
    assert started.run != folder.id
    assert spec["settings"]["lora"] == {"r": 8}
    assert (spec["settings"]["max_steps"], spec["settings"]["learning_rate"]) == (7, 0.5)
    assert spec["policy"]["model"] == "tiny"


def test_deleting_takes_the_whole_id_and_a_run_that_has_ended(owner, operator):
    folder = make(owner, "shop-1", *RUNNING)
    with pytest.raises(InvalidInput, match="the whole id"):
        delete_run(RunQuery(run="shop"), owner)
    with pytest.raises(IllegalMove, match="sparring run stop shop-1"):
        delete_run(RunQuery(run="shop-1"), owner)
    tell_state(folder, RunState.COMPLETED, author="supervisor", epoch=1)
    with pytest.raises(NotPermitted):
        delete_run(RunQuery(run="shop-1"), operator)
    assert delete_run(RunQuery(run="shop-1"), owner).bytes > 0
    assert not folder.path.exists()
    assert list_runs(ListRuns(), owner).runs == ()


def test_what_was_printed_over_held_out_cases_is_for_the_owner(owner, operator):
    folder = RunFolder(owner.runs / "secret")
    folder.create(EvalSpec(target="x.py:X", split="held-out").model_dump(mode="json"))
    folder.log(1).parent.mkdir(parents=True)
    folder.log(1).write_text("case 7\n")
    assert run_logs(LogQuery(run="secret"), owner).text == "case 7"
    with pytest.raises(NotPermitted, match="held-out"):
        run_logs(LogQuery(run="secret"), operator)
    told = {"cause": "exception", "message": "KeyError: case 7"}
    tell_state(folder, RunState.QUEUED, author="ada")
    tell_state(folder, RunState.FAILED, author="supervisor", epoch=1, **told)
    for caller, is_shown in ((owner, True), (operator, False)):
        words = [
            show_run(RunQuery(run="secret"), caller).model_dump_json(),
            run_status(RunQuery(run="secret"), caller).model_dump_json(),
            list_runs(ListRuns(), caller).model_dump_json(),
            wait_for_run(WaitFor(run="secret", since=0, timeout=0), caller).model_dump_json(),
        ]
        assert all(("case 7" in each) == is_shown for each in words), words


def test_runs_wait_for_their_turn_where_the_project_says_so(owner, project):
    (owner.folder / "sparring.toml").write_text("[budget]\nruns_at_once = 1\n")
    make(owner, "shop-1", *RUNNING)
    started = run_control.start_train(
        run_control.StartTrain(environment="shop", settings={"max_steps": 1}), owner
    )
    assert project == []
    assert show_run(RunQuery(run=started.run), owner).state is RunState.QUEUED


def test_a_run_is_there_whole_or_not_at_all(owner, monkeypatch):
    """Killed before it could say that it waits, it leaves nothing that looks like a run."""

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(starting, "tell", die)
    request = run_control.StartTrain(environment="shop", settings={"max_steps": 1})
    with pytest.raises(KeyboardInterrupt):
        run_control.start_train(request, owner)
    assert list_runs(ListRuns(), owner).runs == ()
