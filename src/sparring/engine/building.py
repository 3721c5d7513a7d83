"""Builds the parts of a training run on this rank: engine, policy, rollout collector and steps."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from sparring.contracts.cases import Split
from sparring.contracts.errors import SettingError, WorldSizeError
from sparring.contracts.policies import TokenPolicy
from sparring.contracts.training import SamplingServers
from sparring.engine.checkpoints import Checkpoints, Identity
from sparring.engine.configuration import grpo_config, plan_of, uses_autocast
from sparring.engine.publisher import Publisher
from sparring.engine.server_faults import ServerFaults
from sparring.engine.trainer import PolicyTrainer
from sparring.engine.warm_start import use_as_reference
from sparring.engine.work import TrainWork
from sparring.learning.batches import BatchPlan
from sparring.learning.engine import Launched
from sparring.learning.guards import GuardMonitor
from sparring.learning.reporting import Hooks
from sparring.learning.rollout_collector import OrderedPlay, Plays, RolloutCollector, TrainingCases
from sparring.learning.step import Steps
from sparring.player import Player
from sparring.player.function_player import FunctionPlayer
from sparring.policies.scripted_policy import Script, ScriptedPolicy
from sparring.policies.server_policy import ServerPolicy
from sparring.policies.transformers_policy import TransformersPolicy
from sparring.run_folder import RunFolder
from sparring.run_folder.orders import Orders
from sparring.run_folder.server_list import server_addresses


@dataclass(frozen=True, slots=True)
class Built:
    """The parts of a training run that is ready to start."""

    trainer: PolicyTrainer
    collector: RolloutCollector
    policy: TokenPolicy
    checkpoints: Checkpoints
    steps: Steps

    @property
    def plan(self) -> BatchPlan:
        """The batch plan that the trainer uses."""
        return self.trainer.plan


def build(folder: RunFolder, work: TrainWork, launched: Launched, hooks: Hooks) -> Built:
    """Build engine, policy, rollout collector and steps, without playing a rollout.

    Raises WorldSizeError unless Accelerate runs as many processes as were launched.
    """
    settings = work.settings
    plan = plan_of(settings, work.suite.size(Split.TRAINING), launched.world_size)
    case_ids = work.suite.case_ids(Split.TRAINING)
    template = work.loaded.codec().digest
    identity = Identity(work.suite.digest, work.code_digest, template, launched.world_size)
    checkpoints = Checkpoints(
        folder.checkpoints, identity, boundary=plan.boundary, kept=settings.checkpoints_kept
    )
    guards = GuardMonitor(settings.guards, warn=hooks.on_warning)
    trainer = _trainer(folder, work, plan, checkpoints, guards, hooks)
    if trainer.accelerator.num_processes != launched.world_size:
        raise WorldSizeError(
            f"{launched.world_size} processes were requested, but Accelerate runs "
            f"{trainer.accelerator.num_processes}; start them with `sparring train --processes N` "
            "or torchrun"
        )
    policy = _policy(folder, trainer, work)
    collector = RolloutCollector(
        folder,
        _player(work, policy),
        work.measures,
        settings,
        rules=work.row_rules(),
        training=TrainingCases(case_ids, work.suite.finder(Split.TRAINING)),
        validation=_validation(work),
        launched=launched,
        servers=policy if isinstance(policy, ServerPolicy) else None,
        ordered=_ordered_play(folder, work, launched),
    )
    steps = Steps(trainer, collector, settings, plan, hooks, guards)

    def set_version(version: int) -> None:
        policy.version = version

    if isinstance(policy, ServerPolicy):
        publisher = Publisher(
            trainer,
            policy,
            folder.policies,
            folder.id,
            max_staleness=settings.max_staleness,
            in_play=steps.versions_in_play,
        )
        trainer.sample_with(
            set_version, publisher, _server_faults(trainer, policy, collector, work)
        )
    else:
        trainer.sample_with(set_version)
    return Built(trainer, collector, policy, checkpoints, steps)


def _trainer(
    folder: RunFolder,
    work: TrainWork,
    plan: BatchPlan,
    checkpoints: Checkpoints,
    guards: GuardMonitor,
    hooks: Hooks,
) -> PolicyTrainer:
    from datasets import Dataset

    settings, model = work.settings, work.loaded.model
    is_adapter = work.loaded.peft is not None or hasattr(model, "peft_config")
    if settings.beta and not is_adapter and not getattr(model.config, "_name_or_path", ""):
        raise SettingError(
            "beta needs a model with a name: save it with save_pretrained, and load it from there"
        )
    with _quiet():
        trainer = PolicyTrainer(
            plan=plan,
            checkpoints=checkpoints,
            coefficient=settings.world_model_coefficient,
            guards=guards,
            on_updating=lambda step: hooks.on_doing("updating", step),
            shares_prompts=settings.share_prompts,
            samples_remotely=settings.sampling is not None,
            model=model,
            args=grpo_config(settings, plan, folder.path / "engine"),
            train_dataset=Dataset.from_dict({"prompt": work.suite.case_ids(Split.TRAINING)}),
            processing_class=work.loaded.tokenizer,
            peft_config=work.loaded.peft,
            optimizers=work.optimizers,
        )
    if trainer.ref_model is not None and not trainer.is_sharded():
        use_as_reference(trainer)  # TRL loads it by name, and the model may have been changed since
    return trainer


def _policy(
    folder: RunFolder, trainer: PolicyTrainer, work: TrainWork
) -> TransformersPolicy | ServerPolicy:
    if work.settings.sampling is not None:
        return _server_policy(folder, work, work.settings.sampling)
    return TransformersPolicy(
        trainer.model,
        work.loaded.tokenizer,
        name=work.loaded.name,
        family=work.loaded.family,
        autocast=torch.bfloat16 if uses_autocast(work.settings) else None,
        turn_cache=work.settings.turn_cache,
    )


def _server_policy(folder: RunFolder, work: TrainWork, sampling: SamplingServers) -> ServerPolicy:
    servers = server_addresses(folder, sampling)
    return ServerPolicy(
        servers.read,
        work.loaded.tokenizer,
        work.loaded.family,
        name=work.loaded.name,
        key=servers.key,
        wait_seconds=sampling.wait_seconds,
    )


def _ordered_play(folder: RunFolder, work: TrainWork, launched: Launched) -> OrderedPlay | None:
    """Return the interface to the run's player processes; None without player processes."""
    if not work.settings.players or work.settings.sampling is None:
        return None
    return OrderedPlay(Orders(folder.orders), launched.rank, work.settings.num_generations)


def _server_faults(
    trainer: PolicyTrainer, policy: ServerPolicy, collector: RolloutCollector, work: TrainWork
) -> ServerFaults:
    is_adapter = work.loaded.peft is not None or hasattr(work.loaded.model, "peft_config")
    is_tied = bool(getattr(work.loaded.model.config, "tie_word_embeddings", False))
    return ServerFaults(
        sample_again=lambda request, salt: collector.loop.run(
            policy.sample_again(request, salt=salt, weights=trainer.sampling_weights)
        ),
        case_of_row=trainer.case_of_row,
        temperature=work.settings.temperature,
        is_adapter=is_adapter,
        is_tied=is_tied and not is_adapter,
    )


def player_of(work: TrainWork, script: Script) -> Player:
    """Return a player of the agent with a script in place of the model."""
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
        user=work.user,
    )


def _validation(work: TrainWork) -> Sequence[Any]:
    count = work.validation_cases()
    return list(work.suite.cases(Split.VALIDATION, count)) if count else []


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence TRL's log below errors."""
    log = logging.getLogger("trl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
