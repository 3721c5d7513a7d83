"""The engine on TRL: its GRPO trainer, driven step by step.

TRL builds the optimizer and schedule, prepares the model for its ranks, computes the loss, and
writes and reads its files. The order of a step is Sparring's (`learning/step.py`), so TRL's own
training loop is not used: it would hide the step behind a dozen overrides. The contract tests on
TRL are in tests/engine/test_trl_contract.py.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType, gather_object
from transformers import PrinterCallback, set_seed
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.trainer_utils import align_special_tokens
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from sparring.contracts.errors import InfrastructureError, SettingError
from sparring.contracts.policies import PublishedWeights, VersionedPolicy
from sparring.contracts.specs import FORMAT
from sparring.contracts.training import WarmStart
from sparring.engine.forward import (
    Forward,
    Prompts,
    small_tiles_on_cpu,
    why_prompts_cannot_be_shared,
)
from sparring.engine.parity_gate import FindFault, ParityGate
from sparring.engine.pass_memory import PassSize, fit_passes
from sparring.engine.publisher import Publisher
from sparring.engine.tensors import Echo, Tensors, attended, corrections, padded, passes_of, sampled
from sparring.engine.warm_start import fine_tune, save_start, use_as_reference
from sparring.learning.batches import BatchPlan
from sparring.learning.checkpoints import Checkpoints
from sparring.learning.engine import (
    Announce,
    Batch,
    EngineFigures,
    LearningState,
    Opening,
    Scores,
    Stream,
)
from sparring.learning.rows import LearningRollout, masked_row
from sparring.policies.pretrained import record_quantization, widen_adapter
from sparring.run_folder.checkpoint_list import DIFFICULTY, IN_PLAY, IN_PLAY_WEIGHTS, Checkpoint
from sparring.run_folder.files import read_json, write_json

_NEEDED_TO_RESUME = ("trainer_state.json", "optimizer.pt", "scheduler.pt")
_FIGURES = (
    "loss",
    "grad_norm",
    "learning_rate",
    "entropy",
    "kl",
    "clip_ratio/region_mean",
    "epoch",
    "num_tokens",
    "sampling/sampling_logp_difference/mean",
    "sampling/sampling_logp_difference/max",
    "sampling/importance_sampling_ratio/mean",
    "sampling/importance_sampling_ratio/min",
    "sampling/importance_sampling_ratio/max",
)


class PolicyTrainer(GRPOTrainer):
    """Updates the weights of one model by TRL's loss and optimizer. It is an `Engine`."""

    control: Any

    def __init__(
        self,
        opening: Opening,
        plan: BatchPlan,
        checkpoints: Checkpoints,
        **trl: Any,
    ) -> None:
        """Who samples is set afterwards: `policy`, and with servers also `versions`, the
        `publisher` that brings them the weights, and `find_fault`, which explains a gap that is too
        large."""
        self.plan = plan
        self.checkpoints = checkpoints
        self.policy: Any = None
        self.versions: VersionedPolicy | None = None
        self.publisher: Publisher | None = None
        self.find_fault: FindFault | None = None
        self._opening = opening
        self._settings = settings = opening.settings
        self._samples_remotely = settings.sampling is not None
        self._echo = Echo(settings.echo_coefficient)
        self._pass_size: PassSize | None = None
        self._published_step = -1
        self._order: CaseOrder | None = None
        self._batch = Batch((), (), 1)
        self._tensors: Tensors = {}
        self._trained: torch.Tensor | None = None
        self._logps: torch.Tensor | None = None
        self._logged_step = 0
        self._loss = torch.zeros(())
        self._logs: dict[str, float] = {}
        self._staging: Path | None = None
        super().__init__(reward_funcs=[_no_reward], **trl)
        widen_adapter(self.model)
        self.remove_callback(PrinterCallback)
        self._refuse_what_sharding_breaks()
        self.why_prompts_are_not_shared = why_prompts_cannot_be_shared(
            self.accelerator.unwrap_model(self.model),
            is_sharded=self.is_sharded(),
            is_checkpointed=self.args.gradient_checkpointing,
        )
        self.forward = Forward(
            self.accelerator, settings.share_prompts and not self.why_prompts_are_not_shared
        )

    def use_plan(self, plan: BatchPlan) -> None:
        """Replace the batch plan, which sets the passes of a step. Must be called before training
        begins."""
        self.plan = plan
        self.args.per_device_train_batch_size = self._train_batch_size = plan.rows_per_pass
        self.args.gradient_accumulation_steps = plan.passes_per_step
        self.args.steps_per_generation = plan.steps_per_generation

    def is_sharded(self) -> bool:
        """Whether FSDP or DeepSpeed is enabled."""
        return bool(self.is_fsdp_enabled or self.is_deepspeed_enabled)

    # ------------------------------------------------------------------ the engine's verbs

    @property
    def step(self) -> int:
        """The number of optimizer steps that the weights have taken."""
        return int(self.state.global_step)

    @property
    def rank(self) -> int:
        """The number of this process."""
        return int(self.accelerator.process_index)

    def gather(self, mine: list[Any]) -> list[Any]:
        """Return the concatenated lists of all ranks."""
        everyone: list[Any] = gather_object(mine)
        return everyone

    def prepare(
        self, prompt_tokens: Callable[[], tuple[int, int]], announce: Announce = lambda _: None
    ) -> None:
        """Announce why the update cannot share prompts, and choose the rows of a pass by the
        memory."""
        if self._settings.share_prompts and self.why_prompts_are_not_shared:
            announce(
                "the update computes prompts once per rollout, not once per group: "
                + self.why_prompts_are_not_shared
            )
        self._pass_size = fit_passes(self, self._opening, prompt_tokens, announce)

    def learn(
        self,
        demonstrations: Sequence[LearningRollout],
        warm: WarmStart,
        *,
        on_step: Callable[[int, int, float], None],
        is_stop_requested: Callable[[], bool],
    ) -> bool:
        """Fine-tune with TRL's SFT trainer, and save step-0 unless a stop is requested."""
        losses: list[float] = []

        def note(step: int, steps: int, loss: float) -> None:
            losses.append(loss)
            on_step(step, steps, loss)

        fine_tune(
            self.accelerator.unwrap_model(self.model),
            self.processing_class,
            [row for each in demonstrations for row in each.rows],
            self._settings,
            warm,
            output=self._opening.folder.path / "engine",
            plan=self.plan,
            size=self._pass_size,
            on_step=note,
            is_stop_requested=is_stop_requested,
        )
        if is_stop_requested():
            return False
        counts = {"demonstrations": len(demonstrations)}
        summary = {**counts, "first_loss": losses[0], "last_loss": losses[-1]}
        save_start(self, self.checkpoints, warm_start=summary)
        use_as_reference(self)
        return True

    def start_from(self, start: Checkpoint) -> None:
        """Take the weights of a warm start, and the random seeds that follow it."""
        self._load_from_checkpoint(str(start.path))
        set_seed(self._settings.seed)
        use_as_reference(self)

    def propose(self, step: int) -> list[list[str]]:
        """Return the cases that TRL's sampler has at this step, by rank."""
        if self._order is None:
            epoch = self.step // self.plan.steps_per_epoch
            sampler = self._get_train_sampler()
            for _ in range(epoch):  # the order of an epoch depends on those before it
                torch.randperm(sampler.num_samples, generator=sampler.generator)
            self._order = CaseOrder(
                sampler,
                lambda numbers: self.train_dataset[list(numbers)]["prompt"],
                world_size=self.accelerator.num_processes,
                first_step=epoch * self.plan.steps_per_epoch,
                boundary=self.plan.boundary,
            )
        return self._order(step)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Evaluate the model inside the context, and leave the random numbers of the training as
        they were: a tool that draws some must not affect it."""
        device, was_training = self.accelerator.device, self.model.training
        self.model.eval()
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                yield
        finally:
            self.model.train(was_training)

    def publish(self, in_play: Sequence[PublishedWeights] = ()) -> None:
        """Make the policy sample with the current weights."""
        if self._published_step == self.step:
            return
        if self.publisher is not None:
            self.publisher.sync(in_play)
        self.policy.version = self._published_step = self.step

    def score(self, batch: Batch, *, compares: bool) -> Scores:
        """Compute what TRL's loss needs besides the rows: the log-probabilities of older weights
        and of the reference, and the correction for the sampler's gap."""
        self.model.train()
        self._batch = batch
        streams = [*batch.streams, *self._padding(len(batch.streams))]
        tensors = padded(streams, self._tokenizer.pad_token_id, self.accelerator.device)
        mask = sampled(tensors)
        tensors["num_items_in_batch"] = self.accelerator.gather(mask.sum()).sum()
        self._count_tokens(tensors, mask)
        self._echo.carry(tensors, streams)
        with (
            torch.no_grad(),
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
        ):
            corrects = self._samples_remotely and self.args.vllm_importance_sampling_correction
            per_step, generation = self.plan.passes_per_step, self.plan.steps_per_generation
            if corrects or per_step % (generation * self.num_iterations):
                tensors["old_per_token_logps"] = self._logps_of(self.model, tensors)
            if corrects:
                self._correct(tensors, mask)
            if self.beta:
                tensors["ref_per_token_logps"] = self._reference_logps(tensors)
        self._tensors, self._trained = tensors, tensors.get("old_per_token_logps")
        parity = None
        if compares:
            with self._weights_that_sampled() as are_older:
                if are_older:
                    self._trained = self._gate.recomputed(tensors)
                parity = self._gate.check(tensors, self._trained)
        if self._trained is None:
            return Scores(None, parity)
        by_row = (self._trained - tensors["sampling_per_token_logps"])[: len(batch.streams)]
        return Scores([array("f", row) for row in by_row.tolist()], parity)

    def explain_gap(self) -> str:
        """Return the likely cause of the gap between sampler and trainer in the last scores."""
        with self._weights_that_sampled():
            return self._gate.cause(self._tensors, self._trained)

    def update(self) -> Iterator[int]:
        """Learn from the batch that was scored last, and yield after each optimizer step."""
        passes = self._passes()
        per_step = self.current_gradient_accumulation_steps = self.plan.passes_per_step
        for number in range(0, len(passes) * self.num_iterations, per_step):
            start = number % len(passes)
            self._take_step(passes[start : start + per_step])
            yield self.step

    def figures(self) -> EngineFigures:
        """Return TRL's metrics since the last call, and the sums of the losses on tool results."""
        loss = self.accelerator.gather(self._loss.unsqueeze(0)).mean().item()
        self._loss.zero_()
        self._logs["loss"] = loss / (self.step - self._logged_step)
        self._logged_step = self.step
        self.log(dict(self._logs))
        means = self.state.log_history.pop()
        known = {name: means[name] for name in _FIGURES if means.get(name) is not None}
        return EngineFigures(known, self._echo.take_sums())

    def save(self, state: LearningState) -> Path | None:
        """Save a checkpoint: complete, or not at all."""
        self._staging = self.checkpoints.staging(self.step)
        try:
            self._save_checkpoint(self.model, None)
            self.accelerator.wait_for_everyone()
            place = self._seal(self._staging, state) if self.rank == 0 else None
            self.accelerator.wait_for_everyone()
        finally:
            self._staging = None
        return place

    def note_start(self, score: float) -> None:
        """Note the score of the warm start in its checkpoint, which may be the best one."""
        if self.rank == 0:
            self.checkpoints.note_score(0, score)

    def restore(self, checkpoint: Checkpoint | None) -> list[dict[str, Any]]:
        """Prepare model, optimizer and schedule for this process's ranks, and load a checkpoint.
        Returns what each rank had in play."""
        path = None if checkpoint is None else str(checkpoint.path)
        if self.args.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(self.args.gradient_checkpointing_kwargs)
        if isinstance(self.processing_class, PreTrainedTokenizerBase):
            align_special_tokens(self.model, self.processing_class)
        if path is not None and not self.is_sharded():
            self._load_from_checkpoint(path)
        self.accelerator.free_memory()
        epochs = math.ceil(self.plan.steps / self.plan.steps_per_epoch)
        self._init_training_state(self.plan.steps, self.plan.steps_per_epoch, epochs, path, None)
        self._prepare_for_training(self.plan.steps, None, path)
        self._loss = torch.zeros((), device=self.accelerator.device)
        self._logged_step = self.step
        self.model_wrapped.zero_grad()
        self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)
        if path is None:
            _draw_as_trl_would()
        else:
            self._load_rng_state(path)
        return [] if checkpoint is None else self._restored_play(checkpoint)

    def load(self, checkpoint: Checkpoint | None) -> None:
        """Take the weights of a checkpoint and its step, without anything that training needs."""
        is_whole = checkpoint is not None and checkpoint.step >= self.plan.steps
        if checkpoint is not None and (is_whole or not self.is_sharded()):
            self._load_from_checkpoint(str(checkpoint.path))
        self.state.global_step = checkpoint.step if checkpoint else 0

    def close(self) -> None:
        """Free the rows of the last update. The weights stay."""
        self._batch, self._tensors, self._trained = Batch((), (), 1), {}, None

    # ------------------------------------------------------------------ scores

    @property
    def _gate(self) -> ParityGate:
        return ParityGate(self, find_fault=self.find_fault)

    def _padding(self, rows: int) -> list[Stream]:
        """Return masked rows, so that every rank has as many rows as the one with the most."""
        missing = max(self.gather([rows])) - rows
        row = masked_row(self.eos_token_ids[0])
        return [Stream(row, -1, array("f", [0.0]))] * missing

    def _count_tokens(self, tensors: Tensors, mask: torch.Tensor) -> None:
        own = int(tensors["prompt_mask"].sum() + mask.sum())
        self.state.num_input_tokens_seen += sum(self.gather([own]))
        self._metrics["train"]["num_tokens"] = [self.state.num_input_tokens_seen]

    def _logps_of(self, model: Any, tensors: Tensors) -> torch.Tensor:
        ids, mask, keep = attended(tensors)
        logps: torch.Tensor = self._get_per_token_logps_and_entropies(
            model, ids, mask, keep, batch_size=self.args.per_device_train_batch_size
        )[0]
        return logps

    def _reference_logps(self, tensors: Tensors) -> torch.Tensor:
        if self.ref_model is not None:
            return self._logps_of(self.ref_model, tensors)
        model = self.accelerator.unwrap_model(self.model)
        with use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None):
            return self._logps_of(self.model, tensors)

    def _correct(self, tensors: Tensors, mask: torch.Tensor) -> None:
        """Weigh the advantage of each token by how likely the trainer is to sample it, beside the
        sampler. VESPO takes such weights by itself."""
        gaps = (tensors["old_per_token_logps"] - tensors["sampling_per_token_logps"]) * mask
        low, high = self.vllm_importance_sampling_clip_min, self.vllm_importance_sampling_clip_max
        ratios = corrections(gaps, self.vllm_importance_sampling_mode, low, high)
        if self.loss_type == "vespo":
            tensors["importance_sampling_ratio"] = ratios
        else:
            tensors["advantages"] = tensors["advantages"] * ratios
        known, shown = gaps[mask.bool()].abs(), ratios
        if ratios.shape == mask.shape:
            shown = ratios[mask.bool()]
        for name, values, kinds in (
            ("sampling_logp_difference", known, ("mean", "max")),
            ("importance_sampling_ratio", shown, ("min", "mean", "max")),
        ):
            for kind in kinds:
                own = getattr(values, kind)() if values.numel() else torch.zeros(())
                everyone = self.accelerator.gather(own.to(mask.device).unsqueeze(0))
                figure = getattr(everyone, kind)().item()
                self._metrics["train"][f"sampling/{name}/{kind}"].append(figure)

    @contextmanager
    def _weights_that_sampled(self) -> Iterator[bool]:
        """Load the weights that sampled the batch into the model inside the context. Yields whether
        they are older than the current weights."""
        weights = self._batch.weights
        if self.publisher is None or weights is None:
            yield False
            return
        with self.publisher.as_of(weights):
            yield weights.version != self.step

    @property
    def sampling_weights(self) -> PublishedWeights | None:
        """The published weights that sampled the batch; None without servers."""
        return self._batch.weights

    def case_of_row(self, row: int) -> str:
        """Return the case id of a row of the batch that was scored; empty for a padding row."""
        streams = self._batch.streams
        return self._batch.case_ids[streams[row].rollout] if row < len(streams) else ""

    # ------------------------------------------------------------------ an update

    def _passes(self) -> list[list[Tensors]]:
        """Distribute the rows of the batch over passes, without padding rows."""
        batch = self._batch
        real = slice(len(batch.streams))
        tensors = {
            name: value[real] if isinstance(value, torch.Tensor) and value.ndim else value
            for name, value in self._tensors.items()
        }
        self._tensors = {}
        forward = self.forward
        prompts = Prompts.of(tensors["prompt_ids"], tensors["prompt_mask"])
        forward.common_prefix = prompts.common if forward.shares_prompts else ()

        def most(own: list[int]) -> list[int]:
            return [max(counts) for counts in zip(*self.gather([own]), strict=True)]

        return passes_of(
            tensors,
            batch.rollout_of_row,
            self.plan.steps_per_generation,
            batch.group,
            most,
            common=len(forward.common_prefix) if forward.shares_prompts else None,
        )

    def _take_step(self, passes: list[list[Tensors]]) -> None:
        """Run the passes of one optimizer step, part by part, and apply their gradients. Ranks
        exchange gradients once, in the last part of the last pass."""
        model, state = self.model_wrapped, self.state
        events = self.callback_handler  # callbacks that a user has added to TRL's trainer
        self.control = events.on_step_begin(self.args, state, self.control)
        self.forward.begin_step()
        with small_tiles_on_cpu(self.accelerator.device):
            for number, parts in enumerate(passes, start=1):
                is_last_pass = number == len(passes)
                self.accelerator.gradient_state._set_sync_gradients(is_last_pass)
                loss = torch.zeros((), device=self.accelerator.device)
                for part in parts:
                    is_last_part = part is parts[-1]
                    self.forward.is_last_part = is_last_pass and is_last_part
                    is_exchanging = is_last_part and (is_last_pass or self._exchanges_every_pass())
                    with nullcontext() if is_exchanging else self.accelerator.no_sync(model):
                        # TRL's own method would count passes as its loop does.
                        loss += super(GRPOTrainer, self).training_step(model, part)
                self._loss += loss
        norm = self._clip_grad_norm(model) if self.args.max_grad_norm > 0 else None
        self._logs["grad_norm"] = float(self._get_grad_norm(model, grad_norm=norm))
        self._refuse_broken_gradients()
        self.control = events.on_pre_optimizer_step(self.args, state, self.control)
        self.optimizer.step()
        self.control = events.on_optimizer_step(self.args, state, self.control)
        self._logs["learning_rate"] = self._get_learning_rate()
        if not self.accelerator.optimizer_step_was_skipped:
            self.lr_scheduler.step()
        model.zero_grad()
        epoch, taken = divmod(state.global_step, self.plan.steps_per_epoch)
        state.global_step += 1
        state.epoch = epoch + (taken + 1) / self.plan.steps_per_epoch
        self.control = events.on_step_end(self.args, state, self.control)
        if taken + 1 == self.plan.steps_per_epoch:
            _draw_as_trl_would()

    def _exchanges_every_pass(self) -> bool:
        accelerator = self.accelerator
        return accelerator.distributed_type == DistributedType.DEEPSPEED or bool(
            accelerator.gradient_state.plugin_kwargs.get("sync_each_batch", False)
        )

    def _refuse_broken_gradients(self) -> None:
        """If any gradient is not finite, raise GuardStop, or warn and drop all gradients of the
        step. Does nothing if the guard `not_finite` is off."""
        weights = [each for each in self.model.parameters() if each.grad is not None]
        if not weights or self._opening.guards.on_broken_gradients == "off":
            return
        grads = [each.grad for each in weights if each.grad is not None]
        if not torch.isfinite(torch.nn.utils.get_total_norm(grads)):
            self._opening.guards.gradient_is_broken(self.step + 1)
            for each in weights:
                each.grad = None  # with zeros, momentum would still change the weights

    def score_sample(self, ids: torch.Tensor, mask: torch.Tensor, keep: int) -> None:
        """Run the forward pass of an update on these rows, to measure its memory."""
        self.model.train()
        model = self.accelerator.unwrap_model(self.model)
        plain = super()._get_per_token_logps_and_entropies
        self.forward.scores(plain, model, ids, mask, keep, {"compute_entropy": True})

    # ------------------------------------------------------------------ TRL's methods

    def _prepare_inputs(self, inputs: Tensors) -> Tensors:
        return inputs  # TRL would play and score here

    def _compute_loss(self, model: Any, inputs: Tensors) -> torch.Tensor:
        """Return TRL's loss plus that on tool results, from the same forward pass."""
        self._opening.on_updating(self.step)
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        logps, self._logps = self._logps, None
        if logps is None:
            raise InfrastructureError(
                "TRL computed a loss without log-probabilities; install a supported version of TRL"
            )
        steps = self.plan.steps_per_generation / self.plan.passes_per_step
        second = self._echo.loss(logps, inputs, self.accelerator.num_processes * steps)
        return loss if second is None else loss + second

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        """Return log-probabilities, entropies and auxiliary loss of completions as TRL does, but
        compute shared prompts once."""
        size = batch_size or len(input_ids)
        plain = super()._get_per_token_logps_and_entropies
        parts = [
            self.forward.scores(
                plain,
                model,
                input_ids[start : start + size],
                attention_mask[start : start + size],
                logits_to_keep,
                options,
            )
            for start in range(0, len(input_ids), size)
        ]
        logps, entropies, aux = zip(*parts, strict=True)
        self._logps = torch.cat(logps) if torch.is_grad_enabled() else None
        return (
            torch.cat(logps) if self._logps is None else self._logps,
            torch.cat(entropies) if options.get("compute_entropy") else None,
            torch.stack(aux).mean() if options.get("compute_aux_loss") else None,
        )

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Do nothing: creating TRL's card queries the hub, and the card does not describe the
        run."""

    def _send_telemetry(self) -> None:
        """Do nothing: a run reports only to the trackers that its settings name."""

    # ------------------------------------------------------------------ checkpoints

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._staging) if self._staging else str(super()._get_output_dir(trial))

    def _seal(self, staging: Path, state: LearningState) -> Path:
        """Complete the checkpoint that TRL has written: the difficulty of the cases, and the cases
        and weights of all steps in play."""
        written = staging / f"checkpoint-{self.step}"
        record_quantization(self.accelerator.unwrap_model(self.model), written)
        write_json(written / DIFFICULTY, dict(state.difficulty))
        if self.publisher is not None and state.weights:
            write_json(written / IN_PLAY, {"format": FORMAT, "ranks": list(state.in_play)})
            self.publisher.save_versions(written / IN_PLAY_WEIGHTS, state.weights)
        versions = {name: version(name) for name in ("torch", "transformers", "trl", "accelerate")}
        # FSDP and DeepSpeed choose the names of optimizer files.
        needed = _NEEDED_TO_RESUME[: 1 if self.is_sharded() else None]
        place = self.checkpoints.seal(
            written, self.step, needed=needed, score=state.score, versions=versions
        )
        self.checkpoints.prune()
        return place

    def _restored_play(self, checkpoint: Checkpoint) -> list[dict[str, Any]]:
        """Bring back the weights of the steps that were in play, and return these by rank. After
        accepted changes, other cases are proposed, and nothing is played again."""
        if self.publisher is None or not (checkpoint.path / IN_PLAY).is_file():
            return []
        if not self.checkpoints.proposes_alike(checkpoint):
            return []
        if self.rank == 0:
            self.publisher.restore_versions(checkpoint.path / IN_PLAY_WEIGHTS)
        self.accelerator.wait_for_everyone()
        in_play: list[dict[str, Any]] = read_json(checkpoint.path / IN_PLAY)["ranks"]
        return in_play

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load the weights of a checkpoint. An adapter is loaded explicitly, as `default`.

        transformers' Trainer does not load it if TRL has added a reference adapter for the KL term.
        """
        unwrapped = self.accelerator.unwrap_model(model or self.model)
        if hasattr(unwrapped, "peft_config"):
            unwrapped.load_adapter(resume_from_checkpoint, "default", is_trainable=True)
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _refuse_what_sharding_breaks(self) -> None:
        """Raise SettingError for sharded weights with a warm start, or without sampling servers.

        In-process sampling needs all weights on each rank, and ranks that do not sample in step
        with one another cannot gather them.
        """
        if self._settings.warm_start is not None and self.is_sharded():
            raise SettingError(
                "warm_start does not work with sharded weights (FSDP, DeepSpeed); make the warm "
                "start in a run without sharding, then start a sharded run from the model of that "
                "run"
            )
        plugin = getattr(self.accelerator.state, "deepspeed_plugin", None)
        zero3 = plugin is not None and plugin.zero_stage == 3
        if not self._samples_remotely and (self.is_fsdp_enabled or zero3):
            raise SettingError(
                "sampling in this process does not work with sharded weights (FSDP, ZeRO-3), "
                "because the ranks would deadlock; use sampling servers (sampling=1)"
            )


