"""Gives sampling servers the trainer's weights, and finds out why they may sample with others.

Each version has a unique name: the run, the step, and a digest of the weights and the folder's
path. The version is renamed into place when it is complete. Names are never reused for
other weights: a server would keep the prefix cache of the old ones. Folders never move: a server
reloads an evicted adapter from the folder that it first loaded, and exits if that is missing.

A server that samples with other weights still answers with status 200. So `ServerFaults` has a turn
sampled again, alone in its batch, with and without the prefix cache, and compares it with the
trainer, with and without the adapter.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import broadcast_object_list
from safetensors.torch import load_file, save_file

from sparring.contracts.errors import InfrastructureError, SettingError
from sparring.contracts.policies import PublishedWeights, Sample, SampleKey, SampleRequest, Sampling
from sparring.contracts.rollouts import RolloutKey
from sparring.engine.parity_gate import Score, Suspect
from sparring.learning.engine import Parity
from sparring.policies.server_policy import ServerPolicy
from sparring.run_folder.files import sync_files, sync_folder

if TYPE_CHECKING:
    from trl import GRPOTrainer


ADAPTER = "default"
ADAPTER_FILE = "adapter_model.safetensors"


class AdapterVersions:
    """Keeps the last `kept` published adapters in memory, and reads older ones from disk."""

    def __init__(self, model: Any, kept: int) -> None:
        self._model = model
        self._kept = kept
        self._states: dict[str, Mapping[str, torch.Tensor]] = {}
        if any(hasattr(weights, "ds_tensor") for weights in model.parameters()):
            raise SettingError(
                "max_staleness does not work with ZeRO-3, because an earlier adapter cannot be "
                "loaded into the model; use FSDP2 or ZeRO-2, or set max_staleness to 0"
            )

    def keep(self, name: str, state: Mapping[str, torch.Tensor]) -> None:
        """Keep the tensors of the version published under `name`. They must be copies."""
        self._states[name] = state
        for old in list(self._states)[: -self._kept]:
            del self._states[old]

    @contextmanager
    def in_model(self, weights: PublishedWeights) -> Iterator[None]:
        """Replace the model's adapter with these weights inside the context. All ranks must
        enter."""
        state = self._states.get(weights.name)
        if state is None:
            state = load_file(Path(weights.path) / ADAPTER_FILE)
        parameters = adapter_parameters(self._model)
        with torch.no_grad():
            current = {name: each.detach().clone() for name, each in parameters.items()}
            for name, each in parameters.items():
                each.copy_(_placed_like(each, state[name]))
        try:
            yield
        finally:
            with torch.no_grad():
                for name, each in parameters.items():
                    each.copy_(current[name])


def adapter_parameters(model: Any) -> dict[str, torch.nn.Parameter]:
    """Return the adapter's parameters, by the names under which PEFT saves them."""
    from peft import get_peft_model_state_dict

    named = [(name, each) for name, each in model.named_parameters() if "lora_" in name]
    numbers = {name: torch.tensor(number) for number, (name, _) in enumerate(named)}
    saved = get_peft_model_state_dict(model, state_dict=numbers, adapter_name=ADAPTER)
    return {name: named[int(number)][1] for name, number in saved.items()}


