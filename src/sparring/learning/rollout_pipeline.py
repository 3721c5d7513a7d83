"""Plays the rollouts of later steps while the trainer learns from earlier ones.

With `max_staleness` 0, a step is played when the trainer needs it, with the current weights. With
N, the rollouts of the next N generations are played while the trainer updates. Steps begin in
order, each once, with the newest weights at that time. So the weight version of a rollout depends
only on its step, and not on timing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeAlias

from sparring.contracts.errors import InfrastructureError
from sparring.contracts.policies import PublishedWeights
from sparring.contracts.specs import FORMAT
from sparring.learning.drawing import Drawn
from sparring.learning.groups import StepRollouts
from sparring.learning.reporting import StepCounts

Proposed: TypeAlias = Sequence[Sequence[str]]  # the cases of a step, by rank


@dataclass(frozen=True, slots=True)
class Pace:
    """Limits how far playing may be ahead of learning. The trainer learns from a generation of
    rollouts in `boundary` optimizer steps, and the first of them identifies the generation. `steps`
    is the length of the training."""

    steps: int
    max_staleness: int = 0
    boundary: int = 1

    def in_play(self, step: int) -> range:
        """Return the first step of each generation that may be in play when `step` is taken."""
        last = min(step + self.max_staleness * self.boundary, self.steps - self.boundary)
        return range(step, last + 1, self.boundary)

    def allows(self, step: int, version: int) -> bool:
        """Return whether `step` may learn from rollouts sampled by weights of this version."""
        return 0 <= step - version <= self.max_staleness * self.boundary


Propose: TypeAlias = Callable[[int], Proposed]
Draw: TypeAlias = Callable[[Proposed, int], Drawn]
Play: TypeAlias = Callable[[Drawn, int, PublishedWeights | None], StepRollouts]


@dataclass(frozen=True, slots=True)
class StepInPlay:
    """A step that is played with `weights`. `result` waits for its rollouts and returns them; where
    nothing is played ahead, it plays them."""

    drawn: Drawn
    weights: PublishedWeights | None
    proposed: Proposed
    result: Callable[[], StepRollouts]


class RolloutPipeline:
    """The steps that one rank has in play. With `max_staleness`, each step plays in a thread.

    `propose` is called once per step, in increasing order; `play` must be thread-safe. A checkpoint
    saves the cases and weights of all steps in play, and a resumed run plays these steps again.
    """

    def __init__(
        self,
        pace: Pace,
        propose: Propose,
        draw: Draw,
        play: Play,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pace = pace
        self._propose = propose
        self._draw = draw
        self._play = play
        self._clock = clock
        self._in_play: dict[int, StepInPlay] = {}
        self._idle = _IdleTime(clock)
        self._taken_at = 0.0

    def take(self, step: int, weights: PublishedWeights | None) -> StepInPlay:
        """Begin all steps that may be in play, with these weights, and return `step`."""
        for ahead in self._pace.in_play(step):
            if ahead not in self._in_play:
                proposed = self._propose(ahead)
                self._begin(ahead, proposed, self._draw(proposed, ahead), weights)
        if not self._pace.max_staleness:
            self._idle.begin()  # the caller plays the step now, and `counts` ends that
        self._taken_at = self._clock()
        return self._in_play.pop(step)

    def counts(self, step: int, weights: PublishedWeights | None) -> StepCounts:
        """Return the staleness of the step that was taken and has been played, the seconds that the
        trainer waited for it, and those without play since the last one; empty without sampling
        servers."""
        if not self._pace.max_staleness:
            self._idle.end()
        waited, idle = self._clock() - self._taken_at, self._idle.take()
        if weights is None:
            return StepCounts()
        return StepCounts().plus(
            paced=1, staleness=step - weights.version, trainer_idle=waited, samplers_idle=idle
        )

    def versions_in_play(self) -> list[PublishedWeights]:
        """Return the distinct weights of all steps in play."""
        needed = {
            each.weights.name: each.weights for each in self._in_play.values() if each.weights
        }
        return list(needed.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the cases and weights of all steps in play, for a checkpoint."""
        return {
            "format": FORMAT,
            "steps": [
                {
                    "step": step,
                    "proposed": _lists(each.proposed),
                    "drawn": asdict(each.drawn),
                    "weights": each.weights.to_dict(),
                }
                for step, each in sorted(self._in_play.items())
                if each.weights is not None
            ],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Play the steps again that were in play when a checkpoint was saved.

        A step whose weights are too old for this pace is left out, and drawn again by `take`.
        """
        for each in saved["steps"]:
            weights = PublishedWeights.from_dict(each["weights"])
            if not self._pace.allows(each["step"], weights.version):
                continue
            proposed = self._propose(each["step"])
            if _lists(proposed) != each["proposed"]:
                raise InfrastructureError(
                    f"the checkpoint has step {each['step']} in play, but the engine now proposes "
                    "other cases for it; install the version of the engine that saved it, or set "
                    "max_staleness to 0"
                )
            drawn = Drawn(**{name: tuple(cases) for name, cases in each["drawn"].items()})
            self._begin(each["step"], proposed, drawn, weights)

    def _begin(
        self, step: int, proposed: Proposed, drawn: Drawn, weights: PublishedWeights | None
    ) -> None:
        work = partial(self._play, drawn, step, weights)
        result = self._started(work) if self._pace.max_staleness else work
        self._in_play[step] = StepInPlay(drawn, weights, proposed, result)

    def _started(self, work: Callable[[], StepRollouts]) -> Callable[[], StepRollouts]:
        """Start `work` in a thread. Return a function that waits for it and returns its result."""
        future: Future[StepRollouts] = Future()

        def run() -> None:
            self._idle.begin()
            try:
                future.set_result(work())
            except BaseException as error:  # CancelledError, if the event loop is closed
                future.set_exception(error)
            finally:
                self._idle.end()

        threading.Thread(target=run, name="sparring-ahead", daemon=True).start()
        return future.result


class _IdleTime:
    """Measures the time without any work, starting at the end of the first work. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._busy = 0
        self._since: float | None = None
        self._total = 0.0

    def begin(self) -> None:
        """Note that a piece of work begins."""
        with self._guard:
            self._busy += 1
            if self._since is not None:
                self._total += self._clock() - self._since
                self._since = None

    def end(self) -> None:
        """Note that a piece of work has ended."""
        with self._guard:
            self._busy -= 1
            if not self._busy:
                self._since = self._clock()

    def take(self) -> float:
        """Return the idle seconds since the last call."""
        with self._guard:
            if self._since is not None:
                now = self._clock()
                self._total += now - self._since
                self._since = now
            total, self._total = self._total, 0.0
            return total


def _lists(cases: Iterable[Iterable[str]]) -> list[list[str]]:
    return [list(each) for each in cases]
