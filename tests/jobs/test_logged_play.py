"""A plan of rollouts is played into a log once, whatever interrupts it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import Agent

from sparring import measure, passed
from sparring.contracts.cases import Case
from sparring.contracts.errors import RunChanged
from sparring.contracts.policies import Sample, SampleRequest
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey
from sparring.contracts.specs import PlaySettings
from sparring.contracts.verdicts import Verdict
from sparring.environments.task import Task
from sparring.jobs.logged_play import LoggedPlay
from sparring.measures import MeasureSet
from sparring.measures.builtin import length
from sparring.player import Play, Played
from sparring.policies.codec import ChatCodec
from sparring.policies.scripted_policy import Script, ScriptedPolicy
from sparring.policies.transformers_policy import LockstepBatches
from sparring.run_folder.rollout_log import RolloutLog
from sparring.suites import Suite

CASES = [Case(f"c{n}", f"question {n}") for n in range(10)]


class LockstepScript(ScriptedPolicy):
    """A script that is played in lockstep batches, as in-process weights are."""

    samples_in_lockstep = True

    def __init__(self, script: Script, codec: ChatCodec) -> None:
        super().__init__(script, codec)
        self._batches = LockstepBatches(self._generate)

    def join(self) -> None:
        self._batches.join()

    def leave(self) -> None:
        self._batches.leave()

    async def sample(self, request: SampleRequest) -> Sample:
        return await self._batches.sample(request)

    def _generate(self, requests: list[SampleRequest]) -> list[Sample]:
        return [asyncio.run(ScriptedPolicy.sample(self, request)) for request in requests]


class World:
    """Knows whether it has ended."""

    def __init__(self) -> None:
        self.has_ended = False

    def after_rollout(self) -> None:
        self.has_ended = True


class SlowWorld(World):
    """Ends when it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ending = asyncio.Event()
        self.release = asyncio.Event()

    async def after_rollout(self) -> None:  # type: ignore[override]
        self.is_ending.set()
        await self.release.wait()
        self.has_ended = True


LENGTH = MeasureSet.of([length()])


class Plays:
    """A plan of one rollout per case, in blocks of four, with what was played and noted."""

    def __init__(
        self,
        place: Path,
        policy: ScriptedPolicy,
        cases: list[Case] = CASES,
        measures: MeasureSet = LENGTH,
    ) -> None:
        self.noted: list[str] = []
        self.seen_again: list[bool] = []
        self.worlds: list[World] = []
        self._cases = cases
        self.logged = LoggedPlay(
            place,
            self._plan,
            task=Task(
                agent=Agent(name="talker"),
                suite=Suite.from_records([{"input": "hello"}], minimum_cases=1),
                measures=measures,
                context=self._world,
            ),
            policy=policy,
            play=PlaySettings(max_concurrency=4),
            judge_again=self._look,
        )

    def _plan(self) -> Iterator[Play]:
        return (Play(RolloutKey(0, 0, case.id, 0), case) for case in self._cases)

    def _world(self) -> World:
        self.worlds.append(World())
        return self.worlds[-1]

    async def _look(self, rollout: Rollout) -> None:
        self.seen_again.append(bool(rollout.judgements) and not rollout.world.has_ended)

    def run(self, *, stop_after: int | None = None) -> list[str]:
        def note(played: Played) -> None:
            self.noted.append(played.rollout.case.id)
            if len(self.noted) == stop_after:
                raise KeyboardInterrupt

        asyncio.run(self.logged.run(note))
        return self.noted


def answer(request: SampleRequest) -> str:
    return f"answer to {request.key.rollout.case_id}"


def logged_cases(place: Path) -> list[str]:
    return [record["case"]["id"] for record in RolloutLog(place).records()]


@pytest.fixture
def codec(codecs: dict[str, ChatCodec]) -> ChatCodec:
    return codecs["qwen3"]


ALL = [case.id for case in CASES]


def test_rollouts_are_noted_once_they_are_logged_and_their_worlds_end(
    tmp_path: Path, codec: ChatCodec
) -> None:
    plays = Plays(tmp_path / "log", ScriptedPolicy(answer, codec))
    assert sorted(plays.run()) == sorted(logged_cases(tmp_path / "log")) == ALL
    assert all(world.has_ended for world in plays.worlds)
    assert plays.seen_again == [True] * len(CASES)  # each was judged, and its world was alive
    assert plays.logged.hung_tools() == []
    assert plays.logged.tokens_drawn() == 0  # a script counts no tokens


