"""`python -m sparring.jobs.env_test`: tests the parts of an environment and plays a few cases.

Reads a request from standard input and prints the checks as JSON. The environment's own output
goes to standard error. Each tool is called, with a case's worked arguments or made-up ones
(jobs/tool_trial.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agents import FunctionTool

from sparring.contracts.cases import Case, Split, question_of
from sparring.contracts.errors import SparringError
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey
from sparring.contracts.specs import Limits, PlaySettings, PolicySpec
from sparring.contracts.verdicts import Judgement, Outcome
from sparring.environments import Environment
from sparring.environments.task import Task, read_measures
from sparring.jobs.environment_opening import opened_without_run
from sparring.jobs.tool_trial import SHOWN_CHARACTERS, Check, ToolTrial, thread_advice
from sparring.learning.demonstrations import (
    KnownCases,
    TriedDemonstrations,
    from_file,
    try_demonstrations,
)
from sparring.learning.rollout_collector import play_and_judge
from sparring.machine import share_machine
from sparring.measures import MeasureSet
from sparring.player import Play, Player
from sparring.player.external_agent import ExternalAgent
from sparring.player.mcp_servers import has_servers, rollout_servers, tool_names
from sparring.player.player import as_case_factory
from sparring.player.trainability import reached_agents, training_obstacles
from sparring.player.trial_round import longest_cases, trial_round
from sparring.player.worlds import end_world, world_tools
from sparring.policies.families import Family
from sparring.policies.loading import load_codec, load_policy
from sparring.policies.pretrained import DEVELOPMENT_MODELS, load_positions
from sparring.policies.scripted_policy import Script, ScriptedPolicy
from sparring.sandbox import workspaces
from sparring.suites import Suite
from sparring.tracebacks import error_with_line

_TRIAL_ROUND_CASES = 64
_PURPOSES = {Split.TRAINING: "train", Split.VALIDATION: "evaluate", Split.HELD_OUT: "prove"}


class _CannotContinue(Exception):
    """Raised after a failed check that all later checks depend on."""


class Trial:
    """Tests an environment part by part, and stops if a part fails that later checks need."""

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
        """Run all checks in order and append their results to `checks`."""
        task: Task = self._try(
            "agent and suite",
            lambda: Task.of_environment(environment, measures=MeasureSet((), {})),
        )
        obstacles = list(training_obstacles(task.agent, self._play.temperature))
        self._note("agent can be trained", not obstacles, "; ".join(obstacles))
        self._find_conflicts(task)
        self._find_shown_cases(task)
        self._count_cases(task.suite)
        measures = self._try(
            "measures",
            lambda: read_measures(environment, self._play.measure_timeout),
            lambda found: ", ".join(found.weights),
        )
        self._try_task(replace(task, measures=measures))

    def _try_task(self, task: Task) -> None:
        cases = list(task.suite.cases(task.suite.first_split(), self._cases))
        world = None
        if task.context is not None:
            world = self._try(
                "world",
                lambda: asyncio.run(_make_world(task, cases[0])),
                lambda made: type(made).__name__,
            )
        try:
            self._try_world(task, cases, world)
        finally:
            asyncio.run(end_world(world))

    def _try_world(
        self,
        task: Task,
        cases: list[Case],
        world: Any,
    ) -> None:
        tools = [*task.agent.tools, *world_tools(world)]
        names = [tool.name for tool in tools]
        if has_servers(task.agent, world):
            names += self._try("MCP servers", lambda: asyncio.run(_served(task, world)))
        repeated = sorted({name for name in names if names.count(name) > 1})
        own = "the agent's own" if isinstance(task.agent, ExternalAgent) else "none"
        listed = ", ".join(names) or own
        detail = f"{listed}; repeated: {', '.join(repeated)}" if repeated else listed
        self._note("tools", not repeated, detail)
        self._judge_silence(task.measures, cases[0], world)
        self._play_some(task, cases, tools)

    def _count_cases(self, suite: Suite) -> None:
        counts = ", ".join(f"{suite.size(split)} {split.value}" for split in Split)
        too_small = [split for split in Split if suite.size(split) < suite.minimum]
        can_evaluate = Split.VALIDATION not in too_small and suite.distinct == len(suite)
        if too_small and suite.splitter.is_adapted and can_evaluate:
            lacking = " and ".join(
                f"{suite.cases_to_add(split)} more to {_PURPOSES[split]}" for split in too_small
            )
            self._note("cases", True, f"{counts}; add {lacking}", is_doubtful=True)
            return
        self._note("cases", not too_small, counts)
        if too_small:
            self._try("splits", lambda: suite.require(too_small[0]))

    def _find_conflicts(self, task: Task) -> None:
        if task.conflicts.cases:
            self._note("expected outcomes", False, str(task.conflicts))

    def _find_shown_cases(self, task: Task) -> None:
        """Find cases that ask what a worked example answers: the model is shown their answer."""
        questions = {example.question for example in task.examples}
        shown = {
            split: sum(question_of(case) in questions for case in task.suite.cases(split))
            for split in Split
            if questions
        }
        if any(shown.values()):
            counts = ", ".join(f"{count} {split.value}" for split, count in shown.items() if count)
            detail = f"worked examples answer questions of cases ({counts}); use other questions"
            self._note("worked examples", not shown[Split.HELD_OUT], detail, is_doubtful=True)

    def _judge_silence(self, measures: MeasureSet, case: Case, world: Any) -> None:
        """Check that an empty answer can be judged and does not pass every measure."""
        key = RolloutKey(0, 0, case.id, 0)
        silent = Rollout(key, case, Ending.ANSWERED, "", world=world)
        judged = asyncio.run(measures.judge(silent))
        broken = [each for each in judged.judgements if each.cause]
        self._note("judging an empty answer", not broken, "; ".join(map(_cause, broken)))
        if judged.reward is not None and judged.reward >= 1:
            self._note("an empty answer fails", False, "it passes every measure")

    def _play_some(
        self,
        task: Task,
        cases: list[Case],
        tools: Sequence[Any],
    ) -> None:
        policy = self._try(
            f"model {self._model}",
            lambda: load_policy(
                PolicySpec(model=self._model),
                task.agent.model,
                self._family_of(task),
            ),
        )
        self._try_tool_round(task)
        self._call_tools(task, tools, cases[0], policy)
        self._try_demonstrations(task)
        player = task.player(policy, self._play)
        plays = [Play(RolloutKey(0, 0, case.id, 0), case) for case in cases]
        played = asyncio.run(play_and_judge(player, task.measures, plays))
        for each in played:
            rollout = each.rollout
            is_broken = rollout.ending in (Ending.INFRASTRUCTURE_ERROR, Ending.NO_MODEL_CALL)
            ending = f"{rollout.ending.value.replace('_', ' ')} {rollout.detail}".strip()
            calls = f", {len(rollout.tool_calls)} tool calls" if rollout.tool_calls else ""
            ok = not is_broken and not any(each.cause for each in rollout.judgements)
            question = " ".join(question_of(rollout.case).split())[:SHOWN_CHARACTERS]
            judged = map(_shown, rollout.judgements)
            self._note(f"plays “{question}”", ok, "; ".join([ending + calls, *judged]))
        if isinstance(task.agent, ExternalAgent):
            for note in task.agent.notes(self._play.temperature):
                self._note("sampling", True, note, is_doubtful=True)

    def _family_of(self, task: Task) -> Family | None:
        """Return the environment's family; None if the test model stands in for another model."""
        is_stand_in = self._model in DEVELOPMENT_MODELS
        is_stand_in = is_stand_in and self._model not in (self._to_train, task.agent.model)
        return None if is_stand_in else task.family

    def _try_tool_round(self, task: Task) -> None:
        """Check that training can learn from a tool round. The tokenizer is that of the model to be
        trained or, if it cannot be loaded, of the test model."""
        model = str(self._to_train or task.agent.model or self._model)
        positions = None
        try:
            codec = load_codec(model, task.family)
            positions = load_positions(model)
        except SparringError:  # a provider's model, or one that is not on this machine
            codec = load_codec(self._model, self._family_of(task))
        problems = trial_round(
            task.agent,
            codec,
            longest_cases(list(task.suite.cases(task.suite.first_split(), _TRIAL_ROUND_CASES))),
            context=task.context,
            examples=task.opening,
            budget=self._play.max_completion_length,
            positions=positions,
        )
        self._note("a tool round can be learned from", not problems, "; ".join(problems))

    def _call_tools(self, task: Task, tools: Sequence[Any], case: Case, policy: Any) -> None:
        """Call each function tool of the agent and its world. End the trial if one fails: every
        rollout would meet it."""
        functions = [tool for tool in tools if isinstance(tool, FunctionTool)]
        if not functions:
            return

        def player(script: Script, limits: Limits) -> Player:
            scripted = ScriptedPolicy(script, policy.codec)
            return Player(
                task.agent,
                scripted,
                limits=limits,
                context=task.context,
                examples=task.opening,
            )

        checks = ToolTrial(player, self._play, case, task.examples).checks(functions)
        self.checks += checks
        if not all(each.ok for each in checks):
            raise _CannotContinue

    def _try_demonstrations(self, task: Task) -> None:
        """Play and judge the demonstrations. The tokenizer of the model to be trained counts their
        lengths."""
        if not self._demonstrations:
            return

        def work() -> TriedDemonstrations:
            model = self._to_train or task.agent.model
            codec = load_codec(str(model), task.family)

            def player(script: Script, budget: int | None) -> Player:
                limits = self._play.limits()
                if budget is not None:
                    limits = replace(limits, completion_tokens=budget)
                policy = ScriptedPolicy(script, codec)
                return Player(
                    task.agent,
                    policy,
                    limits=limits,
                    context=task.context,
                    user=task.user,
                    examples=task.opening,
                )

            found = from_file(Path(self._demonstrations), KnownCases(task.suite))
            return try_demonstrations(player, task.measures, found.demonstrations)

        try:
            tried = work()
        except Exception as error:
            self._note("demonstrations", False, _describe(error))
            return
        self._note("demonstrations", tried.passed > 0, str(tried), tried.passed < tried.total)

    def _try(
        self, what: str, work: Callable[[], Any], describe: Callable[[Any], str] = lambda _: ""
    ) -> Any:
        """Return the result of `work` and note its description, or note its error and end the
        trial."""
        try:
            result = work()
        except Exception as error:
            self._note(what, False, _describe(error))
            raise _CannotContinue from error
        self._note(what, True, describe(result))
        return result

    def _note(self, what: str, ok: bool, detail: str = "", is_doubtful: bool = False) -> None:
        self.checks.append(Check(what, ok, detail, is_doubtful))


