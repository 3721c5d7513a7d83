"""Plays the cases of a check with the model to be trained and with other models, concurrently.

Each model has a text log: one line per rollout, and a last line with the outcome.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice

from sparring.contracts.cases import Case
from sparring.contracts.errors import EndpointError, SparringError, error_text
from sparring.contracts.kinds import CheckSpec
from sparring.contracts.rollouts import Rollout, RolloutKey
from sparring.contracts.specs import PlaySettings
from sparring.contracts.summaries import PlayedModel
from sparring.environments.task import Task
from sparring.jobs.audit.auditor import Auditor
from sparring.jobs.logged_play import LoggedPlay
from sparring.jobs.worker import Heartbeat, PlayClock, Progress, ProgressHeartbeat
from sparring.learning.rollout_collector import play_and_judge
from sparring.learning.work import Built
from sparring.player import Play, Played
from sparring.policies.endpoint_policy import EndpointPolicy
from sparring.policies.transformers_policy import TransformersPolicy
from sparring.proofs.estimates import Measured
from sparring.proofs.learnability import is_passed
from sparring.run_folder import RunFolder

LEARNER = "learner"
_JUDGED_TWICE = 64  # rollouts


def log_name(number: int, model: str) -> str:
    """Return the name of the logs of the model with this number, counted from 0."""
    return f"{number + 1}-{re.sub(r'[^A-Za-z0-9.-]+', '-', model).strip('-.')[:60]}"


class ModelLog:
    """Writes `logs/NAME.log`. `message` describes a timeout or error; it is empty otherwise."""

    def __init__(self, folder: RunFolder, name: str, model: str, minutes: float) -> None:
        self.model = model
        self.message = ""
        self.seconds = 0.0
        self._minutes = minutes
        self._count = 0
        path = folder.path / "logs" / f"{name}.log"
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def write(self, played: Played) -> None:
        """Append a line for one rollout."""
        rollout = played.rollout
        self._count += 1
        reward = "unscored" if rollout.reward is None else f"reward {rollout.reward:g}"
        detail = f" {rollout.detail}" if rollout.detail else ""
        line = f"{rollout.id} {rollout.ending.value}, {reward}, {played.seconds:.1f} s{detail}"
        self._file.write(" ".join(line.split()) + "\n")
        self._file.flush()

    @contextmanager
    def recording(self, *, is_required: bool) -> Iterator[None]:
        """Time the play within the context, then close the log. A timeout is suppressed and
        described in `message`, and so is an error, unless `is_required`."""
        started = time.monotonic()
        try:
            yield
        except TimeoutError:
            self.message = (
                f"stopped after {self._minutes:g} minutes with {self._count} rollouts done"
            )
        except (SparringError, OSError, RuntimeError) as error:
            self.message = error_text(error)
            if is_required:
                raise
        except BaseException as error:
            self.message = f"stopped by {type(error).__name__}"
            raise
        finally:
            self.seconds = time.monotonic() - started
            self._file.write(f"{self.model}: {self.message or 'done'}, {self.seconds:.1f} s\n")
            self._file.close()


@dataclass(slots=True)
class _BatchTimer:
    """Measures the wall-clock and CPU seconds of each batch of `size` rollouts."""

    size: int
    seen: int = 0
    clock: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    last: tuple[float, float] = field(default_factory=lambda: _now())

    def note(self) -> None:
        """Count one rollout."""
        self.seen += 1
        if self.seen % self.size == 0:
            self.end_batch()

    def end_batch(self) -> None:
        """Add the seconds since the last batch."""
        now = _now()
        self.clock.append(now[0] - self.last[0])
        self.cpu.append(now[1] - self.last[1])
        self.last = now

    def restart(self) -> None:
        """Begin a batch now."""
        self.last = _now()


class CheckPlay:
    """Plays all models concurrently. `measured` holds the cost of the learner's batches and of one
    group, first in wall-clock seconds, then in CPU seconds."""

    def __init__(
        self,
        folder: RunFolder,
        spec: CheckSpec,
        task: Task,
        built: Built,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._task = task
        self._built = built
        fields = {name: getattr(spec.settings, name) for name in PlaySettings.model_fields}
        self._play = PlaySettings(**{**fields, "num_generations": spec.rollouts})
        self._cases = task.suite.spread(spec.cases)
        self._other_cases = task.suite.spread(spec.other_cases)
        rollouts = spec.rollouts * (len(self._cases) + len(self._other_cases) * len(spec.others))
        self._progress = Progress(rollouts)
        self.planned = spec.rollouts * len(self._cases)
        self.learner: list[Rollout] = []
        self.models: list[PlayedModel] = []
        self.measured: tuple[Measured, Measured] | None = None
        self.beat: ProgressHeartbeat | None = None  # once something is played

    async def run(self, auditor: Auditor, heartbeat: Heartbeat) -> None:
        """Play all models. If the learner completed a batch, also play and time one group. Of a
        check that resumes, the rollouts played before count, and a batch is timed if need be."""
        plan = self._built.plan
        rows = plan.cases_per_step * plan.rollouts_per_case
        timer = _BatchTimer(min(rows, self._play.rollouts_at_once))
        learner = self._learner_play(timer.size, auditor)
        earlier = list(islice(learner.earlier(), _JUDGED_TWICE))
        for rollout in earlier:
            auditor.add(rollout, LEARNER)
        heartbeat.watch(lambda: self._progress.rollouts + learner.tokens_drawn())
        heartbeat.note("playing", step=0)
        # After the play come one group and the dry steps, whose updates take about as long as play.
        rest = plan.rollouts_per_case + 2.0 * rows * self._spec.dry_steps
        clock = PlayClock(timer.size, limit=60 * self._spec.minutes, rest=rest)
        self.beat = beat = ProgressHeartbeat(
            self._folder, self._progress, learner.tokens_drawn, clock
        )
        beat.start_clock()
        log = ModelLog(self._folder, LEARNER, self._built.policy.name, self._spec.minutes)
        async with beat.running():
            await asyncio.gather(
                self._play_model(LEARNER, learner, log, self.learner, timer),
                *(self._play_other(number) for number in range(len(self._spec.others))),
            )
            heartbeat.note("measuring the time of one group")
            if isinstance(self._built.policy, TransformersPolicy):
                await self._built.policy.idle()  # the time limit may have left a batch behind
            if earlier and not timer.clock and len(self.learner) >= self.planned:
                await self._time_a_batch(timer)
            if timer.clock:
                self.measured = await self._time_a_group(timer)
            beat.left = self._seconds_of_dry_steps()

    def _seconds_of_dry_steps(self) -> float | None:
        """Return an estimate of the time that the dry steps will take: an update as long as its
        play."""
        if self.measured is None:
            return None
        return 2 * self._spec.dry_steps * statistics.mean(self.measured[0].batches)

    def _learner_play(self, batch_size: int, auditor: Auditor) -> LoggedPlay:
        remaining = _JUDGED_TWICE

        async def judge_again(rollout: Rollout) -> None:
            nonlocal remaining
            if remaining > 0 and rollout.judgements:
                remaining -= 1
                await auditor.judge_again(rollout, LEARNER)

        return LoggedPlay(
            self._folder.rollouts_of(LEARNER),
            lambda: self._plan(self._cases),
            task=self._task,
            policy=self._built.policy,
            play=self._play.model_copy(update={"max_concurrency": batch_size}),
            judge_again=judge_again,
        )

    async def _play_other(self, number: int) -> None:
        endpoint = self._spec.others[number]
        name = log_name(number, endpoint.model)
        seconds = 60.0 * self._spec.minutes
        policy = EndpointPolicy([endpoint], retries=3, seconds=seconds)
        logged = LoggedPlay(
            self._folder.rollouts_of(name),
            lambda: self._plan(self._other_cases),
            task=self._task,
            policy=policy,
            play=self._play.model_copy(update={"rollout_timeout": seconds}),
        )
        log = ModelLog(self._folder, name, endpoint.model, self._spec.minutes)
        await self._play_model(name, logged, log, [], endpoint=policy)

    async def _play_model(
        self,
        name: str,
        logged: LoggedPlay,
        log: ModelLog,
        rollouts: list[Rollout],
        timer: _BatchTimer | None = None,
        endpoint: EndpointPolicy | None = None,
    ) -> None:
        """Play one model until its plan or its time limit ends. Append its rollouts to `rollouts`
        and its figures to `self.models`."""
        rollouts += logged.earlier()
        for rollout in rollouts:
            self._progress.count(rollout)

        def note(played: Played) -> None:
            rollouts.append(played.rollout)
            self._progress.count(played.rollout)
            log.write(played)
            if timer is not None:
                timer.note()

        with log.recording(is_required=timer is not None):
            async with asyncio.timeout(60 * self._spec.minutes):
                if endpoint is not None and not rollouts:
                    await _ask_once(endpoint)
                await logged.run(note)
        self.models.append(_figures_of(log, name, rollouts))

    async def _time_a_batch(self, timer: _BatchTimer) -> None:
        """Play one batch without logging it: the plays of an earlier attempt were not timed."""
        plays = [replace(each, key=replace(each.key, step=1)) for each in self._plan(self._cases)]
        if len(plays) < timer.size:
            return
        timer.restart()
        await play_and_judge(self._built.collector.player, self._task.measures, plays[: timer.size])
        timer.end_batch()

    async def _time_a_group(self, timer: _BatchTimer) -> tuple[Measured, Measured]:
        """Play one group alone, to measure the cost of a replacement group."""
        size, case = self._built.plan.rollouts_per_case, self._cases[0]
        plays = [Play(RolloutKey(1, 0, case.id, index), case) for index in range(size)]
        started = _now()
        await play_and_judge(self._built.collector.player, self._task.measures, plays)
        ended = _now()
        # A step that exceeds max_concurrency is played in several batches.
        plan = self._built.plan
        batches = plan.cases_per_step * plan.rollouts_per_case / timer.size
        return (
            Measured([batches * seconds for seconds in timer.clock], ended[0] - started[0], 0.0),
            Measured([batches * seconds for seconds in timer.cpu], ended[1] - started[1], 0.0),
        )

    def _plan(self, cases: Sequence[Case]) -> Iterator[Play]:
        """Yield plays in groups, as in training: one group of every case, then the next of every
        case, so that all cases are played about equally often when the time limit ends the play."""
        size, rollouts = self._spec.settings.num_generations, self._spec.rollouts
        for start in range(0, rollouts, size):
            for case in cases:
                for index in range(start, min(start + size, rollouts)):
                    yield Play(RolloutKey(self._play.seed, 0, case.id, index), case)


async def _ask_once(policy: EndpointPolicy) -> None:
    """Raise EndpointError if the server refuses; one that is only busy is asked again in play."""
    try:
        await policy.ask_once()
    except EndpointError as error:
        if not error.may_pass:
            raise


def _figures_of(log: ModelLog, name: str, rollouts: Sequence[Rollout]) -> PlayedModel:
    scored = [each for each in rollouts if each.reward is not None]
    correct = [each for each in scored if is_passed(each)]
    cases = {each.case.id for each in scored}
    return PlayedModel(
        name=log.model,
        log=name,
        cases=len(cases),
        rollouts=len(rollouts),
        unscored=len(rollouts) - len(scored),
        correct=len(correct),
        accuracy=len(correct) / len(scored) if scored else None,
        any_correct=len({each.case.id for each in correct}) / len(cases) if cases else None,
        reward=sum(each.reward or 0.0 for each in scored) / len(scored) if scored else None,
        seconds=round(log.seconds, 1),
        is_learner=name == LEARNER,
        message="; ".join(filter(None, (log.message, _unscored_message(rollouts)))),
    )


def _unscored_message(rollouts: Sequence[Rollout]) -> str:
    unscored = [each for each in rollouts if each.reward is None]
    if not unscored:
        return "" if rollouts else "no rollout was played"
    return f"{len(unscored)} of {len(rollouts)} rollouts unscored: {unscored[0].detail}"


def _now() -> tuple[float, float]:
    """Return the wall-clock and CPU time, in seconds."""
    return time.monotonic(), time.process_time()
