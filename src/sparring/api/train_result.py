"""The result of a training run: metrics, weights, and the agent with the trained model.

`TrainResult.load` reads the result from the run's folder, in any process. `TrainingRun` is what a
proof and a shipment need of a training, without its weights.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agents import Agent, Runner

from sparring.api.notebook import Line, Rows, as_html
from sparring.api.results import Result
from sparring.contracts.cases import Case, Split, examples_before
from sparring.contracts.errors import InfrastructureError, InvalidInput, RunNotFound
from sparring.contracts.policies import Sampling, TokenPolicy
from sparring.contracts.rollouts import Ending, Rollout, RolloutKey
from sparring.contracts.specs import agent_of_target
from sparring.contracts.summaries import TrainSummary
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.environments import Environment, load_environment
from sparring.environments.environment import read_examples
from sparring.environments.examples import WorkedExample, checked_examples, input_items
from sparring.environments.task import (
    AnyAgent,
    Measures,
    Task,
    as_family,
    played_agent,
    read_task,
)
from sparring.measures import MeasureSet
from sparring.player import Play, Player
from sparring.player.external_agent import ExternalAgent, PlayedAgent
from sparring.player.mcp_servers import connected_servers, rollout_servers
from sparring.player.player import as_case_factory
from sparring.player.sdk_model import PolicyModel, common_run_config
from sparring.player.sdk_run import UserFunction
from sparring.player.worlds import end_world
from sparring.policies.families import Family
from sparring.policies.loading import load_policy
from sparring.policies.transformers_policy import TransformersPolicy
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import chosen_of, list_checkpoints
from sparring.run_folder.contents import read_history_rows, read_summary
from sparring.run_folder.files import write_json
from sparring.run_folder.layout import is_plain_name
from sparring.run_folder.records import from_record
from sparring.run_folder.sharded_log import ShardedLog
from sparring.shipping.template import write_tokenizer
from sparring.threads import run_in_own_loop

if TYPE_CHECKING:
    from sparring.player.player import ContextFactory
    from sparring.suites import Suite


@dataclass(frozen=True, repr=False)
class TrainResult(Result[TrainSummary]):
    """The result of a training run; `load` returns the result of an earlier run.

    The `model` and `policy` that `train()` returns have the weights of the last step. `load`,
    `prove`, `ship` and the commands use the best checkpoint. `task` is what was trained on; a run
    that was started from Python and loaded later has none.
    """

    agent: PlayedAgent
    model: Any
    tokenizer: Any
    policy: TokenPolicy
    settings: TrainSettings
    task: Task | None = None
    worked_examples: tuple[WorkedExample, ...] = ()

    @classmethod
    def load(
        cls,
        run: str,
        *,
        runs: str | Path = "runs",
        agent: AnyAgent | None = None,
        family: Family | str | None = None,
        examples: Sequence[WorkedExample] | None = None,
    ) -> Self:
        """Load a training run by its id, or the end of its id, with the weights of its best
        checkpoint, or of its last if none was validated. For a run that was started from Python,
        pass its `agent`, and its `family` and `examples` if it had any."""
        declared = as_family(family)
        folder = _find(Path(runs), run)
        spec = TrainSpec.model_validate(folder.read_spec())
        chosen = chosen_of(list_checkpoints(folder.checkpoints))
        if chosen is None or not folder.summary.is_file():
            raise InvalidInput(
                f"run {folder.id} has not ended with a checkpoint yet; wait for it, or resume it"
            )
        task = None
        worked = () if examples is None else checked_examples(examples, "examples")
        if isinstance(agent, Environment) and examples is None:
            worked = read_examples(agent)
        if agent is None:
            if spec.is_from_python:
                raise InvalidInput(
                    f"run {folder.id} was started from Python and did not store its agent: "
                    "pass agent=…"
                )
            environment = load_environment(spec.target, spec.config)
            environment.is_unsandboxed = spec.settings.unsandboxed
            task = Task.of_environment(environment, measures=MeasureSet((), {}))
            agent, declared = task.agent, declared or task.family
            worked = task.examples if examples is None else worked
        played = played_agent(agent)
        weights = spec.policy.model_copy(update={"model": str(chosen.path)})
        policy = load_policy(weights, played.model, declared)
        if not isinstance(policy, TransformersPolicy):
            raise InvalidInput(f"run {folder.id} was not trained with weights in its own process")
        return cls(
            folder=folder,
            summary=read_summary(folder, TrainSummary),
            agent=played,
            model=policy.model,
            tokenizer=policy.tokenizer,
            policy=policy,
            settings=spec.settings,
            task=task,
            worked_examples=worked,
        )

    @cached_property
    def case(self) -> Case | None:
        """The first training case; None without a task."""
        return None if self.task is None else next(self.task.suite.cases(Split.TRAINING, 1))

    @property
    def examples(self) -> Sequence[Any]:
        """The input items before a question: the worked examples, then the earlier messages of the
        first training case."""
        before = examples_before(self.case) if self.case else []
        return [*input_items(self.worked_examples), *before]

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """One row of metrics per step."""
        return read_history_rows(self.folder)

    @property
    def final_loss(self) -> float | None:
        """The loss of the last step; None if no step was completed."""
        loss: float | None = self.summary.last.get("loss")
        return loss

    @property
    def best(self) -> Path | None:
        """The checkpoint with the highest validation reward; None without validation."""
        found = self.summary.best_checkpoint
        return Path(found) if found else None

    @property
    def headline(self) -> str:
        """The run, its steps and its time."""
        done, planned = self.summary.steps, self.summary.planned_steps
        stopped = f", stopped before step {planned}" if done < planned else ""
        return f"{self.run}: {done} steps in {self.summary.seconds:.0f} s{stopped}"

    def rows(self) -> Rows:
        """Return the validation reward at each step that has one."""
        return [
            (f"validation reward at step {row['step']}", f"{row['reward']:.3f}")
            for row in self.summary.validation
        ]

    def _repr_html_(self) -> str:
        lines = [
            Line(
                name, [(row["step"], row[key]) for row in self.history if row.get(key) is not None]
            )
            for name, key in (("reward", "reward"), ("validation", "validation/reward"))
        ]
        return as_html(self.headline, self.rows(), lines)

    def trained_agent(self, sampling: Sampling | None = None) -> Agent[Any]:
        """Return the agent with the trained model, for the SDK's `Runner`. Agents that it hands off
        to use the same model. With `Runner.run(agent, "…", context=world)`, all of them have the
        tools of `world`. The worked examples precede the input of every run, as in training.
        `sampling` defaults to the temperature and token limit of the training."""
        sampling = sampling or Sampling(
            self.settings.temperature, self.settings.max_completion_length
        )
        if isinstance(self.agent, ExternalAgent):
            raise InvalidInput(
                f"{self.agent.name} is not an agent of the agents SDK; generate() plays it, and "
                "save() writes the weights for a server that it can call"
            )
        examples = input_items(self.worked_examples)
        return self.agent.clone(model=PolicyModel(self.policy, sampling, examples=examples))

    def generate(
        self,
        prompt: str | list[Any],
        *,
        max_new_tokens: int = 256,
        temperature: float = 0.7,
        repetition_penalty: float = 1.2,
        context: Any = None,
    ) -> str:
        """Return the trained agent's answer, without its thinking. The agent has its instructions,
        its tools and those of `context`, which is by default a new world for `case`. `examples`
        precede a `prompt` that is a string; only the worked examples precede a list. An agent
        behind the gateway is sampled without the penalty."""
        if isinstance(prompt, str):
            prompt = [*self.examples, {"role": "user", "content": prompt}]
        if isinstance(self.agent, ExternalAgent):
            sampling = Sampling(temperature, max_new_tokens)
            return run_in_own_loop(self._play(self.agent, prompt, sampling, context))
        sampling = Sampling(temperature, max_new_tokens, repetition_penalty)
        return run_in_own_loop(self._answer(self.trained_agent(sampling), prompt, context))

    async def _answer(self, agent: Agent[Any], prompt: list[Any], context: Any) -> str:
        async with (
            self._world(context) as world,
            connected_servers(agent),
            rollout_servers(world) as servers,
        ):
            result = await Runner.run(
                agent.clone(mcp_servers=[*agent.mcp_servers, *servers]),
                prompt,
                context=world,
                max_turns=self.settings.max_turns,
                run_config=common_run_config(),
            )
        return str(result.final_output)

    async def _play(
        self, agent: ExternalAgent, prompt: list[Any], sampling: Sampling, context: Any
    ) -> str:
        key = RolloutKey(secrets.randbits(31), 0, "generated", 0)
        given = prompt[0]["content"] if len(prompt) == 1 else prompt
        async with self._world(context) as world:
            player = Player(
                agent,
                self.policy,
                limits=replace(self.settings.limits(), completion_tokens=sampling.max_tokens),
                temperature=sampling.temperature,
                context=lambda: world,
            )
            rollout = await player.play_one(Play(key, Case("generated", given)))
        if rollout.ending in (Ending.INFRASTRUCTURE_ERROR, Ending.NO_MODEL_CALL):
            raise InfrastructureError(rollout.detail)
        return rollout.answer

    @asynccontextmanager
    async def _world(self, given: Any) -> AsyncIterator[Any]:
        """Yield the given world, or else a new one, which ends after the block."""
        if given is not None or self.case is None:
            yield given
            return
        world = await as_case_factory(self.task.context if self.task else None)(self.case)
        try:
            yield world
        finally:
            await end_world(world)

    def save(self, folder: str | Path, *, merged: bool = False) -> Path:
        """Save weights, tokenizer and settings, and return the folder. After LoRA, the weights are
        the adapter or, with `merged`, the whole model."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        model = self.model
        if merged:
            if not hasattr(model, "merge_and_unload"):
                raise InvalidInput(
                    "there is no adapter to merge; save() alone writes the whole model"
                )
            model = copy.deepcopy(model).merge_and_unload()
        model.save_pretrained(place)
        write_tokenizer(self.tokenizer, place, self.tokenizer.chat_template or "")
        settings = self.settings.model_dump(mode="json")
        write_json(place / "sparring.json", {"run": self.run, "settings": settings})
        return place

    def rollouts(self) -> Iterator[Rollout]:
        """Yield every training rollout, read from disk one at a time."""
        log = ShardedLog(self.folder.rollout_logs())
        for record in log.records(0, len(log)):
            yield from_record(record)


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training run as its proof and shipment need it. `known_task` is what it was trained on, if
    this process has it."""

    folder: RunFolder
    spec: TrainSpec
    known_task: Task | None = None

    @classmethod
    def find(cls, run: TrainResult | str | Path, runs: Path) -> Self:
        """Return the training of a result, or of an id, the end of an id, or a run's folder."""
        if isinstance(run, TrainResult):
            folder, task = run.folder, run.task
        elif isinstance(run, str | Path):
            folder, task = _find(runs, run), None
        else:
            raise InvalidInput(
                f"the run must be the result of train(), or the id or folder of its run, not "
                f"{type(run).__name__}"
            )
        return cls(folder, TrainSpec.model_validate(folder.read_spec()), task)

    @property
    def name(self) -> str:
        """The name of the environment, else of the agent."""
        return self.spec.environment or agent_of_target(self.spec.target)

    def task(
        self,
        agent: AnyAgent | None,
        suite: Suite | None,
        measures: Measures | None,
        *,
        weights: Mapping[str, float] | None,
        context: ContextFactory | None,
        user: UserFunction | None,
        family: Family | str | None,
        examples: Sequence[WorkedExample] | None,
        verb: str,
    ) -> Task | None:
        """Return what the trained model plays; None if the environment's file has it. Raises
        InvalidInput if nothing has it."""
        if not self.spec.is_from_python:
            return None
        if agent is not None:
            return read_task(
                agent,
                suite,
                measures,
                weights=weights,
                context=context,
                user=user,
                family=family,
                examples=examples,
                settings=self.spec.settings,
            )
        if self.known_task is None:
            raise InvalidInput(
                f"run {self.folder.id} was started from Python, and its agent, suite and measures "
                f"exist only there: pass them to {verb}(), as you did to train()"
            )
        return self.known_task


def _find(runs: Path, run: str | Path) -> RunFolder:
    name = str(run)
    paths = [Path(run).expanduser()]
    if is_plain_name(name):
        paths = [runs / name, *sorted(runs.glob(f"*-{name}"), reverse=True)]
    for path in paths:
        folder = RunFolder(path)
        if folder.spec.is_file() and folder.read_spec().get("kind") == "train":
            return folder
    raise RunNotFound(f"there is no training {name[:80]!r} in {runs.absolute()}")
