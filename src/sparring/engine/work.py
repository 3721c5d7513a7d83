"""The work of a training run: what is played and judged, with settings and a loaded model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparring.contracts.cases import Split
from sparring.contracts.errors import SplitTooSmall
from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings
from sparring.engine.configuration import check, why_one_row
from sparring.engine.loading import Loaded, load
from sparring.environments.task import Task
from sparring.learning.rows import RowRules
from sparring.measures import MeasureSet
from sparring.player.external_agent import PlayedAgent
from sparring.player.function_player import RolloutFunction
from sparring.player.player import ContextFactory
from sparring.player.sdk_run import UserFunction
from sparring.player.trial_round import longest_cases, trial_round
from sparring.policies.pretrained import max_positions_of
from sparring.suites import Suite

_TRIAL_CASES = 64


@dataclass(frozen=True, slots=True)
class TrainWork:
    """The loaded inputs of a training run: its task, its settings and its model."""

    task: Task
    settings: TrainSettings
    loaded: Loaded
    rollout_function: RolloutFunction | None = None
    optimizers: tuple[Any, Any] = (None, None)
    code_digest: str = ""

    @property
    def agent(self) -> PlayedAgent:
        """The agent of the task."""
        return self.task.agent

    @property
    def suite(self) -> Suite:
        """The cases of the task."""
        return self.task.suite

    @property
    def measures(self) -> MeasureSet:
        """The measures of the task."""
        return self.task.measures

    @property
    def context(self) -> ContextFactory | None:
        """What makes a world for a case of the task."""
        return self.task.context

    @property
    def user(self) -> UserFunction | None:
        """The user in the loop of the task."""
        return self.task.user

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
            self.agent,
            self.loaded.codec(),
            longest_cases(cases),
            context=self.context,
            budget=self.settings.max_completion_length,
            positions=max_positions_of(self.loaded.model.config),
            one_row_reason=why_one_row(self.settings),
        )

    def row_rules(self) -> RowRules:
        """Return the rules by which rollouts become rows."""
        settings = self.settings
        return RowRules(
            end_of_turn=self.loaded.codec().end_of_turn,
            vocabulary=self.loaded.model.config.get_text_config().vocab_size,
            masks_truncated=settings.mask_truncated_completions,
            keeps_results=settings.max_completion_length if settings.learns_results else 0,
            agents=settings.train_agents or None,
            one_row_reason=why_one_row(settings),
        )


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
    check(settings, task.suite.size(Split.TRAINING), world_size)
    loaded = load(
        policy,
        settings,
        agent_model=task.agent.model,
        model=model,
        tokenizer=tokenizer,
        declared=task.family,
    )
    return TrainWork(task, settings, loaded, rollout_function, optimizers, code_digest)