async def _served(task: Task, world: Any) -> list[str]:
    """Return the names of the tools of all MCP servers."""
    own = [server for agent in reached_agents(task.agent) for server in agent.mcp_servers]
    async with rollout_servers(world) as servers:
        return [*await tool_names(own), *await tool_names(servers)]


async def _make_world(task: Task, case: Case) -> Any:
    return await as_case_factory(task.context)(case)


def _describe(error: Exception) -> str:
    """Return the message of a SparringError; for others, also the type and the line that raised."""
    if isinstance(error, SparringError):
        return f"{error}{thread_advice(str(error))}"
    message = error_with_line(error)
    return f"{message}{thread_advice(message)}"


def _cause(judgement: Judgement) -> str:
    return f"{judgement.measure}: {judgement.cause}{thread_advice(judgement.cause or '')}"


def _shown(judgement: Judgement) -> str:
    """Show the verdict of a measure, or why there is none."""
    verdict = judgement.verdict
    if judgement.cause:
        return _cause(judgement)
    shown = verdict.outcome.value.replace("_", " ")
    score = f" {verdict.score:g}" if verdict.outcome is Outcome.SCORED else ""
    reason = " ".join(verdict.reason.split())[:SHOWN_CHARACTERS]
    return f"{judgement.measure} {shown}{score}: {reason}"


def try_environment(request: dict[str, Any]) -> list[Check]:
    """Open the environment, test it, and return the checks."""
    play = PlaySettings.model_validate(request["play"])
    trial = Trial(
        request["model"],
        request["cases"],
        play,
        to_train=request.get("to_train"),
        demonstrations=request.get("demonstrations", ""),
    )
    try:
        with opened_without_run(
            request["target"], request["config"], is_unsandboxed=play.unsandboxed
        ) as environment:
            trial.checks.append(Check("loads", True))
            trial.run(environment)
    except _CannotContinue:
        pass
    except Exception as error:
        trial.checks.append(Check("works", False, _describe(error)))
    return trial.checks


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    share_machine()
    reply_descriptor = os.dup(1)
    os.dup2(2, 1)  # output of the environment must not mix with the JSON
    checks = try_environment(json.load(sys.stdin))
    with os.fdopen(reply_descriptor, "w") as out:
        out.write(json.dumps([asdict(check) for check in checks]) + "\n")
    workspaces.remove_all()
    os._exit(0)  # a hanging tool thread must not keep the process alive