def _draw_as_trl_would() -> None:
    """Draw the number that TRL's data loader takes as its seed at the start of an epoch. Passes are
    shuffled by the numbers that follow, so a run has the passes it would have in TRL's own loop."""
    torch.empty((), dtype=torch.int64).random_()


def _no_reward(**_: Any) -> list[float]:
    raise NotImplementedError("rewards are Sparring's; TRL only requires a reward function")


class CaseOrder:
    """Returns the cases of later steps. Steps must be requested in increasing order.

    `sampler` is a second instance of TRL's sampler, at the beginning of the epoch that starts at
    `first_step`. It has a separate random generator, so looking ahead does not advance TRL's. A
    generation takes `boundary` steps.
    """

    def __init__(
        self,
        sampler: Any,
        cases_at: Callable[[Sequence[int]], Sequence[str]],
        *,
        world_size: int,
        first_step: int,
        boundary: int,
    ) -> None:
        self._cases_at = cases_at
        self._world_size = world_size
        self._boundary = boundary
        self._step = first_step - boundary
        self._chunks = _chunks_of(sampler)

    def __call__(self, step: int) -> list[list[str]]:
        """Return the cases that TRL will propose at this step, one per group, by rank."""
        if step <= self._step:
            raise InfrastructureError(
                f"the cases of step {step} were requested after those of step {self._step}"
            )
        chunk: list[int] = []
        while self._step < step:
            chunk = next(self._chunks)
            self._step += self._boundary
        cases = list(self._cases_at(chunk))
        share = len(cases) // self._world_size
        return [cases[start : start + share] for start in range(0, len(cases), share)]


def _chunks_of(sampler: Any) -> Iterator[list[int]]:
    """Yield the data set positions of each generation's cases, over any number of epochs.

    TRL's sampler repeats each position for every rollout, and each batch for every pass.
    """
    rows = sampler.batch_size * sampler.mini_repeat_count
    while True:
        numbers = iter(sampler)
        while chunk := list(islice(numbers, rows)):
            yield chunk[:: sampler.mini_repeat_count]
            deque(islice(numbers, (sampler.repeat_count - 1) * rows), maxlen=0)
