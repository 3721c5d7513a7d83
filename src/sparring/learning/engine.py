"""The seam between a step and whoever updates the weights.

An engine gets rows with streams and knows no rollout, reward or measure. The engine on TRL
(`engine/trainer.py`) and a training service both fit behind these verbs.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sparring.learning.parity import Parity
from sparring.learning.ranks import Ranks
from sparring.learning.streams import Batch
from sparring.policies.vllm_server import PublishedWeights
from sparring.run_folder.checkpoint_list import Checkpoint


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
