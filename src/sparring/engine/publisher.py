"""Publishes the weights of a training run to sampling servers, through a folder.

Each version has a unique name: the run, the step, and a digest of the weights and the folder's
path. The version is renamed into place when it is complete. Names are never reused for
other weights: a server would keep the prefix cache of the old ones. Folders never move: a server
reloads an evicted adapter from the folder that it first loaded, and exits if that is missing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import broadcast_object_list
from safetensors.torch import save_file

from sparring.contracts.errors import SettingError
from sparring.contracts.policies import PublishedWeights
from sparring.engine.adapter_versions import ADAPTER, ADAPTER_FILE, AdapterVersions
from sparring.policies.server_policy import ServerPolicy
from sparring.run_folder.files import sync_files, sync_folder

if TYPE_CHECKING:
    from trl import GRPOTrainer

_KEPT = 3
_STAGING = ".staging"


class Publisher:
    """Writes versions of the weights to `folder`, and makes the policy sample with the newest.

    All ranks must call `sync` together: sharded weights are gathered, and rank 0 writes.
    The folder keeps the newest version, the versions that `in_play` returns, and the two newest of
    the others. With `max_staleness`, `as_of` loads older adapters into the model.
    """

    def __init__(
        self,
        trainer: GRPOTrainer,
        policy: ServerPolicy,
        folder: Path,
        run: str,
        *,
        max_staleness: int = 0,
        in_play: Callable[[], Iterable[PublishedWeights]] = tuple,
    ) -> None:
        self._trainer = trainer
        self._policy = policy
        self._folder = folder.resolve()
        self._run = run
        self._in_play = in_play
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

    def sync(self) -> None:
        """Publish the current weights, and make the policy sample with them."""
        step = int(self._trainer.state.global_step)
        state = gathered_state(self._model)
        names = [""]
        if self._trainer.accelerator.is_main_process:
            names = [self._write(state, step)]
            self._prune(names[0])
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
            config = self._model.peft_config[ADAPTER]
            with _as_inference(config):
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

    def _prune(self, newest: str) -> None:
        """Remove old versions that no rollout in play needs."""
        needed = {newest, *(each.name for each in self._in_play())}
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


@contextmanager
def _as_inference(config: Any) -> Iterator[None]:
    was = config.inference_mode
    config.inference_mode = True
    try:
        yield
    finally:
        config.inference_mode = was


def _digest_of(file: Path, folder: Path) -> str:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256")
    digest.update(os.fsencode(folder))
    return digest.hexdigest()[:8]
