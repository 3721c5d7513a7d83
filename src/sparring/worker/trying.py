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
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agents import FunctionTool

from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import SparringError
from sparring.contracts.policies import SampleRequest
from sparring.contracts.rollouts import Ending, Message, RequestedCall, Rollout, RolloutKey
from sparring.contracts.specs import PlaySettings, PolicySpec
from sparring.contracts.verdicts import Judgement
from sparring.cpu import share_machine
from sparring.environments import Environment
from sparring.environments.environment import Parts, read_parts
from sparring.learning.demonstrations import (
    KnownCases,
    TriedDemonstrations,
    from_file,
    try_demonstrations,
)
from sparring.learning.judged_play import play_and_judge
from sparring.measures import MeasureSet
from sparring.player import Play, Player
from sparring.player.player import taking_a_case
from sparring.player.trainability import obstacles
from sparring.player.worlds import end_world, world_tools
from sparring.policies.loading import load_codec, load_policy
from sparring.policies.scripted_policy import Script, ScriptedPolicy
from sparring.proofs.null_players import question_of
from sparring.sandbox import places
from sparring.worker.opening import opened_in_passing


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    ok: bool
    detail: str = ""
    is_doubtful: bool = False


_DONE = Message("assistant", "Done.")
_PLENTY = 1 << 15
_SHOWN = 60
_SQLITE = "SQLite objects created in a thread"


class Failed(Exception):
    """Nothing more can be tried."""


class Trial:
    """Goes on to the next thing as long as that makes sense."""

    def __init__(
        self,
        model: str,
        cases: int,
        play: PlaySettings,
        *,
        to_train: str | None = None,
        demonstrations: str = "",
    ) -> None:
        self._to_train = to_train
        self._demonstrations = demonstrations
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
        world = self._tried("world", lambda: asyncio.run(_made(parts, cases[0])))
        tools = [*parts.agent.tools, *world_tools(world)]
        names = [each.name for each in tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        told = ", ".join(names) or "none"
        self._note("tools", not twice, f"{told}: {', '.join(twice)} twice" if twice else told)
        self._judge_silence(measures, cases[0], world)
        self._play_some(environment, parts, measures, cases, tools)

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
        self,
        environment: Environment,
        parts: Parts,
        measures: MeasureSet,
        cases: list[Case],
        tools: Sequence[Any],
    ) -> None:
        policy = self._tried(
            f"model {self._model}",
            lambda: load_policy(
                PolicySpec(model=self._model), parts.agent.model, environment.family
            ),
        )
        self._call_tools(parts, tools, cases[0], policy)
        self._try_demonstrations(environment, parts, measures)
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
            asked = " ".join(question_of(rollout.case).split())[:_SHOWN]
            self._note(f"plays “{asked}”", ok, "; ".join([told + calls, *causes]))

    def _call_tools(self, parts: Parts, tools: Sequence[Any], case: Case, policy: Any) -> None:
        """Each tool once, as a model would: with the arguments of a worked call that the case
        brings along, or with made-up ones, which a tool may well refuse."""
        functions = [each for each in tools if isinstance(each, FunctionTool)]
        if not functions:
            return
        worked = worked_arguments(case)
        calls = [
            RequestedCall(f"call-{number}", each.name, worked.get(each.name) or made_up(each))
            for number, each in enumerate(functions)
        ]

        def said(request: SampleRequest) -> Message:
            turn = request.key.turn
            return Message("assistant", "", calls=(calls[turn],)) if turn < len(calls) else _DONE

        limits = replace(self._play.limits(), tool_rounds=len(calls) + 1, completion_tokens=_PLENTY)
        player = Player(
            parts.agent, ScriptedPolicy(said, policy.codec), limits=limits, context=parts.world
        )
        plays = [Play(RolloutKey(0, 0, case.id, 0), case)]
        for rollout in asyncio.run(_played(player, plays)):
            for call in rollout.tool_calls:
                shown = f"{call.tool}({call.arguments[:_SHOWN]})"
                failed, is_worked = call.failure is not None, call.tool in worked
                result = " ".join(call.result.split())[:_SHOWN]
                self._note(f"calls {shown}", not (failed and is_worked), result, failed)

    def _try_demonstrations(
        self, environment: Environment, parts: Parts, measures: MeasureSet
    ) -> None:
        """With the tokenizer of the model to be trained: what fits is counted in its tokens."""
        if not self._demonstrations:
            return

        def work() -> TriedDemonstrations:
            model = self._to_train or parts.agent.model
            codec = load_codec(str(model), environment.family)

            def player(script: Script, budget: int | None) -> Player:
                limits = self._play.limits()
                if budget is not None:
                    limits = replace(limits, completion_tokens=budget)
                policy = ScriptedPolicy(script, codec)
                return Player(parts.agent, policy, limits=limits, context=parts.world)

            found = from_file(Path(self._demonstrations), KnownCases(parts.suite))
            return try_demonstrations(player, measures, found.demonstrations)

        try:
            tried = work()
        except Exception as error:
            self._note("demonstrations", False, _named(error))
            return
        self._note("demonstrations", tried.passed > 0, str(tried), tried.passed < tried.total)

    def _tried(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            made = work()
        except Exception as error:
            self._note(what, False, _named(error))
            raise Failed from error
        self._note(what, True)
        return made

    def _note(self, what: str, ok: bool, detail: str = "", is_doubtful: bool = False) -> None:
        if not ok and _SQLITE in detail:
            detail += (
                "; tools run on threads: open it with sqlite3.connect(…, check_same_thread=False)"
            )
        self.checks.append(Check(what, ok, detail, is_doubtful))


async def _made(parts: Parts, case: Case) -> Any:
    return await taking_a_case(parts.world)(case)


async def _played(player: Player, plays: Sequence[Play]) -> list[Rollout]:
    found = []
    async with aclosing(player.play(plays)) as stream:
        async for played in stream:
            found.append(played.rollout)
            await end_world(played.rollout.world)
    return found


def worked_arguments(case: Case) -> dict[str, str]:
    """Arguments of the calls that a case brings along, by tool."""
    if isinstance(case.input, str):
        return {}
    calls = [each for each in case.input if each.get("type") == "function_call"]
    return {str(each.get("name")): str(each.get("arguments")) for each in calls}


_MADE_UP: Mapping[str, Any] = {
    "string": "example", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {},
}  # fmt: skip


def made_up(tool: FunctionTool) -> str:
    """Arguments of the right types, by the tool's schema."""
    fields = tool.params_json_schema.get("properties", {})
    given = {
        name: each["enum"][0]
        if each.get("enum")
        else _MADE_UP.get(str(each.get("type")), "example")
        for name, each in fields.items()
    }
    return json.dumps(given)


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
    trial = Trial(
        asked["model"],
        asked["cases"],
        play,
        to_train=asked.get("to_train"),
        demonstrations=asked.get("demonstrations", ""),
    )
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
    share_machine()
    answer = os.dup(1)
    os.dup2(2, 1)
    found = try_environment(json.load(sys.stdin))
    with os.fdopen(answer, "w") as out:
        out.write(json.dumps([asdict(each) for each in found]) + "\n")
    places.remove_all()
    os._exit(0)  # a tool that hangs in a thread must not keep it alive
