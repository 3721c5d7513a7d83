"""A check plays whole groups, round by round, and says what each model did and at what cost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.kinds import CheckSpec
from sparring.contracts.policies import SampleRequest
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey
from sparring.contracts.specs import EndpointSpec
from sparring.contracts.training import TrainSettings
from sparring.contracts.verdicts import Verdict, cannot_tell, failed, passed
from sparring.environments.task import Task
from sparring.jobs.audit.auditor import Auditor
from sparring.jobs.check.play import LEARNER, CheckPlay, ModelLog, log_name
from sparring.jobs.worker import Heartbeat
from sparring.measures import Measure, MeasureSet
from sparring.player import Played, Player
from sparring.policies.codec import ChatCodec
from sparring.policies.scripted_policy import ScriptedPolicy
from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.run_folder.sharded_log import read_rollouts
from sparring.suites import Suite
from tests.rollouts import rollout
from tests.servers import ChatServer, completion

AGENT = Agent(name="talker")
SUITE = Suite.from_records(
    [{"input": f"question {n}", "id": f"c{n}", "split": "training"} for n in range(30)], id="id"
)
GROUP = 2


def says_yes(rollout: Rollout) -> Verdict:
    return passed("yes") if rollout.answer == "yes" else failed("no")


def played(
    folder: RunFolder,
    script: Callable[[SampleRequest], str],
    codec: ChatCodec,
    judge: Callable[[Rollout], Verdict] = says_yes,
    auditor: Auditor | None = None,
    **given: Any,
) -> CheckPlay:
    """A play whose model is a script; steps have two groups of two."""
    measures = MeasureSet.of([Measure("yes", judge)])
    policy = ScriptedPolicy(script, codec)
    built: Any = SimpleNamespace(
        plan=SimpleNamespace(cases_per_step=2, rollouts_per_case=GROUP),
        policy=policy,
        collector=SimpleNamespace(player=Player(AGENT, policy)),
    )
    settings = TrainSettings(num_generations=GROUP, max_concurrency=1)
    spec = CheckSpec(
        target="x.py:X", settings=settings, **{"cases": 3, "rollouts": 4, "other_cases": 1} | given
    )
    play = CheckPlay(folder, spec, Task(agent=AGENT, suite=SUITE, measures=measures), built)
    asyncio.run(play.run(auditor or Auditor(measures), Heartbeat(folder, 0, None)))
    return play


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "check")
    made.create({"format": 1, "kind": "check"})
    return made


def first_two(request: SampleRequest) -> str:
    return "yes" if request.key.rollout.index < 2 else "no"


def test_every_case_plays_one_group_before_any_plays_its_second(
    folder: RunFolder, codecs: dict[str, ChatCodec]
) -> None:
    play = played(folder, first_two, codecs["qwen3"])
    logged = [(each.case.id, each.key.index) for each in read_rollouts(folder.rollout_logs())]
    cases = ("c0", "c14", "c29")
    rounds = ((0, 1), (2, 3))
    assert logged == [(case, index) for group in rounds for case in cases for index in group]
    assert play.planned == len(play.learner) == 12


def test_after_the_play_the_dry_steps_are_what_is_left(
    folder: RunFolder, codecs: dict[str, ChatCodec]
) -> None:
    play = played(folder, first_two, codecs["qwen3"])
    assert play.measured is not None
    batch = sum(play.measured[0].batches) / len(play.measured[0].batches)
    written = read_json(folder.heartbeat)
    assert written["seconds_left"] == pytest.approx(2 * 2 * batch)  # two steps, play and update


def test_the_figures_of_the_learner_count_correct_rollouts_and_cases(
    folder: RunFolder, codecs: dict[str, ChatCodec]
) -> None:
    (learner,) = played(folder, first_two, codecs["qwen3"]).models
    assert (learner.log, learner.is_learner, learner.message) == (LEARNER, True, "")
    assert (learner.cases, learner.rollouts, learner.correct) == (3, 12, 6)
    assert (learner.accuracy, learner.any_correct, learner.reward) == (0.5, 1.0, 0.5)


def test_batches_are_timed_at_the_size_of_a_step_and_one_group_alone(
    folder: RunFolder, codecs: dict[str, ChatCodec]
) -> None:
    requests: list[int] = []

    def script(request: SampleRequest) -> str:
        requests.append(request.key.rollout.seed)
        return "yes"

    play = played(folder, script, codecs["qwen3"])
    assert play.measured is not None
    clock, cpu = play.measured
    assert len(clock.batches) == len(cpu.batches) == 12
    assert min(clock.batches) > 0
    assert clock.group > 0
    assert requests == [0] * 12 + [1] * GROUP  # the timed group has a seed of its own


def test_rollouts_of_the_learner_are_judged_again_for_the_audit(
    folder: RunFolder, codecs: dict[str, ChatCodec]
) -> None:
    auditor = Auditor(MeasureSet.of([Measure("yes", says_yes)]))
    played(folder, first_two, codecs["qwen3"], auditor=auditor)
    assert [each.score for each in auditor.observations].count(1.0) == 6
    assert all(each.at_once == each.score for each in auditor.observations)
    assert {each.rollout.partition("/")[0] for each in auditor.observations} == {LEARNER}


def test_rollouts_that_were_logged_before_count_and_only_what_is_timed_is_played_again(
    folder: RunFolder, codecs: dict[str, ChatCodec]
) -> None:
    first = played(folder, first_two, codecs["qwen3"])
    assert first.measured is not None
    keys: list[RolloutKey] = []

    def script(request: SampleRequest) -> str:
        keys.append(request.key.rollout)
        return "yes"

    auditor = Auditor(MeasureSet.of([Measure("yes", says_yes)]))
    again = played(folder, script, codecs["qwen3"], auditor=auditor)
    assert len(again.learner) == 12
    assert again.models[0].accuracy == 0.5
    assert len(keys) == 1 + GROUP  # a batch of one, and a group
    assert all(key.step or key.seed for key in keys), "seeds of their own"
    assert again.measured is not None
    assert [len(each.batches) for each in again.measured] == [1, 1]
    assert [each.score for each in auditor.observations].count(1.0) == 6


def test_a_learner_that_exceeds_its_time_keeps_what_it_played(
    folder: RunFolder, codecs: dict[str, ChatCodec]
) -> None:
    play = played(folder, first_two, codecs["qwen3"], minutes=1e-7)
    (learner,) = play.models
    assert learner.message.startswith("stopped after 1e-07 minutes with ")
    assert learner.rollouts == len(play.learner) < 12


def test_rollouts_without_a_verdict_are_unscored_and_counted_in_the_message(
    folder: RunFolder, codecs: dict[str, ChatCodec]
) -> None:
    def no_idea(_: Rollout) -> Verdict:
        return cannot_tell("no idea")

    (learner,) = played(folder, first_two, codecs["qwen3"], no_idea).models
    assert (learner.unscored, learner.accuracy, learner.any_correct) == (12, None, None)
    assert learner.message.startswith("12 of 12 rollouts unscored")


def test_a_learner_that_breaks_ends_the_check(
    folder: RunFolder, codecs: dict[str, ChatCodec], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise InfrastructureError("the disk is full")

    monkeypatch.setattr("sparring.jobs.check.play.LoggedPlay.run", broken)
    with pytest.raises(InfrastructureError, match="the disk is full"):
        played(folder, first_two, codecs["qwen3"])


def test_another_model_plays_its_own_cases_into_a_log_of_its_own(
    folder: RunFolder,
    codecs: dict[str, ChatCodec],
    chat_server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHECK_KEY", "planted")
    chat_server.answer = lambda _: (200, completion("yes"))
    other = EndpointSpec(base_url=chat_server.url, model="big/one", key_variable="CHECK_KEY")
    play = played(folder, first_two, codecs["qwen3"], others=(other,))
    found = next(each for each in play.models if not each.is_learner)
    assert (found.name, found.cases, found.rollouts, found.accuracy) == ("big/one", 1, 4, 1.0)
    assert len(read_rollouts([folder.rollouts_of(found.log)])) == 4
    assert len(play.learner) == 12


@settings(max_examples=50)
@given(st.integers(0, 99), st.text())
def test_any_model_has_a_log_name_that_stays_in_its_folder(number: int, model: str) -> None:
    name = log_name(number, model)
    assert re.fullmatch(rf"{number + 1}-[A-Za-z0-9.-]{{0,60}}", name)


def test_models_of_the_same_name_have_different_logs() -> None:
    assert log_name(0, "qwen/qwen3-8b") == "1-qwen-qwen3-8b"
    assert log_name(1, "qwen/qwen3-8b") == "2-qwen-qwen3-8b"


def lines(folder: RunFolder) -> list[str]:
    return (folder.path / "logs" / "1-big.log").read_text().splitlines()


def test_each_rollout_is_one_line_at_once_whatever_its_detail(folder: RunFolder) -> None:
    log = ModelLog(folder, "1-big", "big", 1.0)
    log.write(Played(rollout("yes", reward=0.5), 1.25))
    broken = rollout(ending=Ending.INFRASTRUCTURE_ERROR, detail="down\nTraceback:\n  line 1")
    log.write(Played(broken, 0.0))
    assert lines(folder) == [
        "c.0.0 answered, reward 0.5, 1.2 s",
        "c.0.0 infrastructure_error, unscored, 0.0 s down Traceback: line 1",
    ]


def test_a_play_that_ends_well_says_so(folder: RunFolder) -> None:
    log = ModelLog(folder, "1-big", "big", 1.0)
    with log.recording(is_required=True):
        pass
    assert log.message == ""
    assert re.fullmatch(r"big: done, \d+\.\d s", lines(folder)[-1])


def test_a_timeout_ends_the_play_with_the_count_of_its_rollouts(folder: RunFolder) -> None:
    log = ModelLog(folder, "1-big", "big", 0.25)
    with log.recording(is_required=True):
        log.write(Played(rollout("yes", reward=1.0), 1.0))
        raise TimeoutError
    assert log.message == "stopped after 0.25 minutes with 1 rollouts done"
    assert log.message in lines(folder)[-1]


def test_an_error_is_recorded_and_raised_only_where_the_model_is_required(
    folder: RunFolder,
) -> None:
    log = ModelLog(folder, "1-big", "big", 1.0)
    with log.recording(is_required=False):
        raise InfrastructureError("no reply")
    assert log.message == "no reply"
    assert "no reply" in lines(folder)[-1]
    required = ModelLog(folder, "1-big", "big", 1.0)
    with (
        pytest.raises(InfrastructureError, match="no reply"),
        required.recording(is_required=True),
    ):
        raise InfrastructureError("no reply")
    assert "big: no reply" in lines(folder)[-1]


def test_a_mistake_in_the_code_is_never_swallowed(folder: RunFolder) -> None:
    log = ModelLog(folder, "1-big", "big", 1.0)
    with pytest.raises(KeyError), log.recording(is_required=False):
        raise KeyError("typo")
    (line,) = lines(folder)
    assert "stopped by KeyError" in line


def test_a_resumed_model_appends_to_its_log(folder: RunFolder) -> None:
    for _ in range(2):
        with ModelLog(folder, "1-big", "big", 1.0).recording(is_required=True):
            pass
    assert len(lines(folder)) == 2
