"""The seam between a step and whoever updates the weights.

An engine gets rows with streams and knows no rollout, reward or measure. TRL's room
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
    the engine did not compute them. `parity` compares the tokens of all ranks; None if it was not
    asked for, or no token was sampled.
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
        """Return a context in which policies sample. It changes no weight and no random number of
        the training."""
        ...

    def publish(self) -> None:
        """Make the policy sample with the current weights."""
        ...

    def score(self, batch: Batch, *, compares: bool) -> Scores:
        """Prepare a batch for its update, and return the scores of its rows. With `compares`, the
        scores have a parity."""
        ...

    def explain_gap(self, batch: Batch) -> str:
        """Return the likely cause of the gap that the last scores have."""
        ...

    def update(self, batch: Batch) -> Iterator[int]:
        """Learn from the batch that was scored last. Yields the number of each optimizer step when
        it is taken."""
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

    def close(self) -> None:
        """Free what only training needs. The weights stay."""
        ...
