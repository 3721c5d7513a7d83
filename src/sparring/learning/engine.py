"""The seam between a training and whoever updates the weights.

An engine gets rows with streams and knows no rollout, reward or measure. `ENGINES` names the module
of each engine, which loads a `Learner`; the learner opens the `Engine`. The engine on TRL
(`engine/opening.py`, `engine/trainer.py`) and a training service both fit behind these verbs.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from sparring.contracts.errors import WorldSizeError
from sparring.contracts.policies import PublishedWeights, TokenPolicy, VersionedPolicy
from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings, WarmStart
from sparring.learning.batches import BatchPlan
from sparring.learning.checkpoints import Checkpoints
from sparring.learning.guards import GuardMonitor
from sparring.learning.rows import LearningRollout, LearningRow
from sparring.policies.codec import ChatCodec
from sparring.policies.families import Family
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import Checkpoint

Value = TypeVar("Value")
Announce: TypeAlias = Callable[[str], None]
FLOAT32_LIMIT = 1e-3
BFLOAT16_LIMIT = 0.05


@dataclass(frozen=True, slots=True)
class Launched:
    """The rank of this process and the number of processes."""

    rank: int
    world_size: int

    @classmethod
    def here(cls, wanted: int | None = None) -> Launched:
        """Read torchrun's `RANK` and `WORLD_SIZE`; without them, a single process. Raises
        WorldSizeError unless as many processes were started as are wanted, if any number is."""
        started = int(os.environ.get("WORLD_SIZE", 1))
        if wanted is not None and wanted != started:
            raise WorldSizeError(
                f"{wanted} processes were requested, but {started} started; start them "
                f"with `sparring train --processes N`, or with torchrun --nproc-per-node N"
            )
        return cls(int(os.environ.get("RANK", 0)), started)


class Ranks(Protocol):
    """The processes that train together, as one of them sees them."""

    @property
    def rank(self) -> int:
        """The number of this process; rank 0 reports for all."""
        ...

    def gather(self, mine: list[Any]) -> list[Any]:
        """Return the concatenated lists of all ranks. All ranks call this together."""
        ...


def from_rank_0(find: Callable[[], Value], ranks: Ranks) -> Value:
    """Call `find` on rank 0 only, and return its result on every rank. All ranks call this
    together; if `find` raises, the others wait until they are ended."""
    found: list[Value] = ranks.gather([find()] if ranks.rank == 0 else [])
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
class Parity:
    """The gap between the log-probabilities of sampler and trainer, over `tokens` tokens.

    If it is large, the update would use the gradient of another policy, although rewards may still
    rise for a while. It is measured in the first step, and in every step if servers sample.
    """

    tokens: int
    largest: float
    mean: float
    dtype: str

    @property
    def limit(self) -> float:
        """The acceptable gap in this precision."""
        return FLOAT32_LIMIT if self.dtype == "float32" else BFLOAT16_LIMIT

    @property
    def holds(self) -> bool:
        """Whether the gap is within the limit: the largest gap in float32, the mean in bfloat16,
        where rounding makes single gaps large."""
        return (self.largest if self.dtype == "float32" else self.mean) <= self.limit

    def __str__(self) -> str:
        kind = "largest" if self.dtype == "float32" else "mean"
        return (
            f"sampler and trainer differ by {self.largest:.1e} at most and {self.mean:.1e} on "
            f"average over {self.tokens} tokens ({self.dtype}; limit {self.limit:g} on the {kind})"
        )


def likely_cause(
    sampled: Sequence[float], trained: Sequence[float], at_temperature_one: Sequence[float]
) -> str:
    """Return the first explanation that fits. Each argument has one log-probability per sampled
    token."""
    gap = _gap(sampled, trained)
    if _gap(sampled, at_temperature_one) < gap / 4:
        return (
            "The sampler's log-probabilities match temperature 1: report those of the "
            "temperature-scaled softmax (vLLM: --logprobs-mode processed_logprobs)."
        )
    if len(sampled) > 8 and min(_gap(sampled[1:], trained), _gap(sampled, trained[1:])) < gap / 4:
        return (
            "The log-probabilities match when shifted by one token: the rollout function returns "
            "them for the wrong positions."
        )
    return (
        "Likely causes: the sampler's weights differ from the trainer's (an inactive adapter, a "
        "server that is not kept in sync), it samples with more than temperature (top_p, top_k, a "
        "penalty), or it computes in another precision."
    )


def _gap(left: Sequence[float], right: Sequence[float]) -> float:
    pairs = list(zip(left, right, strict=False))
    return sum(abs(one - other) for one, other in pairs) / max(1, len(pairs))


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
    """Holds the weights of one training, and updates them. All ranks call each verb together."""

    @property
    def plan(self) -> BatchPlan:
        """The batch plan; `prepare` may split its passes further."""
        ...

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints of the run."""
        ...

    @property
    def policy(self) -> TokenPolicy:
        """What samples with the weights that were published last."""
        ...

    @property
    def versions(self) -> VersionedPolicy | None:
        """The policy, if it samples with published versions of the weights; None if it samples with
        the engine's own weights in this process."""
        ...

    @property
    def step(self) -> int:
        """The number of optimizer steps that the weights have taken."""
        ...

    # ------------------------------------------------------------------ before the first step

    def prepare(
        self, prompt_tokens: Callable[[], tuple[int, int]], announce: Announce = lambda _: None
    ) -> None:
        """Fit an update into memory, and announce what the engine does otherwise than the settings
        ask. `prompt_tokens` measures the longest prompt, and the prefix that prompts share."""
        ...

    def learn(
        self,
        demonstrations: Sequence[LearningRollout],
        warm: WarmStart,
        *,
        on_step: Callable[[int, int, float], None],
        is_stop_requested: Callable[[], bool],
    ) -> bool:
        """Learn the sampled tokens of demonstrations, which are the same on every rank, save the
        weights as the checkpoint step-0, and return True. They are the reference of the KL term
        from then on. On a stop request, save nothing and return False."""
        ...

    def start_from(self, start: Checkpoint) -> None:
        """Take the weights of an earlier `learn` from its checkpoint, also as the reference."""
        ...

    def restore(self, checkpoint: Checkpoint | None) -> Sequence[Mapping[str, Any]]:
        """Prepare for the first step, or continue after that of a checkpoint. Returns what each
        rank had in play; empty if nothing is to be played again."""
        ...

    def load(self, checkpoint: Checkpoint | None) -> None:
        """Take the weights and the step of a checkpoint, where nothing is left to train."""
        ...

    # ------------------------------------------------------------------ a step

    def propose(self, step: int) -> list[list[str]]:
        """Return the cases of a generation, by rank. Steps are asked for in increasing order."""
        ...

    def sampling(self) -> AbstractContextManager[None]:
        """Return a context for sampling with the engine's own weights: it changes neither these nor
        the random numbers of the training."""
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

    def publish(self, in_play: Sequence[PublishedWeights] = ()) -> None:
        """Make the policy sample with the current weights. The versions in play stay available."""
        ...

    def figures(self) -> EngineFigures:
        """Return what was counted since the last call."""
        ...

    # ------------------------------------------------------------------ between steps

    def save(self, state: LearningState) -> Path | None:
        """Save a checkpoint, and return its folder on rank 0."""
        ...

    def note_start(self, score: float) -> None:
        """Note the validation score of the weights before the first step, if they are saved."""
        ...

    def close(self) -> None:
        """Free what only training needs. The weights stay."""
        ...


