"""An evaluation in a worker plays the split of its spec; a table without scores is a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agents import Agent

from sparring.contracts.cases import Split
from sparring.contracts.errors import EndpointError, InfrastructureError, SplitTooSmall
from sparring.contracts.specs import EvalSpec
from sparring.environments import Environment
from sparring.environments.task import Task
from sparring.jobs.eval import job
from sparring.jobs.run_job import Attempt
from sparring.jobs.worker import Heartbeat
from sparring.measures import contains
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.run_folder.sharded_log import read_rollouts
from sparring.suites import Suite
from tests.jobs.run_here import last_event, run_here
from tests.servers import ChatServer, completion

GREETER = """
from agents import Agent

from sparring import Environment, Suite, measure, passed
from sparring.contracts.verdicts import cannot_tell


@measure
def greets(rollout):
    return passed("it does")


@measure
def broken(rollout):
    raise RuntimeError("the judge is out")


@measure
def silent(rollout):
    return cannot_tell("who knows")


class Greeter(Environment):
    measures = (greets,)

    def agent(self):
        return Agent(name="greeter")

    def suite(self):
        rows = [
            {"input": f"{split} {n}", "split": split}
            for split in ("validation", "held-out")
            for n in range(20)
        ]
        return Suite.from_records(rows)


class BrokenJudge(Greeter):
    measures = (silent, broken)


class Weightless(Greeter):
    weights = {"greets": 0.0}
"""


def given(minimum: int = 1) -> Suite:
    """Cases that another process has read: two for validation."""
    rows = [{"input": f"given {n}", "split": "validation"} for n in range(2)]
    return Suite.from_records(rows, minimum_cases=minimum)


class Runner:
    """Runs evaluations against the chat server."""

    def __init__(self, place: Path, server: ChatServer) -> None:
        self.folder = RunFolder(place / "run")
        self._file = place / "greeter.py"
        self._file.write_text(GREETER)
        self._url = server.url

    def run(self, name: str, suite: Suite | None, *, is_stopped: bool = False, **spec: Any) -> None:
        endpoint = {"base_url": self._url, "model": "fake", "key_variable": "EVAL_KEY"}
        frozen = EvalSpec.model_validate(
            {
                "target": f"{self._file}:{name}",
                "policy": {"kind": "endpoint", "endpoints": [endpoint]},
                **spec,
            }
        )
        self.folder.create(frozen.model_dump(mode="json"))
        if is_stopped:
            self.folder.stop_request.write_text("{}")
        run_here(self.folder, suite=suite, owns_process=True)


@pytest.fixture
def runner(tmp_path: Path, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setenv("EVAL_KEY", "planted")
    return Runner(tmp_path, chat_server)


def test_the_cases_that_were_given_are_played_and_the_summary_is_written(runner: Runner) -> None:
    runner.run("Greeter", given())
    assert last_event(runner.folder) == "completed"
    played = read_rollouts(runner.folder.rollout_logs())
    assert sorted(str(each.case.input) for each in played) == ["given 0", "given 1"]
    summary = read_json(runner.folder.summary)
    assert (summary["rollouts"], summary["reward"]) == (2, 1.0)


def test_held_out_cases_come_from_the_environment_itself(runner: Runner) -> None:
    runner.run("Greeter", None, split="held-out", cases=3)
    played = read_rollouts(runner.folder.rollout_logs())
    assert {each.case.split.value for each in played} == {"held-out"}
    assert len(played) == 3


def test_a_split_that_is_too_small_is_refused_before_anything_is_played(
    runner: Runner, chat_server: ChatServer
) -> None:
    with pytest.raises(SplitTooSmall):
        runner.run("Greeter", given(minimum=20))
    assert chat_server.requests == []


def test_a_run_that_was_stopped_while_it_loaded_plays_nothing(
    runner: Runner, chat_server: ChatServer
) -> None:
    with pytest.raises(KeyboardInterrupt):
        runner.run("Greeter", given(), is_stopped=True)
    assert chat_server.requests == []
    assert not runner.folder.summary.exists()


def test_where_nothing_was_scored_the_measure_that_broke_is_the_reason(runner: Runner) -> None:
    with pytest.raises(
        InfrastructureError, match=r"none of 2 rollouts could be scored: .*the judge is out"
    ):
        runner.run("BrokenJudge", given())


def test_where_nothing_was_scored_because_no_measure_counts_it_says_so(runner: Runner) -> None:
    with pytest.raises(InfrastructureError, match="no measure has a weight"):
        runner.run("Weightless", given())


def test_a_server_that_refuses_gets_one_request_and_no_rollout_is_played(
    runner: Runner, chat_server: ChatServer
) -> None:
    chat_server.answer = lambda _: (401, {"error": {"message": "no such key"}})
    with pytest.raises(
        EndpointError, match=r"/v1 answered 401 \(no such key\); check that the key"
    ):
        runner.run("Greeter", given())
    assert len(chat_server.requests) == 1


def test_a_server_that_refuses_from_then_on_is_the_reason(
    runner: Runner, chat_server: ChatServer
) -> None:
    answers = iter([(200, completion("yes"))])
    refusal = (401, {"error": {"message": "no such key"}})
    chat_server.answer = lambda _: next(answers, refusal)
    with pytest.raises(
        InfrastructureError, match=r"infrastructure_error: http.* answered 401 \(no"
    ):
        runner.run("Greeter", given())


@pytest.mark.parametrize("split", ["held-out", "validation"])
def test_weights_that_only_the_agent_names_are_candidates_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str
) -> None:
    (tmp_path / "sparring.json").write_text("{}")  # as in a folder that `save` wrote

    class Named(Environment):
        measures = (contains(),)

        def agent(self) -> Agent:
            return Agent(name="named", model=str(tmp_path))

        def suite(self) -> Suite:
            return Suite.from_records([{"input": f"{n}", "split": split} for n in range(20)])

    monkeypatch.setattr(job, "load_policy", lambda *_, **__: None)
    attempt = Attempt(RunFolder(tmp_path / "run"), Heartbeat(RunFolder(tmp_path), 0, None))
    spec = EvalSpec(target="named.py", split=Split(split))
    candidate = job.EvalJob(attempt, spec, Task.of_environment(Named()))._candidate()
    assert candidate == (str(tmp_path.resolve()) if split == "held-out" else "")