@pytest.mark.parametrize("stop_after", [1, 4, 6, 9])
def test_an_interrupted_lockstep_log_resumes_to_the_same_bytes(
    tmp_path: Path, codec: ChatCodec, stop_after: int
) -> None:
    policy = LockstepScript(answer, codec)
    assert Plays(tmp_path / "whole", policy).run() == ALL
    with pytest.raises(KeyboardInterrupt):
        Plays(tmp_path / "log", policy).run(stop_after=stop_after)
    again = Plays(tmp_path / "log", LockstepScript(answer, codec))
    assert again.run() == ALL[stop_after:]
    assert logged_cases(tmp_path / "log") == logged_cases(tmp_path / "whole") == ALL
    assert len(again.worlds) == len(CASES) - stop_after // 4 * 4  # from the start of its block
    assert all(world.has_ended for world in again.worlds)


def test_a_lockstep_log_of_another_plan_is_refused(tmp_path: Path, codec: ChatCodec) -> None:
    policy = LockstepScript(answer, codec)
    Plays(tmp_path / "log", policy, CASES[:4]).run()
    other = Plays(tmp_path / "log", policy, CASES[1:])

    async def resume() -> None:
        async with asyncio.timeout(0.5):
            await other.logged.run(lambda _: None)

    with pytest.raises(RunChanged, match="differ from the plan; start a new run"):
        asyncio.run(resume())


def breaks_on_odd(request: SampleRequest) -> str:
    if int(request.key.rollout.case_id[1:]) % 2:
        raise ConnectionError("down")
    return answer(request)


def test_with_a_server_only_rollouts_that_are_missing_or_broke_are_played(
    tmp_path: Path, codec: ChatCodec
) -> None:
    first = Plays(tmp_path / "log", ScriptedPolicy(breaks_on_odd, codec), CASES[:6])
    assert len(first.run()) == 6
    again = Plays(tmp_path / "log", ScriptedPolicy(answer, codec))
    assert sorted(each.case.id for each in again.logged.earlier()) == ["c0", "c2", "c4"]
    assert sorted(again.run()) == ["c1", "c3", "c5", "c6", "c7", "c8", "c9"]
    assert sorted(each.case.id for each in again.logged.earlier()) == ALL


def test_failed_rollouts_of_a_lockstep_log_are_not_played_again(
    tmp_path: Path, codec: ChatCodec
) -> None:
    class Broken(LockstepScript):
        async def sample(self, request: SampleRequest) -> Sample:
            if request.key.rollout.case_id == "c2":
                raise ConnectionError("down")
            return await super().sample(request)

    plays = Plays(tmp_path / "log", Broken(answer, codec), CASES[:4])
    assert plays.run() == ALL[:4]
    endings = [each.ending for each in plays.logged.earlier()]
    assert endings.count(Ending.INFRASTRUCTURE_ERROR) == 1
    assert Plays(tmp_path / "log", LockstepScript(answer, codec), CASES[:4]).run() == []


def test_a_plan_that_fails_ends_the_play_with_its_error(tmp_path: Path, codec: ChatCodec) -> None:
    class Failing(Plays):
        def _plan(self) -> Iterator[Play]:
            yield from list(super()._plan())[:2]
            raise OSError("the cases are gone")

    with pytest.raises(OSError, match="the cases are gone"):
        Failing(tmp_path / "log", ScriptedPolicy(answer, codec)).run()


@pytest.mark.parametrize("policy", [LockstepScript, ScriptedPolicy])
def test_a_play_that_is_stopped_ends_every_world_that_was_made(
    tmp_path: Path, codec: ChatCodec, policy: type[ScriptedPolicy]
) -> None:
    """The judging of the first rollout hangs while others are judged and played."""
    reached = asyncio.Event()

    @measure
    async def hanging(rollout: Rollout) -> Verdict:
        if rollout.case.id == "c0":
            await asyncio.Event().wait()
        if rollout.case.id == "c3":
            reached.set()
        return passed("yes")

    plays = Plays(tmp_path / "log", policy(answer, codec), measures=MeasureSet.of([hanging]))

    async def stopped() -> None:
        running = asyncio.create_task(plays.logged.run(lambda _: None))
        await reached.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(stopped(), 20))
    assert all(world.has_ended for world in plays.worlds)


def test_a_play_that_is_stopped_waits_for_the_worlds_that_are_ending(
    tmp_path: Path, codec: ChatCodec
) -> None:
    world = SlowWorld()

    class SlowToEnd(Plays):
        def _world(self) -> World:
            return world

    plays = SlowToEnd(tmp_path / "log", ScriptedPolicy(answer, codec), CASES[:1])

    async def stopped() -> None:
        running = asyncio.create_task(plays.logged.run(lambda _: None))
        await world.is_ending.wait()
        running.cancel()
        for _ in range(50):
            await asyncio.sleep(0)
        assert not running.done()
        world.release.set()
        await asyncio.gather(running, return_exceptions=True)
        assert world.has_ended

    asyncio.run(asyncio.wait_for(stopped(), 20))
