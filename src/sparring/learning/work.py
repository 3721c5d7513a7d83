"""The work of a training: its task, settings and loaded model, and the parts built of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import SplitTooSmall
from sparring.contracts.policies import SampleRequest, TokenPolicy
from sparring.contracts.rollouts import RolloutKey
from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings
from sparring.environments.task import Task
from sparring.learning.batches import BatchPlan
from sparring.learning.engine import Engine, Launched, Learner, Opening, engine_named
from sparring.learning.guards import GuardMonitor
from sparring.learning.reporting import Hooks
from sparring.learning.rollout_collector import OrderedPlay, RolloutCollector, TrainingCases
from sparring.learning.rows import RowRules
from sparring.learning.step import Steps
from sparring.player import Play, Player
from sparring.player.function_player import FunctionPlayer, RolloutFunction
from sparring.player.trial_round import longest_cases, trial_round
from sparring.player.worlds import end_world
from sparring.policies.caches import common_prefix
from sparring.policies.scripted_policy import Script, ScriptedPolicy
from sparring.run_folder import RunFolder
from sparring.run_folder.orders import Orders
from sparring.suites import Suite
from sparring.threads import LoopThread

_TRIAL_CASES = 64
_PROMPT_CASES = 4
_DEFAULT_PROMPT_TOKENS = 512  # for a rollout function, whose prompts are unknown


@dataclass(frozen=True, slots=True)
class TrainWork:
    """The loaded inputs of a training run: its task, its settings and its model."""

    task: Task
    settings: TrainSettings
    learner: Learner
    rollout_function: RolloutFunction | None = None
    code_digest: str = ""

    @property
    def suite(self) -> Suite:
        """The cases of the task."""
        return self.task.suite

    def validation_cases(self) -> int:
        """Return the number of validation cases to play.

        If the split is too small, this is 0 without the setting `validation_cases`; with it,
        SplitTooSmall is raised.
        """
        wanted = self.settings.validation_cases
        if wanted == 0:
            return 0
        try:
            self.suite.require(Split.VALIDATION)
        except SplitTooSmall:
            if wanted is None:
                return 0
            raise
        return min(self.settings.most_validation_cases, self.suite.size(Split.VALIDATION))

    def trial_problems(self) -> list[str]:
        """Play a scripted round on the longest cases, and return the problems found."""
        if self.rollout_function is not None:
            return []
        cases = list(self.suite.cases(Split.TRAINING, _TRIAL_CASES))
        return trial_round(
            self.task.agent,
            self.learner.codec(),
            longest_cases(cases),
            context=self.task.context,
            examples=self.task.opening,
            budget=self.settings.max_completion_length,
            positions=self.learner.positions,
            one_row_reason=self.learner.one_row_reason,
        )

    def row_rules(self) -> RowRules:
        """Return the rules by which rollouts become rows."""
        settings = self.settings
        return RowRules(
            end_of_turn=self.learner.codec().end_of_turn,
            vocabulary=self.learner.vocabulary,
            masks_truncated=settings.mask_truncated_completions,
            keeps_results=settings.max_completion_length if settings.learns_results else 0,
            agents=settings.train_agents or None,
            one_row_reason=self.learner.one_row_reason,
        )

    def player(self, policy: TokenPolicy) -> Player:
        """Return a player of the task's agent with this policy."""
        return self.task.player(policy, self.settings)

    def scripted_player(self, script: Script) -> Player:
        """Return a player of the agent with a script in place of the model."""
        return self.player(ScriptedPolicy(script, self.learner.codec()))


def load_work(
    task: Task,
    settings: TrainSettings,
    policy: PolicySpec,
    world_size: int,
    *,
    model: Any = None,
    tokenizer: Any = None,
    rollout_function: RolloutFunction | None = None,
    optimizers: tuple[Any, Any] = (None, None),
    code_digest: str = "",
) -> TrainWork:
    """Check the settings against the task's cases, and then load the model, which may take minutes:
    the one that `policy` or the agent names, or the objects `model` and `tokenizer`."""
    task.suite.require(Split.TRAINING)
    engine = engine_named()
    engine.check(settings, task.suite.size(Split.TRAINING), world_size)
    learner = engine.load(
        policy,
        settings,
        agent_model=task.agent.model,
        model=model,
        tokenizer=tokenizer,
        declared=task.family,
        optimizers=optimizers,
    )
    return TrainWork(task, settings, learner, rollout_function, code_digest)


@dataclass(frozen=True, slots=True)
class Built:
    """The parts of a training run that is ready to start."""

    work: TrainWork
    engine: Engine
    collector: RolloutCollector
    steps: Steps

    @property
    def policy(self) -> TokenPolicy:
        """What samples with the engine's weights."""
        return self.engine.policy

    @property
    def plan(self) -> BatchPlan:
        """The batch plan that the engine uses."""
        return self.engine.plan

    def prompt_tokens(self) -> tuple[int, int]:
        """Return the length in tokens of the longest prompt of a few cases, and that of the prefix
        that their prompts share. The agent plays them with scripted answers, so nothing is
        sampled."""
        work = self.work
        if work.rollout_function is not None:
            return _DEFAULT_PROMPT_TOKENS, 0
        prompts: list[list[int]] = []

        def answer(request: SampleRequest) -> str:
            prompts.append(list(request.prompt))
            return "."

        async def play() -> None:
            cases = work.suite.spread(_PROMPT_CASES)
            plays = [Play(RolloutKey(0, 0, case.id, 0), case) for case in cases]
            async for played in work.scripted_player(answer).play(plays):
                await end_world(played.rollout.world)

        self.collector.loop.run(play())
        if not prompts:
            return _DEFAULT_PROMPT_TOKENS, 0
        return max(map(len, prompts)), common_prefix(prompts)


def build(folder: RunFolder, work: TrainWork, launched: Launched, hooks: Hooks) -> Built:
    """Build engine, rollout collector and steps, without playing a rollout."""
    suite, settings = work.suite, work.settings
    guards = GuardMonitor(settings.guards, warn=hooks.on_warning)
    loop = LoopThread()
    engine = work.learner.open(
        Opening(
            folder=folder,
            settings=settings,
            case_ids=suite.case_ids(Split.TRAINING),
            suite_digest=suite.digest,
            code_digest=work.code_digest,
            launched=launched,
            guards=guards,
            run=loop.run,
            on_updating=lambda step: hooks.on_doing("updating", step),
        )
    )
    function, ordered = work.rollout_function, None
    if settings.players and settings.sampling is not None:
        ordered = OrderedPlay(Orders(folder.orders), launched.rank, settings.num_generations)
    validated = work.validation_cases()
    collector = RolloutCollector(
        folder,
        work.player(engine.policy)
        if function is None
        else FunctionPlayer(function, engine.policy, settings.limits()),
        work.task.measures,
        settings,
        rules=work.row_rules(),
        training=TrainingCases(suite.case_ids(Split.TRAINING), suite.finder(Split.TRAINING)),
        validation=list(suite.cases(Split.VALIDATION, validated)) if validated else (),
        launched=launched,
        servers=engine.versions,
        ordered=ordered,
        loop=loop,
    )
    steps = Steps(engine, collector, settings, hooks, guards)
    return Built(work, engine, collector, steps)