# ------------------------------------------------------------------ opening an engine


@dataclass(frozen=True, slots=True)
class Opening:
    """What an engine is opened with, besides the learner.

    `run` executes a coroutine in the event loop in which rollouts are played. `on_updating` is
    called with the step while an update goes on.
    """

    folder: RunFolder
    settings: TrainSettings
    case_ids: Sequence[str]
    suite_digest: str
    code_digest: str
    launched: Launched
    guards: GuardMonitor
    run: Callable[[Coroutine[Any, Any, Any]], Any]
    on_updating: Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Learner(ABC):
    """The model that is trained, as rollouts need it, and the way to its engine.

    `vocabulary` is the number of its token ids, `positions` the length of its context; None if it
    is not known. `one_row_reason` is why a rollout may have only one row with these settings.
    `own_template` is the chat template that the tokenizer was loaded with; None if it had none.
    """

    name: str
    tokenizer: Any
    family: Family
    vocabulary: int
    positions: int | None
    one_row_reason: str = ""
    own_template: str | None = None

    def codec(self) -> ChatCodec:
        """Return a codec for this tokenizer and family."""
        return ChatCodec(self.tokenizer, self.family)

    @abstractmethod
    def open(self, opening: Opening) -> Engine:
        """Open the engine of one training, without playing a rollout."""


class EngineModule(Protocol):
    """The functions that the module of an engine has."""

    def refuse_unknown(self, names: Iterable[str]) -> None:
        """Raise SettingError for names that are no settings, with the names to use."""
        ...

    def check(self, settings: TrainSettings, training_cases: int, world_size: int) -> None:
        """Raise SettingError for settings that cannot work, before a model is loaded."""
        ...

    def plan_of(self, settings: TrainSettings, training_cases: int, world_size: int) -> BatchPlan:
        """Return the batch plan of these settings."""
        ...

    def load(
        self,
        spec: PolicySpec,
        settings: TrainSettings,
        *,
        agent_model: object = None,
        model: Any = None,
        tokenizer: Any = None,
        declared: Family | None = None,
        optimizers: tuple[Any, Any] = (None, None),
    ) -> Learner:
        """Load the model that the spec or else the agent names, or prepare `model` and
        `tokenizer`. `optimizers` are the user's optimizer and schedule."""
        ...


ENGINES: Mapping[str, str] = {"trl": "sparring.engine.opening"}


def engine_named(name: str = "trl") -> EngineModule:
    """Import and return the module of an engine."""
    return cast("EngineModule", importlib.import_module(ENGINES[name]))
