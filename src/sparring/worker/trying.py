"""`python -m sparring.worker.trying`: play a little of an environment, to see that it works.

Reads what to try from standard input, and prints what it found as JSON. What the environment
prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import SparringError
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey
from sparring.contracts.specs import PlaySettings, PolicySpec
from sparring.contracts.verdicts import Judgement
from sparring.environments import Environment
from sparring.environments.environment import Parts, read_parts
from sparring.learning.judged_play import play_and_judge
from sparring.measures import MeasureSet
from sparring.player import Play, Player
from sparring.player.trainability import obstacles
from sparring.player.worlds import world_tools
from sparring.policies.loading import load_policy
from sparring.sandbox import places
from sparring.worker.opening import opened_in_passing


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    ok: bool
    detail: str = ""


class Failed(Exception):
    """Nothing more can be tried."""


class Trial:
    """Goes on to the next thing as long as that makes sense."""

    def __init__(self, model: str, cases: int, play: PlaySettings) -> None:
        self._model = model
        self._cases = cases
        self._play = play
        self.checks: list[Check] = []

    def run(self, environment: Environment) -> None:
        parts: Parts = self._tried("agent and suite", lambda: read_parts(environment))
        found = list(obstacles(parts.agent))
        self._note("agent can be trained", not found, "; ".join(found))
        sizes = {split: parts.suite.size(split) for split in Split}
        told = ", ".join(f"{size} {split.value}" for split, size in sizes.items())
        short = [split for split in Split if not _is_enough(parts, split)]
        self._note("cases", not short, told)
        if short:
            self._tried("splits", lambda: parts.suite.require(short[0]))
        measures: MeasureSet = self._tried(
            "measures",
            lambda: MeasureSet.of(
                parts.measures, environment.weights, seconds=self._play.measure_seconds
            ),
        )
        cases = list(parts.suite.cases(Split.TRAINING, self._cases))
        world = self._tried("world", lambda: parts.world(cases[0]) if parts.world else None)
        names = [each.name for each in (*parts.agent.tools, *world_tools(world))]
        self._note("tools", True, ", ".join(names) or "none")
        self._judge_silence(measures, cases[0], world)
        self._play_some(environment, parts, measures, cases)

    def _judge_silence(self, measures: MeasureSet, case: Case, world: Any) -> None:
        """An empty answer must be judged like any other, and must not pass everything."""
        key = RolloutKey(0, 0, case.id, 0)
        silent = Rollout(key, case, Ending.ANSWERED, "", world=world)
        judged = asyncio.run(measures.judge(silent))
        broken = [each for each in judged.judgements if each.cause]
        self._note("judging an empty answer", not broken, "; ".join(map(_told, broken)))
        if judged.reward is not None and judged.reward >= 1:
            self._note("an empty answer fails", False, "it passes every measure")

    def _play_some(
        self, environment: Environment, parts: Parts, measures: MeasureSet, cases: list[Case]
    ) -> None:
        policy = self._tried(
            f"model {self._model}",
            lambda: load_policy(
                PolicySpec(model=self._model), parts.agent.model, environment.family
            ),
        )
        player = Player(
            parts.agent,
            policy,
            limits=self._play.limits(),
            temperature=self._play.temperature,
            context=parts.world,
        )
        plays = [Play(RolloutKey(0, 0, case.id, 0), case) for case in cases]
        played = asyncio.run(play_and_judge(player, measures, plays))
        for each in played:
            rollout = each.rollout
            broke = rollout.ending is Ending.MACHINERY
            told = f"{rollout.ending.value} {rollout.detail}".strip()
            causes = [_told(judgement) for judgement in rollout.judgements if judgement.cause]
            calls = f", {len(rollout.tool_calls)} tool calls" if rollout.tool_calls else ""
            ok = not broke and not causes
            self._note(f"case {rollout.case.id}", ok, "; ".join([told + calls, *causes]))

    def _tried(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            made = work()
        except Exception as error:
            self._note(what, False, _named(error))
            raise Failed from error
        self._note(what, True)
        return made

    def _note(self, what: str, ok: bool, detail: str = "") -> None:
        self.checks.append(Check(what, ok, detail))


def _is_enough(parts: Parts, split: Split) -> bool:
    try:
        parts.suite.require(split)
    except SparringError:
        return False
    return True


def _named(error: Exception) -> str:
    """What went wrong, with the last line of code that was reached, unless it says so itself."""
    if isinstance(error, SparringError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


def _told(judgement: Judgement) -> str:
    return f"{judgement.measure}: {judgement.cause}"


def try_environment(asked: dict[str, Any]) -> list[Check]:
    play = PlaySettings.model_validate(asked["play"])
    trial = Trial(asked["model"], asked["cases"], play)
    try:
        with opened_in_passing(
            asked["target"], asked["config"], is_unsandboxed=play.unsandboxed
        ) as environment:
            trial.checks.append(Check("loads", True))
            trial.run(environment)
    except Failed:
        pass
    except Exception as error:
        trial.checks.append(Check("works", False, _named(error)))
    return trial.checks


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    answer = os.dup(1)
    os.dup2(2, 1)
    found = try_environment(json.load(sys.stdin))
    with os.fdopen(answer, "w") as out:
        out.write(json.dumps([asdict(each) for each in found]) + "\n")
    places.remove_all()
    os._exit(0)  # a tool that hangs in a thread must not keep it alive
