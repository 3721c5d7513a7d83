"""Short forms of what is shown of runs keep what a decision needs; requests name known kinds."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sparring.contracts.errors import CasesBroken, NotFinished
from sparring.contracts.kinds import KINDS
from sparring.contracts.specs import EvalSpec
from sparring.operations.operation import Caller
from sparring.operations.run_views import (
    ListRuns,
    News,
    ProcessLine,
    Results,
    RunLine,
    RunPage,
    RunQuery,
    ShownRun,
    WaitFor,
    line_of,
    message_for,
    message_of,
    shown_run,
    visible_events,
    visible_progress,
    waiting_for,
)
from sparring.operations.runs import list_runs, show_run
from sparring.operations.training import StartTrain, start_train
from sparring.run_folder import RunFolder
from sparring.run_folder.events import append_event, append_state
from sparring.run_folder.files import append_line, write_json
from sparring.runs.history import History, StopRequest, read_history
from sparring.runs.index_database import read_row
from sparring.runs.lifecycle import RunState
from sparring.runs.processes import identity_of
from sparring.runs.status import RunStatus, status_of
from tests.operations.handmade import (
    RUNNING,
    agent_in,
    make_free_project,
    make_run,
    owner_of,
    write_figures,
)

RUN: dict[str, Any] = {"run": "shop-1", "kind": "train", "state": RunState.RUNNING}


def page(count: int, after: str = "") -> RunPage:
    facts = {**RUN, "environment": "shop", "model": "tiny", "author": "ada"}
    lines = [
        RunLine.model_validate({**facts, "run": f"shop-{number}", "created": 1.0, "minutes": 2.0})
        for number in range(count)
    ]
    return RunPage(runs=tuple(lines), next=after)


def metrics(step: int) -> dict[str, float]:
    row = {"step": step, "reward": 0.5, "pass_rate/right": 0.75, "validation/reward": 0.25}
    return {**row, "loss": 1.5, "kl": 0.1, "grad_norm": 3.0, "validation/pass_rate/right": 1.0}


@pytest.mark.parametrize("kind", ["", *KINDS])
def test_runs_are_listed_by_a_known_kind(kind: str) -> None:
    assert ListRuns(kind=kind).kind == kind


def test_an_unknown_kind_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValidationError, match=r"there is no kind 'trian'; there are .*train"):
        ListRuns(kind="trian")


@pytest.mark.parametrize("timeout", [-0.1, 45.1])
def test_a_wait_is_bounded_so_that_a_call_returns(timeout: float) -> None:
    with pytest.raises(ValidationError, match="timeout"):
        WaitFor(run="shop-1", timeout=timeout)


def test_the_beginning_of_a_page_is_continued_where_it_ends() -> None:
    whole = page(3, after="shop-9")
    first = whole.first(2)
    assert [each.run for each in first.runs] == ["shop-0", "shop-1"]
    assert first.next == "shop-1"
    for count in (3, 4):
        assert whole.first(count).next == "shop-9"


def test_a_short_run_has_no_folder_and_of_its_progress_the_time_left() -> None:
    progress = {"seconds_left": 60, "messages": ["hello"], "metrics": {"kl": 1}}
    facts = {**RUN, "environment": "shop", "model": "tiny", "folder": "/runs/shop-1"}
    shown = ShownRun.model_validate({**facts, "step": 3, "progress": progress}).short()
    assert (shown.folder, shown.step, shown.progress) == ("", 3, {"seconds_left": 60})
    assert ShownRun.model_validate(facts).short().progress == {}


def results(**summary: Any) -> Results:
    rows = tuple(metrics(step) for step in (1, 2))
    return Results(**RUN, summary=summary, final=metrics(2), history=rows)


def test_short_results_keep_rewards_and_pass_rates_in_every_row_and_losses_in_the_last() -> None:
    short = results().short()
    brief = {"step", "reward", "pass_rate/right", "validation/reward", "validation/pass_rate/right"}
    assert [set(row) for row in short.history] == [brief, brief]
    assert set(short.final) == brief | {"loss", "kl"}
    assert short.final["step"] == 2


@pytest.mark.parametrize(("steps", "kept"), [((), []), ((1,), [1]), ((1, 2, 3), [1, 3])])
def test_short_results_keep_the_first_and_the_last_validation(
    steps: tuple[int, ...], kept: list[int]
) -> None:
    summary = results(validation=[metrics(step) for step in steps]).short().summary
    assert [row["step"] for row in summary["validation"]] == kept
    assert all("grad_norm" not in row for row in summary["validation"])


def test_a_short_summary_repeats_nothing_and_counts_cases_without_listing_them() -> None:
    given = {"kind": "train", "run": "shop-1", "cases_digest": "ab", "best_checkpoint": "step-2"}
    assert results(**given, verdict="better", cases=12).short().summary == {
        "verdict": "better",
        "cases": 12,
    }
    assert results(cases=[{"case": "c1"}]).short().summary == {}


def test_news_of_a_run_that_has_not_ended_have_the_code_for_that() -> None:
    event = {"event": "checkpoint", "step": 3, "time": 1.0, "epoch": 2, "attempt": 1}
    given: dict[str, Any] = {"run": "shop-1", "state": "running", "has_ended": False, "message": ""}
    news = News.model_validate({**given, "news": (event,), "cursor": 77})
    assert news.exit_code == NotFinished.exit_code == 101
    assert news.short().news == ({"event": "checkpoint", "step": 3},)
    assert json.loads(news.short().model_dump_json())["cursor"] == 77


SECRET = "KeyError: case 7"
HIDDEN = "(only the owner may see messages about held-out cases)"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return make_free_project(tmp_path, monkeypatch)


@pytest.fixture
def owner(project: list[str], tmp_path: Path) -> Caller:
    return owner_of(tmp_path)


@pytest.fixture
def operator(project: list[str], tmp_path: Path) -> Caller:
    return agent_in(tmp_path)


@pytest.fixture
def secret(owner: Caller) -> RunFolder:
    """An evaluation on held-out cases."""
    folder = RunFolder(owner.runs / "secret-1")
    folder.create(EvalSpec(target="x.py:X", split="held-out").model_dump(mode="json"))
    append_state(folder, RunState.QUEUED, author="ada")
    return folder


def line(folder: RunFolder, caller: Caller) -> RunLine:
    row = read_row(folder)
    assert row is not None
    return line_of(row, folder, caller)


def test_a_run_shows_its_figures_and_how_long_it_will_take_and_why(owner: Caller) -> None:
    folder = make_run(owner, "shop-1", *RUNNING)
    for step in (1, 2, 3, 4):
        write_figures(folder, step, seconds=float(step))
    append_line(folder.metrics, {"attempt": 1, "step": 2, "validation/reward": 0.5})
    validated = {"validation/reward": 0.75, "validation/pass_rate/right": 0.8}
    append_line(folder.metrics, {"attempt": 1, "step": 4, **validated})
    shown = show_run(RunQuery(run="shop"), owner)
    assert (shown.state, shown.step, shown.steps, shown.loss) == (RunState.RUNNING, 4, 10, 0.5)
    assert (shown.pass_rates, shown.validation_pass_rates) == ({"right": 0.5}, {"right": 0.8})
    assert shown.validation_reward == 0.75
    assert shown.seconds_left == 15.0
    assert shown.estimate_basis == "6 steps left, at the pace so far"


def test_a_run_that_waits_says_what_for(owner: Caller, project: list[str]) -> None:
    (owner.folder / "sparring.toml").write_text("[budget]\nruns_at_once = 1\n")
    make_run(owner, "shop-1", *RUNNING)
    request = StartTrain(environment="shop", settings={"max_steps": 1})
    started = [start_train(request, owner) for _ in range(2)]
    assert started[0].message == "waiting for its turn: 1 of at most 1 runs are running"
    shown = [show_run(RunQuery(run=each.run), owner).message for each in started]
    assert sorted("and 1 wait before it" in each for each in shown) == [False, True]


def test_a_running_run_shows_its_last_restart_apart_from_its_message(
    owner: Caller,
) -> None:
    folder = make_run(owner, "shop-1", *RUNNING)
    given = {"cause": "killed", "message": "rank-1 was killed"}
    append_event(folder, "restart", author="supervisor", epoch=1, attempt=1, **given)
    shown = show_run(RunQuery(run="shop-1"), owner)
    assert (shown.message, shown.last_restart) == ("", "killed: rank-1 was killed")


# ---------------------------------------------------------------------- lines of a list


def test_a_line_names_the_model_s_folder_and_counts_steps_or_rollouts(owner: Caller) -> None:
    folder = make_run(owner, "shop-1", *RUNNING, policy={"model": "/models/deep/tiny"})
    write_figures(folder, 3)
    shown = line(folder, owner)
    assert (shown.model, shown.author, shown.state) == ("tiny", "ada", RunState.RUNNING)
    assert (shown.step, shown.steps, shown.reward) == (3, 10, 0.25)
    write_json(folder.heartbeat, {"format": 1, "rollouts": 4, "total": 9})
    shown = line(folder, owner)
    assert (shown.step, shown.steps, shown.reward) == (4, 9, None)


def test_a_run_whose_figures_cannot_be_read_is_listed_with_the_others(owner: Caller) -> None:
    broken = make_run(owner, "shop-1", *RUNNING)
    write_figures(make_run(owner, "shop-2", *RUNNING), 2)
    write_json(broken.heartbeat, {"format": 1, "step": "three", "metrics": {}})
    lines = {each.run: each for each in list_runs(ListRuns(), owner).runs}
    assert lines["shop-1"].message == "its figures cannot be read: ValidationError"
    assert (lines["shop-1"].state, lines["shop-1"].step) == (RunState.RUNNING, None)
    assert (lines["shop-2"].message, lines["shop-2"].step) == ("", 2)


# ---------------------------------------------------------------------- what operators see


def test_a_message_that_may_quote_a_held_out_case_is_the_owner_s(
    owner: Caller, operator: Caller, secret: RunFolder
) -> None:
    assert message_for(owner, secret, SECRET) == SECRET
    assert message_for(operator, secret, SECRET) == HIDDEN
    assert message_for(operator, secret, "") == ""
    assert message_for(operator, make_run(owner), SECRET) == SECRET, "it plays no held-out case"


def test_of_broken_cases_operators_see_the_file_whatever_the_run_plays(
    owner: Caller, operator: Caller
) -> None:
    broken = (make_run(owner), "cases.jsonl is broken:\nline 3: case 7", CasesBroken.__name__)
    assert message_for(operator, *broken) == (
        "cases.jsonl is broken; only the owner may see the details"
    )
    assert message_for(owner, *broken).endswith("case 7")


@pytest.mark.parametrize(
    ("state", "is_shown"), [(RunState.STOPPED, True), (RunState.FAILED, False)]
)
def test_everybody_sees_who_stopped_a_run(
    operator: Caller, secret: RunFolder, state: RunState, is_shown: bool
) -> None:
    history = History(state=state, message="stopped by ada")
    assert message_of(history, operator, secret) == ("stopped by ada" if is_shown else HIDDEN)


def test_operators_see_news_only_and_no_message_of_held_out_cases(
    owner: Caller, operator: Caller, secret: RunFolder
) -> None:
    events: list[dict[str, Any]] = [
        {"event": "claimed", "epoch": 1},
        {"event": "warning", "message": SECRET},
        {"event": "checkpoint", "step": 3},
        {"event": "state", "state": "stopped", "message": "stopped by ada"},
        {"event": "state", "state": "failed", "message": SECRET},
    ]
    assert visible_events(owner, secret, events) == tuple(events)
    assert visible_events(operator, secret, events) == (
        {"event": "warning", "message": HIDDEN},
        {"event": "checkpoint", "step": 3},
        {"event": "state", "state": "stopped", "message": "stopped by ada"},
        {"event": "state", "state": "failed", "message": HIDDEN},
    )


def test_interim_figures_of_held_out_cases_are_no_progress_for_operators(
    owner: Caller, operator: Caller, secret: RunFolder
) -> None:
    progress = {"rollouts": 20, "passed": 17, "reward": 0.85, "metrics": {"reward": 0.85}}
    status = RunStatus(History(), progress)
    assert visible_progress(secret, status, owner) == progress
    assert visible_progress(secret, status, operator) == {"rollouts": 20}
    assert visible_progress(make_run(owner), status, operator) == progress
    assert visible_progress(secret, RunStatus(History()), owner) is None


# ---------------------------------------------------------------------- one run


def test_processes_that_died_since_the_last_report_are_gone(owner: Caller) -> None:
    own = identity_of(os.getpid()).to_dict()
    dead, far = {**own, "start": "1"}, {**own, "start": "1", "host": "far"}
    processes = [
        {**process, "name": f"rank-{number}", "state": state, "log": "1.log"}
        for number, (process, state) in enumerate(
            [(own, "running"), (dead, "running"), (far, "running"), (dead, "done")]
        )
    ]
    folder = make_run(owner, "shop-1", *RUNNING)
    assert show_run(RunQuery(run="shop-1"), owner).processes == ()
    write_json(folder.supervisor, {"format": 1, **own, "processes": processes})
    shown = show_run(RunQuery(run="shop-1"), owner).processes
    assert shown[0] == ProcessLine(
        name="supervisor", state="running", pid=os.getpid(), host=own["host"], log=""
    )
    assert [each.state for each in shown[1:]] == ["running", "gone", "running", "done"]
    append_state(folder, RunState.COMPLETED, author="supervisor", epoch=1)
    assert show_run(RunQuery(run="shop-1"), owner).processes[0].state == "done"


def test_activity_and_stop_request_of_a_run_are_shown_until_its_end(owner: Caller) -> None:
    folder = make_run(owner, "shop-1", *RUNNING)
    write_json(folder.rank_heartbeat(0), {"format": 1, "doing": "playing"})
    history = replace(read_history(folder).history, stop=StopRequest("boss", ""))
    shown = shown_run(folder, RunStatus(history), owner)
    assert (shown.doing, shown.is_stopping_for) == ("playing", "boss")
    ended = replace(history, state=RunState.STOPPED)
    shown = shown_run(folder, RunStatus(ended), owner)
    assert (shown.doing, shown.is_stopping_for) == ("", "")


def test_a_run_of_another_host_says_where_it_is_controlled_unless_it_says_why_it_failed(
    owner: Caller,
) -> None:
    folder = make_run(owner, "shop-1", *RUNNING)
    status = replace(status_of(folder), supervisor={}, is_elsewhere=True)
    assert shown_run(folder, status, owner).message == (
        "supervised on another host; control it from there"
    )
    given = replace(status, history=replace(status.history, message="out of memory"))
    assert shown_run(folder, given, owner).message == "out of memory"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (None, "waiting for shop-1, which no longer exists"),
        (RunState.STARTING, "waiting for shop-1, which is starting"),
        (RunState.COMPLETED, "about to start"),
    ],
)
def test_a_run_that_follows_another_says_how_far_that_is(
    owner: Caller, state: RunState | None, reason: str
) -> None:
    if state is not None:
        make_run(owner, "shop-1", *dict.fromkeys((RunState.STARTING, state)))
    folder = make_run(owner, "shop-2", after="shop-1")
    assert waiting_for(folder, read_history(folder).history) == reason


def test_runs_that_follow_another_are_not_counted_in_the_queue(owner: Caller) -> None:
    make_run(owner, "shop-1", *RUNNING)
    make_run(owner, "shop-2", after="shop-1")
    make_run(owner, "shop-3")
    folder = make_run(owner, "shop-4")
    history = replace(read_history(folder).history, runs_at_once=1)
    assert waiting_for(folder, history) == (
        "waiting for its turn: 1 of at most 1 runs are running, and 1 wait before it"
    )
    assert waiting_for(folder, replace(history, runs_at_once=2)) == "about to start"
