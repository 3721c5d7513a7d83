"""An engine without weights: it notes which verbs are called, and takes steps."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparring.contracts.policies import PublishedWeights
from sparring.learning.engine import Batch, EngineFigures, LearningState, Parity, Scores
from sparring.run_folder.checkpoint_list import Checkpoint


class NotebookEngine:
    """Proposes `cases` at every step. `steps_per_batch` is the number of optimizer steps that one
    generation takes; `gap` is the gap of every token, and `figure` the loss it reports."""

    def __init__(
        self, cases: Sequence[str] = (), *, steps_per_batch: int = 1, rank: int = 0
    ) -> None:
        self.step = 0
        self.plan: Any = None
        self.checkpoints: Any = None
        self.policy: Any = None
        self.versions = None
        self.rank = rank
        self.cases = list(cases)
        self.steps_per_batch = steps_per_batch
        self.gap = 0.0
        self.means: dict[str, float] = {"loss": 0.5}
        self.sums: dict[str, float] = {}
        self.noted: list[str] = []
        self.batches: list[Batch] = []
        self.saved: list[LearningState] = []
        self.published: list[int] = []
        self.start_score: float | None = None

    def gather(self, mine: list[Any]) -> list[Any]:
        return mine

    def prepare(self, prompt_tokens: Any, announce: Any = None) -> None: ...

    def learn(
        self, demonstrations: Any, warm: Any, *, on_step: Any, is_stop_requested: Any
    ) -> bool:
        self.noted.append("learn")
        return not is_stop_requested()

    def start_from(self, start: Checkpoint) -> None: ...

    def propose(self, step: int) -> list[list[str]]:
        self.noted.append("propose")
        return [self.cases]

    @contextmanager
    def sampling(self) -> Iterator[None]:
        self.noted.append("sample")
        yield

    def publish(self, in_play: Sequence[PublishedWeights] = ()) -> None:
        self.noted.append("publish")
        self.published.append(self.step)

    def score(self, batch: Batch, *, compares: bool) -> Scores:
        self.noted.append("score")
        self.batches.append(batch)
        gaps = [array("f", [self.gap] * len(each.row.completion)) for each in batch.streams]
        parity = Parity(len(gaps), self.gap, self.gap, "float32") if compares else None
        return Scores(gaps, parity)

    def explain_gap(self) -> str:
        return "The notebook was torn."

    def update(self) -> Iterator[int]:
        self.noted.append("update")
        for _ in range(self.steps_per_batch):
            self.step += 1
            yield self.step

    def figures(self) -> EngineFigures:
        self.noted.append("figures")
        return EngineFigures(self.means, self.sums)

    def save(self, state: LearningState) -> Path | None:
        self.noted.append("save")
        self.saved.append(state)
        return Path(f"step-{self.step}")

    def note_start(self, score: float) -> None:
        self.start_score = score

    def restore(self, checkpoint: Checkpoint | None) -> Sequence[Mapping[str, Any]]:
        self.step = checkpoint.step if checkpoint else 0
        return []

    def load(self, checkpoint: Checkpoint | None) -> None:
        self.step = checkpoint.step if checkpoint else 0

    def close(self) -> None: ...
