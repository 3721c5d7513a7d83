"""TRL's GRPO trainer on Sparring's rollouts.

TRL computes advantages, loss and update, and owns optimizer, schedule and data order. Sparring
provides the rollouts (through `rollout_func`), the blended rewards, the masks, the parity gate and
the checkpoints. The contract tests on TRL are in tests/engine/test_trl_contract.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import PrinterCallback

from sparring.contracts.errors import InfrastructureError, SettingError, WorldSizeError
from sparring.contracts.specs import FORMAT
from sparring.engine.case_order import CaseOrder
from sparring.engine.checkpoint_trainer import CheckpointTrainer
from sparring.engine.checkpoints import Checkpoints
from sparring.engine.echo import Echo
from sparring.engine.hooks import Hooks
from sparring.engine.parity_gate import FindFault, ParityGate
from sparring.engine.publisher import Publisher
from sparring.engine.step_callbacks import StepCallbacks
from sparring.engine.step_reports import StepReports, merged_over_ranks
from sparring.learning.echo_weights import Totals
from sparring.learning.guards import GuardMonitor
from sparring.learning.rollout_collector import RolloutCollector
from sparring.learning.rollout_pipeline import Pace, PlayedStep, RolloutPipeline
from sparring.learning.rows import LearningRollout, masked_row
from sparring.learning.step_counts import StepCounts
from sparring.learning.step_rollouts import Gaps, gaps_of
from sparring.policies.quantized_base import widen_adapter
from sparring.policies.vllm_server import PublishedWeights
from sparring.run_folder.checkpoint_list import DIFFICULTY, IN_PLAY, IN_PLAY_WEIGHTS, Checkpoint
from sparring.run_folder.files import read_json, write_json


class PolicyTrainer(CheckpointTrainer):
    """A GRPO trainer that plays cases and updates the weights. It checks parity in the first step
    that has sampled tokens to compare, and with sampling servers in every step."""

    def __init__(
        self,
        *,
        hooks: Hooks,
        checkpoints: Checkpoints,
        echo: Echo,
        guards: GuardMonitor,
        samples_remotely: bool = False,
        **trl: Any,
    ) -> None:
        self._collector: RolloutCollector | None = None
        self._echo = echo
        self._guards = guards
        self.reports = StepReports(hooks, guards)
        self._pipeline: RolloutPipeline | None = None
        self._played_step: PlayedStep | None = None
        self._learned: list[LearningRollout] = []
        self._is_parity_due = True
        self._samples_remotely = samples_remotely
        self._publisher: Publisher | None = None
        self._find_fault: FindFault | None = None
        self._cases: list[str] = []
        self._case_order: CaseOrder | None = None
        self.epochs_before = 0
        self.stopped = False
        super().__init__(
            hooks=hooks,
            checkpoints=checkpoints,
            reward_funcs=[_blended],
            rollout_func=_play,
            **trl,
        )
        widen_adapter(self.model)
        self.remove_callback(PrinterCallback)
        self.add_callback(StepCallbacks(self))
        self._refuse_sharded_weights()

    @property
    def collector(self) -> RolloutCollector:
        """The rollout collector. Raises SettingError before `begin`."""
        if self._collector is None:
            raise SettingError("the trainer has no rollout collector; call begin() before train()")
        return self._collector

    @property
    def pipeline(self) -> RolloutPipeline:
        """The pipeline that plays this step and, with `max_staleness`, later ones. Raises
        SettingError before `begin`."""
        if self._pipeline is None:
            raise SettingError("the trainer has no rollouts; call begin() before train()")
        return self._pipeline

    @property
    def sampling_weights(self) -> PublishedWeights | None:
        """The published weights that sampled the rollouts being scored; None without servers."""
        return self._played_step.weights if self._played_step else None

    def begin(
        self,
        collector: RolloutCollector,
        *,
        world_size: int,
        max_staleness: int = 0,
        before_playing: Callable[[int], None] = lambda _version: None,
        after_playing: Callable[[], None] = lambda: None,
    ) -> None:
        """Set the rollout collector. It is built after the trainer, because its policy samples from
        the model that the trainer wraps.

        `before_playing` is called with the current step before this rank plays a step or validates,
        `after_playing` when it has finished. Raises WorldSizeError unless Accelerate runs
        `world_size` processes.
        """
        self._collector = collector
        pace = Pace(self.plan.steps, max_staleness, self.plan.boundary)
        self._pipeline = RolloutPipeline(collector, pace, self._look_ahead)
        self.before_playing = before_playing
        self.after_playing = after_playing
        if self.accelerator.num_processes != world_size:
            raise WorldSizeError(
                f"{world_size} processes were requested, but Accelerate runs "
                f"{self.accelerator.num_processes}; start them with `sparring train --processes N` "
                "or torchrun"
            )

    def use_servers(self, publisher: Publisher, find_fault: FindFault) -> None:
        """Use sampling servers. `publisher` publishes the weights before each generation, and TRL
        corrects for gaps that parity allows. `find_fault` returns the cause of a gap that is too
        large."""
        self.use_vllm = True  # set late, because TRL's constructor would start its own vLLM
        self.vllm_generation = self._publisher = publisher
        self._last_loaded_step = -1
        self._find_fault = find_fault

    def sync_sampler(self) -> None:
        """Send the current weights to the sampler if it has an older copy of the weights."""
        if self.use_vllm and getattr(self, "_last_loaded_step", -1) != self.state.global_step:
            self.vllm_generation.sync_weights()  # TRL syncs only before it generates
            self._last_loaded_step = self.state.global_step

    # ------------------------------------------------------------------ a step

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        """Return TRL's sampler with its random generator advanced by `epochs_before` epochs."""
        sampler = super()._get_train_sampler(dataset)
        for _ in range(self.epochs_before):
            torch.randperm(sampler.num_samples, generator=sampler.generator)
        return sampler

    def play(self, case_ids: list[str]) -> dict[str, list[Any]]:
        """Play this rank's cases, and return the rows for TRL. `case_ids` repeats each case once
        per rollout.

        A rollout may have several rows. Masked rows are appended, so that every rank returns the
        same number of rows.
        """
        self.doing("playing")
        rng = torch.get_rng_state()
        was_training = self.model.training
        self.model.eval()
        try:
            self.before_playing(self.state.global_step)
            step = self.pipeline.take(self._proposed(case_ids), self.state.global_step)
            self.after_playing()
        finally:
            self.model.train(was_training)
            torch.set_rng_state(rng)  # a tool that draws random numbers must not affect training
        played, self._played_step = step.rollouts, step
        results = gather_object(played.results())
        self.collector.difficulty.remember(results, self.state.global_step)
        self._cases = [group.case_id for group in played.groups for _ in group.learned]
        self._learned = self._hooks.on_learned(played.learned)
        rows = [row for each in self._learned for row in each.rows]
        rows += [masked_row(self.eos_token_ids[0])] * (max(gather_object([len(rows)])) - len(rows))
        self.doing("scoring")
        return {
            "prompt_ids": [row.prompt.tolist() for row in rows],
            "completion_ids": [row.completion.tolist() for row in rows],
            "logprobs": [row.logprobs.tolist() for row in rows],
            "env_mask": [list(row.mask) for row in rows],
        }

    def _proposed(self, case_ids: list[str]) -> list[list[str]]:
        """Return the proposed cases of every rank, one per group."""
        proposed: list[list[str]] = gather_object([case_ids[:: self.num_generations]])
        return proposed

    def _look_ahead(self, step: int) -> list[list[str]]:
        """Return the cases that TRL will propose at a later step, by rank."""
        if self._case_order is None:
            self._case_order = CaseOrder(
                self._get_train_sampler(),
                lambda numbers: self.train_dataset[list(numbers)]["prompt"],
                world_size=self.accelerator.num_processes,
                first_step=self.epochs_before * self.plan.steps_per_epoch,
                boundary=self.plan.boundary,
            )
        return self._case_order(step)

    def _calculate_rewards(self, *_: Any) -> torch.Tensor:
        """Return one blended reward per rollout of all ranks. An unscored rollout has NaN, which
        keeps it out of its group's statistics."""
        rewards = [float("nan") if each.reward is None else each.reward for each in self._learned]
        column = torch.tensor(rewards, dtype=torch.float32, device=self.accelerator.device)
        gathered: torch.Tensor = self.accelerator.gather(column.unsqueeze(1))
        return gathered

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """Return TRL's batch, in which each row has the advantage of its rollout.

        Adds ECHO's weights, checks parity, and logs the rollouts with their advantages.
        """
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        totals = Totals.merged(gather_object([Totals.of(self._learned)]))
        self._echo.carry(batch, self._learned, totals)
        if (step := self._played_step) is None:
            raise InfrastructureError(
                "TRL scored a batch that was not played; install a supported version of TRL"
            )
        # Equal rewards may differ from their mean by rounding, which would be learned from.
        live = torch.tensor(step.rollouts.are_live, device=self.accelerator.device)
        batch["advantages"] = batch["advantages"].where(live, 0.0)
        trained = self._check_parity(batch)
        gaps: list[Gaps] = []
        if trained is not None:
            by_token = trained - batch["sampling_per_token_logps"]
            gaps = gaps_of(self._learned, by_token.tolist())
        counts = self.collector.log_step(step.rollouts, batch["advantages"].tolist(), gaps)
        self.reports.add(counts, step.rollouts.first_cause())
        self.reports.add(step.counts())
        self._played_step = None
        batch["advantages"] = batch["advantages"][self._rollout_of_row()]
        return batch

    def case_of_row(self, row: int) -> str:
        """Return the case id of a row in the batch being scored; empty for a padding row."""
        rollouts = self._rollout_of_row()
        return self._cases[rollouts[row]] if row < len(rollouts) else ""

    def _rollout_of_row(self) -> list[int]:
        """Return the index of each row's rollout, without padding rows."""
        return [number for number, each in enumerate(self._learned) for _ in each.rows]

    def _played_passes(self, inputs: Any) -> list[list[dict[str, Any]]]:
        passes = super()._played_passes(inputs)
        self._learned = []
        return passes

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """Return TRL's loss plus ECHO's, from the same forward pass."""
        self.doing("updating")
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        logps = self.take_logps()
        passes = self.args.steps_per_generation / self.current_gradient_accumulation_steps
        echo_loss = self._echo.loss(logps, inputs, self.accelerator.num_processes * passes)
        return loss if echo_loss is None else loss + echo_loss

    def _check_parity(self, batch: dict[str, Any]) -> torch.Tensor | None:
        """Raise ParityError if sampler and trainer disagree, and report the first comparison.

        Returns the trainer's log-probabilities under the weights that sampled the rows, or None if
        TRL has not computed them. For rollouts of older weights, they are recomputed.
        """
        gate = ParityGate(self, find_fault=self._find_fault)
        trained: torch.Tensor | None = batch.get("old_per_token_logps")
        if not self._is_parity_due and not self._samples_remotely:
            return trained
        with self._weights_that_sampled() as is_stale:
            trained = gate.recomputed(batch) if is_stale else trained
            parity = gate.check(batch, trained)
            if parity is None:
                return trained
            if self._is_parity_due:
                self._hooks.on_parity(parity)
                self._is_parity_due = False
            gate.refuse(parity, batch, trained)
        if self.pipeline.pace.max_staleness:
            self.reports.add(StepCounts(highs={"parity_gap": parity.largest}))
        return trained

    @contextmanager
    def _weights_that_sampled(self) -> Iterator[bool]:
        """Load the weights that sampled the rollouts being scored into the model inside the
        context. Yields whether they are older than the current weights."""
        weights = self.sampling_weights
        if self._publisher is None or weights is None:
            yield False
            return
        with self._publisher.as_of(weights):
            yield weights.version != self.state.global_step

    # ------------------------------------------------------------------ reports

    def report(self, logs: dict[str, Any]) -> None:
        """Report the metrics that TRL logs after a step, and ignore its other logs."""
        self.state.log_history.clear()  # it would grow with every step; metrics.jsonl has the rows
        if "loss" not in logs:
            return
        self.reports.add(StepCounts().plus(**self._echo.take_sums()))
        self.reports.report(
            self.state.global_step,
            logs,
            is_main_process=self.accelerator.is_main_process,
        )

    def refuse_broken_gradients(self) -> None:
        """If any gradient is not finite, raise GuardStop, or warn and drop all gradients of the
        step. Does nothing if the guard `not_finite` is off."""
        weights = [each for each in self.model.parameters() if each.grad is not None]
        if not weights or self._guards.on_broken_gradients == "off":
            return
        grads = [each.grad for each in weights if each.grad is not None]
        if not torch.isfinite(torch.nn.utils.get_total_norm(grads)):
            self._guards.gradient_is_broken(self.state.global_step + 1)
            for each in weights:
                each.grad = None  # with zeros, momentum would still change the weights

    def validate(self) -> float | None:
        """Play the validation cases on all ranks, report the metrics, and return the score; None
        without validation cases. All ranks must call this."""
        if not self.collector.has_validation:
            return None
        self.doing("validating")
        was_training = self.model.training
        self.model.eval()
        rng = torch.get_rng_state()
        self.sync_sampler()
        try:
            self.before_playing(self.state.global_step)
            own_counts = self.collector.validate(self.state.global_step)
            self.after_playing()
            counts = merged_over_ranks(own_counts)
        finally:
            self.model.train(was_training)
            torch.set_rng_state(rng)
        figures = counts.metrics()
        if self.accelerator.is_main_process:
            self._hooks.on_validation(self.state.global_step, figures)
        return counts.score()

    def is_stop_requested(self) -> bool:
        """Return whether any rank has a stop request. All ranks must call this."""
        requests = torch.tensor([float(self._hooks.should_stop())], device=self.accelerator.device)
        return bool(self.accelerator.gather(requests).sum() > 0)

    # ------------------------------------------------------------------ checkpoints

    def _state_of_rank(self) -> dict[str, Any]:
        return self.pipeline.to_dict()

    def _save_state(self, folder: Path, by_rank: list[dict[str, Any]]) -> None:
        """Save the difficulty of the cases, and the cases and the weights of all steps in play."""
        write_json(folder / DIFFICULTY, self.collector.difficulty.to_dict())
        needed = self.pipeline.versions_in_play()
        if self._publisher is not None and needed:
            write_json(folder / IN_PLAY, {"format": FORMAT, "ranks": by_rank})
            self._publisher.save_versions(folder / IN_PLAY_WEIGHTS, needed)

    def restore_in_play(self, checkpoint: Checkpoint) -> None:
        """Play the steps again that were in play when the checkpoint was saved. All ranks must call
        this."""
        if self._publisher is None or not (checkpoint.path / IN_PLAY).is_file():
            return
        if not self._checkpoints.proposes_alike(checkpoint):  # after accepted changes
            return
        if self.accelerator.is_main_process:
            self._publisher.restore_versions(checkpoint.path / IN_PLAY_WEIGHTS)
        self.accelerator.wait_for_everyone()
        saved = read_json(checkpoint.path / IN_PLAY)
        self.pipeline.restore(saved["ranks"][self.accelerator.process_index])

    def _refuse_sharded_weights(self) -> None:
        """Raise SettingError for sharded weights without vLLM or sampling servers.

        In-process sampling needs all weights on each rank, and ranks that do not sample in step
        with one another cannot gather them.
        """
        if self.use_vllm or self._samples_remotely:
            return
        plugin = getattr(self.accelerator.state, "deepspeed_plugin", None)
        zero3 = plugin is not None and plugin.zero_stage == 3
        if self.is_fsdp_enabled or zero3:
            raise SettingError(
                "sampling in this process does not work with sharded weights (FSDP, ZeRO-3), "
                "because the ranks would deadlock; use sampling servers (sampling=1)"
            )


def _play(prompts: list[str], trainer: PolicyTrainer) -> dict[str, list[Any]]:
    return trainer.play(prompts)


def _blended(**_: Any) -> list[float]:
    raise NotImplementedError("TRL must take rewards from PolicyTrainer._calculate_rewards")
