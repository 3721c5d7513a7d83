"""The seam between a step and whoever updates the weights.

An engine gets rows with streams and knows no rollout, reward or measure. The engine on TRL
(`engine/trainer.py`) and a training service both fit behind these verbs.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, TypeVar

from sparring.contracts.errors import WorldSizeError
from sparring.contracts.policies import PublishedWeights
from sparring.learning.parity import Parity
from sparring.learning.rows import LearningRow
from sparring.run_folder.checkpoint_list import Checkpoint

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Launched:
    """The rank of this process and the number of processes."""

    rank: int
    world_size: int

    @classmethod
    def here(cls) -> Launched:
        """Read torchrun's `RANK` and `WORLD_SIZE`; without them, a single process."""
        return cls(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))

    def require(self, world_size: int) -> None:
        """Raise WorldSizeError unless `world_size` processes were started."""
        if self.world_size != world_size:
            raise WorldSizeError(
                f"{world_size} processes were requested, but {self.world_size} started; start them "
                f"with `sparring train --processes N`, or with torchrun --nproc-per-node N"
            )


class Ranks(Protocol):
    """The processes that train together, as one of them sees them."""

    @property
    def rank(self) -> int:
        """The number of this process; rank 0 reports for all."""
        ...

    def gather(self, mine: list[Any]) -> list[Any]:
        """Return the concatenated lists of all ranks. All ranks call this together."""
        ...


def from_rank_0(find: Callable[[], Found], ranks: Ranks) -> Found:
    """Call `find` on rank 0 only, and return its result on every rank. All ranks call this
    together; if `find` raises, the others wait until they are ended."""
    found: list[Found] = ranks.gather([find()] if ranks.rank == 0 else [])
    return found[0]


@dataclass(frozen=True, slots=True)
class Stream:
    """One row of the batch.

    `advantages` has a number for each token of the completion, and counts where the row's mask is
    1. `targets` is the weight of each token in the loss on tool results; None if no rank has any.
    `rollout` is the index of the row's rollout in the batch.
    """

    row: LearningRow
    rollout: int
    advantages: array[float]
    targets: array[float] | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """The streams of one generation on this rank: `group` rollouts of each case, one after another.

    `case_ids` are by rollout. `weights` are those that servers sampled with; None without servers.
    """

    streams: tuple[Stream, ...]
    case_ids: tuple[str, ...]
    group: int
    weights: PublishedWeights | None = None

    @property
    def rollout_of_row(self) -> list[int]:
        """The index of each row's rollout."""
        return [each.rollout for each in self.streams]

    @property
    def advantages(self) -> list[float]:
        """The mean advantage of each rollout, over the tokens that are learned from if any are."""
        tokens: list[list[float]] = [[] for _ in self.case_ids]
        masked: list[list[float]] = [[] for _ in self.case_ids]
        for stream in self.streams:
            masked[stream.rollout] += stream.advantages
            tokens[stream.rollout] += compress(stream.advantages, stream.row.mask)
        return [fmean(own or every) for own, every in zip(tokens, masked, strict=True)]


@dataclass(frozen=True, slots=True)
class Scores:
    """What the engine's weights say of a batch, before the update.

    `gaps` has, by row, the log-probability of each completion token minus the sampler's; None if
    the engine did not compute them. If a comparison was asked for, they are those of the weights
    that sampled, and `parity` compares the tokens of all ranks; None if no token was sampled.
    """

    gaps: Sequence[array[float]] | None = None
    parity: Parity | None = None


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What an engine counted since the last time: means over all ranks, and sums of this rank."""

    means: Mapping[str, float] = field(default_factory=dict)
    sums: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LearningState:
    """What a checkpoint holds besides the engine's own files: the difficulty of the cases, what
    each rank has in play, and the weights that this needs."""

    difficulty: Mapping[str, Any]
    in_play: Sequence[Mapping[str, Any]]
    weights: Sequence[PublishedWeights]
    score: float | None = None


class Engine(Ranks, Protocol):
    """Holds the weights, and updates them. All ranks call each verb together."""

    @property
    def step(self) -> int:
        """The number of optimizer steps that the weights have taken."""
        ...

    def notes(self) -> list[str]:
        """Return what the engine does otherwise than the settings ask, for the run's log."""
        ...

    def propose(self, step: int) -> list[list[str]]:
        """Return the cases of a generation, by rank. Steps are asked for in increasing order."""
        ...

    def sampling(self) -> AbstractContextManager[None]:
        """Return a context for sampling with the engine's own weights: it changes neither these nor
        the random numbers of the training."""
        ...

    def publish(self) -> None:
        """Make the policy sample with the current weights."""
        ...

    def score(self, batch: Batch, *, compares: bool) -> Scores:
        """Take a batch for the next update, and return the scores of its rows. With `compares`, the
        scores have a parity."""
        ...

    def explain_gap(self) -> str:
        """Return the likely cause of the gap that the last scores have."""
        ...

    def update(self) -> Iterator[int]:
        """Learn from the batch that was scored last, once. Yields the number of each optimizer step
        when it is taken."""
        ...

    def figures(self) -> EngineFigures:
        """Return what was counted since the last call."""
        ...

    def save(self, state: LearningState) -> Path | None:
        """Save a checkpoint, and return its folder on rank 0."""
        ...

    def note_start(self, score: float) -> None:
        """Note the validation score of the weights before the first step, if they are saved."""
        ...

    def restore(self, checkpoint: Checkpoint | None) -> Sequence[Mapping[str, Any]]:
        """Prepare for the first step, or continue after that of a checkpoint. Returns what each
        rank had in play; empty if nothing is to be played again."""
        ...

    def load(self, checkpoint: Checkpoint | None) -> None:
        """Take the weights and the step of a checkpoint, where nothing is left to train."""
        ...

    def close(self) -> None:
        """Free what only training needs. The weights stay."""
        ...
