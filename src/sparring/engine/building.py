"""Putting one training together on this rank: model, trainer, policy, practice."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from agents import Agent

from sparring.contracts.cases import Split
from sparring.contracts.errors import SparringError
from sparring.contracts.policies import TokenPolicy
from sparring.contracts.training import TrainSettings
from sparring.engine.checkpoints import Checkpoints, Identity
from sparring.engine.configuration import grpo_config, plan_of, uses_autocast
from sparring.engine.echo import Echo
from sparring.engine.grpo import Hooks, PolicyTrainer
from sparring.engine.loading import Loaded
from sparring.engine.ranks import Launched
from sparring.engine.vllm_sampler import VllmSampler
from sparring.learning.batches import BatchPlan
from sparring.learning.guards import Watch
from sparring.learning.judged_play import Plays
from sparring.learning.practice import Practice, Training, Vocabulary
from sparring.measures import MeasureSet
from sparring.player import Player
from sparring.player.own_rollouts import FunctionPlayer, RolloutFunction
from sparring.player.player import ContextFactory
from sparring.player.trainability import has_tools
from sparring.policies.scripted_policy import Script, ScriptedPolicy
from sparring.policies.transformers_policy import TransformersPolicy
from sparring.run_folder import RunFolder
from sparring.suites import Suite

_VALIDATION_CASES = 64


@dataclass(frozen=True, slots=True)
class TrainWork:
    """Everything a training needs, already loaded."""

    agent: Agent[Any]
    suite: Suite
    measures: MeasureSet
    settings: TrainSettings
    loaded: Loaded
    context: ContextFactory | None = None
    rollout_function: RolloutFunction | None = None
    optimizers: tuple[Any, Any] = (None, None)
    code_digest: str = ""

    def validation_cases(self) -> int:
        """How many validation cases are played; none where the split is too small to tell."""
        wanted = self.settings.validation_cases
        if wanted == 0:
            return 0
        try:
            self.suite.require(Split.VALIDATION)
        except SparringError:
            if wanted is None:
                return 0
            raise
        return min(wanted or _VALIDATION_CASES, self.suite.size(Split.VALIDATION))

    def has_tools(self) -> bool:
        return self.rollout_function is None and has_tools(self.agent, self.context)


@dataclass(frozen=True, slots=True)
class Built:
    """A training that is ready to go."""

    trainer: PolicyTrainer
    practice: Practice
    policy: TokenPolicy
    checkpoints: Checkpoints

    @property
    def plan(self) -> BatchPlan:
        return self.trainer.plan

    def notes(self) -> list[str]:
        """What works otherwise than one would expect."""
        if self.trainer.why_prompts_are_not_shared:
            return [
                "prompts are computed once per rollout in the update: "
                + self.trainer.why_prompts_are_not_shared
            ]
        return []


def build(folder: RunFolder, work: TrainWork, launched: Launched, hooks: Hooks) -> Built:
    """Everything in place; nothing played yet."""
    from datasets import Dataset

    plan = plan_of(work.settings, work.suite.size(Split.TRAINING), launched.world_size)
    case_ids = work.suite.case_ids(Split.TRAINING)
    codec = work.loaded.codec()
    identity = Identity(work.suite.digest, work.code_digest, codec.digest, launched.world_size)
    checkpoints = Checkpoints(
        folder.checkpoints, identity, boundary=plan.boundary, kept=work.settings.checkpoints_kept
    )
    config = grpo_config(work.settings, plan, folder.path / "engine", sorted(codec.stop_ids))
    with _quiet():
        trainer = PolicyTrainer(
            hooks=hooks,
            checkpoints=checkpoints,
            plan=plan,
            echo=Echo(
                work.settings.world_model_coefficient,
                work.settings.world_model_normalization,
                work.settings.max_completion_length,
            ),
            watch=Watch(work.settings.guards, has_tools=work.has_tools(), warn=hooks.on_warning),
            shares_prompts=work.settings.share_prompts,
            model=work.loaded.model,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": case_ids}),
            processing_class=work.loaded.tokenizer,
            peft_config=work.loaded.peft,
            optimizers=work.optimizers,
        )
    policy, after_playing = _policy(trainer, work)
    practice = Practice(
        folder,
        _player(work, policy),
        work.measures,
        work.settings,
        vocabulary=Vocabulary(trainer.model.config.get_text_config().vocab_size, codec.end_of_turn),
        training=Training(case_ids, work.suite.finder(Split.TRAINING)),
        validation=_validation(work),
        place=launched.place,
    )
    trainer.begin(practice, world_size=launched.world_size, after_playing=after_playing)
    return Built(trainer, practice, policy, checkpoints)


def _policy(trainer: PolicyTrainer, work: TrainWork) -> tuple[TokenPolicy, Callable[[], None]]:
    """Who samples, and what has to happen when a rank is done playing."""
    if not trainer.use_vllm:
        policy = TransformersPolicy(
            trainer.model,
            work.loaded.tokenizer,
            name=work.loaded.name,
            family=work.loaded.family,
            autocast=torch.bfloat16 if uses_autocast(work.settings) else None,
        )
        return policy, lambda: None

    def largest(mine: int) -> int:
        device = trainer.accelerator.device
        if device.type == "cuda":
            torch.cuda.set_device(device)  # waves are generated in a thread of their own
        told = torch.tensor([mine], device=device)
        return int(trainer.accelerator.gather(told).max())

    sampler = VllmSampler(trainer.vllm_generation, work.loaded.codec(), largest)
    return sampler, sampler.finish_round


def player_of(work: TrainWork, script: Script) -> Player:
    """The player of this training, with a script in place of the model."""
    return _agent_player(work, ScriptedPolicy(script, work.loaded.codec()))


def _player(work: TrainWork, policy: TokenPolicy) -> Plays:
    if work.rollout_function is not None:
        return FunctionPlayer(work.rollout_function, policy, work.settings.limits())
    return _agent_player(work, policy)


def _agent_player(work: TrainWork, policy: TokenPolicy) -> Player:
    return Player(
        work.agent,
        policy,
        limits=work.settings.limits(),
        temperature=work.settings.temperature,
        context=work.context,
    )


def _validation(work: TrainWork) -> Sequence[Any]:
    count = work.validation_cases()
    return list(work.suite.cases(Split.VALIDATION, count)) if count else []


@contextmanager
def _quiet() -> Iterator[None]:
    """Without TRL's word on its own seam being experimental; a contract test watches it."""
    log = logging.getLogger("trl")
    level = log.level
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*rollout_func.*")
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)