def _placed_like(parameter: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    from torch.distributed.tensor import DTensor, distribute_tensor

    value = whole.to(parameter.device)
    if isinstance(parameter, DTensor):
        return distribute_tensor(value, parameter.device_mesh, parameter.placements)
    return value


_KEPT = 3
_STAGING = ".staging"


class Publisher:
    """Writes versions of the weights to `folder`, and makes the policy sample with the newest.

    All ranks must call `sync` together: sharded weights are gathered, and rank 0 writes.
    The folder keeps the newest version, the versions in play, and the two newest of the others.
    With `max_staleness`, `as_of` loads older adapters into the model.
    """

    def __init__(
        self,
        trainer: GRPOTrainer,
        policy: ServerPolicy,
        folder: Path,
        run: str,
        *,
        max_staleness: int = 0,
    ) -> None:
        self._trainer = trainer
        self._policy = policy
        self._folder = folder.resolve()
        self._run = run
        self._is_adapter = hasattr(self._model, "peft_config")
        self._versions: AdapterVersions | None = None
        if self._is_adapter:
            refuse_unservable(self._model.peft_config[ADAPTER])
        if max_staleness:
            refuse_whole_weights(self._model)
            self._versions = AdapterVersions(self._model, max_staleness + 1)

    @property
    def _model(self) -> Any:
        return self._trainer.accelerator.unwrap_model(self._trainer.model)

    def sync(self, in_play: Iterable[PublishedWeights] = ()) -> None:
        """Publish the current weights, and make the policy sample with them. The versions in play
        are kept."""
        step = int(self._trainer.state.global_step)
        state = gathered_state(self._model)
        names = [""]
        if self._trainer.accelerator.is_main_process:
            names = [self._write(state, step)]
            self._prune({names[0], *(each.name for each in in_play)})
        (name,) = broadcast_object_list(names)
        if self._versions is not None:
            self._versions.keep(name, {each: copy.clone() for each, copy in state.items()})
        self._policy.use(PublishedWeights(step, name, str(self._folder / name), self._is_adapter))

    def as_of(self, weights: PublishedWeights) -> AbstractContextManager[None]:
        """Return a context in which the model has these weights. All ranks must enter it.

        Without `max_staleness`, the model is not changed.
        """
        is_current = weights.version == int(self._trainer.state.global_step)
        if self._versions is None or is_current:
            return nullcontext()
        return self._versions.in_model(weights)

    def save_versions(self, folder: Path, needed: Iterable[PublishedWeights]) -> None:
        """Copy these versions to `folder`, for a checkpoint."""
        for each in needed:
            shutil.copytree(each.path, folder / each.name)

    def restore_versions(self, folder: Path) -> None:
        """Restore the versions that `save_versions` copied to `folder`, unless they exist."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for saved in folder.iterdir():
            if not (self._folder / saved.name).exists():
                staging = self._fresh_staging()
                shutil.copytree(saved, staging)
                sync_files(staging)
                staging.rename(self._folder / saved.name)

    # ------------------------------------------------------------------ inside

    def _write(self, state: dict[str, torch.Tensor], step: int) -> str:
        """Write a version to a staging folder, rename it into place, and return its name."""
        staging = self._fresh_staging()
        staging.mkdir(parents=True)
        file = staging / (ADAPTER_FILE if self._is_adapter else "model.safetensors")
        save_file(state, str(file), metadata={"format": "pt"})
        if self._is_adapter:
            config = copy(self._model.peft_config[ADAPTER])
            config.inference_mode = True
            config.save_pretrained(str(staging))
        else:
            self._model.config.save_pretrained(str(staging))
        name = f"{self._run}-v{step:06d}-{_digest_of(file, self._folder)}"
        place = self._folder / name
        if not place.exists():  # a resumed attempt may publish the same weights again
            sync_files(staging)
            staging.rename(place)
            sync_folder(self._folder)
        shutil.rmtree(staging, ignore_errors=True)
        return name

    def _fresh_staging(self) -> Path:
        """Remove the staging folders that killed attempts of this run left, and return the path
        for a new one."""
        for left in self._folder.glob(f"{_STAGING}-*"):
            shutil.rmtree(left, ignore_errors=True)
        return self._folder / f"{_STAGING}-{os.getpid()}"

    def _prune(self, needed: Set[str]) -> None:
        """Remove old versions, except those that are needed."""
        mine = (each for each in self._folder.glob(f"{self._run}-v*") if each.name not in needed)
        by_age = sorted(mine, key=lambda each: each.stat().st_mtime)
        for each in by_age[: max(0, len(by_age) - _KEPT + 1)]:
            shutil.rmtree(each, ignore_errors=True)


def gathered_state(model: Any) -> dict[str, torch.Tensor]:
    """Return the weights to publish, unsharded and on the CPU: the adapter's, or the whole model's.

    They may share memory with the model. If weights are sharded (FSDP2, ZeRO-3), all ranks must
    call this.
    """
    is_adapter = hasattr(model, "peft_config")
    state = {
        name: gathered(weights)
        for name, weights in model.named_parameters()
        if not is_adapter or "lora_" in name
    }
    if not is_adapter:
        return state
    from peft import get_peft_model_state_dict

    own = get_peft_model_state_dict(model, state_dict=state, adapter_name=ADAPTER)
    return {name: weights.contiguous() for name, weights in own.items()}


def gathered(weights: torch.Tensor) -> torch.Tensor:
    """Return one parameter, whole and on the CPU. If it is sharded, all ranks must call this."""
    from torch.distributed.tensor import DTensor

    if isinstance(weights, DTensor):
        return weights.full_tensor().detach().cpu().contiguous()
    if hasattr(weights, "ds_id"):
        from deepspeed import zero

        with zero.GatheredParameters([weights]):
            return weights.detach().cpu().clone().contiguous()
    return weights.detach().cpu().contiguous()


def refuse_whole_weights(model: Any) -> None:
    """Raise SettingError for a model without an adapter: `max_staleness` needs one."""
    if not hasattr(model, "peft_config"):
        raise SettingError(
            "max_staleness needs an adapter: a sampling server holds several adapters, but only "
            "one version of whole weights; set lora=True (--lora), or max_staleness to 0"
        )


def refuse_unservable(config: Any) -> None:
    """Raise SettingError for an adapter that vLLM cannot serve, or with dropout, which would break
    parity."""
    problems = []
    if config.lora_dropout:
        problems.append(
            "lora.lora_dropout: TRL scores rollouts under dropout, and the servers sample without; "
            "set it to 0"
        )
    if getattr(config, "use_dora", False):
        problems.append("lora.use_dora: vLLM does not serve DoRA; set it to false")
    if config.bias != "none":
        problems.append("lora.bias: vLLM does not serve biases of adapters; set it to 'none'")
    targets = config.target_modules or ()
    if config.modules_to_save or "lm_head" in targets or "embed_tokens" in targets:
        problems.append(
            "lora.target_modules, modules_to_save: neither modules_to_save nor adapters of lm_head "
            "and embeddings are supported; remove them"
        )
    if problems:
        raise SettingError(
            f"this adapter does not work with sampling servers: {'; '.join(problems)}"
        )


def _digest_of(file: Path, folder: Path) -> str:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256")
    digest.update(os.fsencode(folder))
    return digest.hexdigest()[:8]


_TOKENS = 24

SampleAgain = Callable[[SampleRequest, str], Sample]

STALE_PREFIX = (
    "The server uses a prefix cache of other weights: without the cache, it agrees with the "
    "trainer. Weights were loaded under a name that the server already knew; restart the server, "
    "and load every version under a new name."
)
MIXED_ROWS = (
    "The server mixes weights of different models in one batch: sampled alone, the same turn "
    "agrees with the trainer. Send the server only requests for adapters of this run, and none for "
    "the base model (vLLM on CPU applies an adapter to rows of the base model)."
)
NO_ADAPTER = (
    "The server samples with the base weights, without the adapter. Start it with --enable-lora, "
    "and with the model that is trained."
)
STALE_HEAD = (
    "The server kept some of its old weights when it reloaded whole weights from disk. The "
    "model's lm_head is tied to its embeddings, and vLLM on CPU does not reload a tied lm_head. "
    "Train an adapter (lora = true), or a model whose embeddings are not tied."
)
OTHER_WEIGHTS = (
    "The server does not sample with the published weights: it has another base model, another "
    "adapter, or another precision. Compare its --model and --dtype with those of the run."
)


@dataclass(frozen=True, slots=True)
class ServerFaults:
    """Finds the fault by sampling again. `is_tied` is true if whole weights are published and their
    `lm_head` is tied to the embeddings."""

    sample_again: SampleAgain
    case_of_row: Callable[[int], str]
    temperature: float
    is_adapter: bool
    is_tied: bool

    def __call__(self, suspect: Suspect, score: Score) -> str:
        """Return the description of the fault; empty if sampling again fails."""
        alone = self._parity(suspect, score, salt="")
        fresh = self._parity(suspect, score, salt=f"parity-{suspect.row}-{suspect.gap}")
        bare = self._parity(suspect, score, salt="", without_adapter=True)
        if alone is None or fresh is None or bare is None:
            return ""
        if alone.holds:
            return MIXED_ROWS
        if fresh.holds:
            return STALE_PREFIX
        if self.is_adapter and bare.holds:
            return NO_ADAPTER
        return STALE_HEAD if self.is_tied else OTHER_WEIGHTS

    def _parity(
        self, suspect: Suspect, score: Score, *, salt: str, without_adapter: bool = False
    ) -> Parity | None:
        """Sample the turn again, and compare it with the trainer; None if sampling fails.

        Always calls `score`, because all ranks must score together if weights are sharded.
        """
        ids, logprobs, is_sampled = [suspect.prompt[-1]], [0.0], False
        try:
            sample = self.sample_again(self._request(suspect), salt)
            ids, logprobs, is_sampled = list(sample.ids), list(sample.logprobs), True
        except InfrastructureError:
            pass
        trained = score(suspect.prompt, ids, without_adapter)
        if not is_sampled:
            return None
        gaps = [abs(one - other) for one, other in zip(logprobs, trained, strict=True)]
        return Parity(len(gaps), max(gaps), sum(gaps) / len(gaps), suspect.dtype)

    def _request(self, suspect: Suspect) -> SampleRequest:
        key = SampleKey(RolloutKey(0, 0, self.case_of_row(suspect.row), 0), 0)
        sampling = Sampling(temperature=self.temperature, max_tokens=_TOKENS)
        return SampleRequest(key, array("i", suspect.prompt), sampling)
