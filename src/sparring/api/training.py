"""`train(…)` and `Trainer`: training in the calling process."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

from rich.progress import TimeElapsedColumn

from sparring.api.options import LearnOptions, TrainOptions
from sparring.api.python_runs import (
    attempt_here,
    fields_of,
    open_run,
    policy_named,
    progress_bar,
    spec_of,
    train_settings,
)
from sparring.api.train_result import TrainResult
from sparring.contracts.errors import InvalidInput, SettingError
from sparring.contracts.policies import TokenPolicy
from sparring.contracts.progress import NewLines, left_text
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.environments.examples import WorkedExample
from sparring.environments.task import AnyAgent, Measures, Task, default_settings, read_task
from sparring.jobs.run_job import run_job
from sparring.jobs.train.training import Training
from sparring.learning.engine import Launched
from sparring.learning.work import load_work
from sparring.player.function_player import RolloutFunction
from sparring.player.player import ContextFactory
from sparring.player.sdk_run import UserFunction
from sparring.policies.families import Family
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import list_checkpoints
from sparring.suites import Suite


def train(
    agent: AnyAgent,
    suite: Suite | None = None,
    measures: Measures | None = None,
    **options: Unpack[TrainOptions],
) -> TrainResult:
    """Train the agent's model on the suite's training cases, rewarded by the measures.

    `agent` is an agent of the SDK, a function `play(case, session)` that runs any other agent, or
    an environment. An environment provides the defaults of suite, measures, weights, context,
    user, family, examples and settings.

    `options` are the arguments of `Trainer` (model, weights, run, …) and the fields of
    `TrainSettings` (max_steps, learning_rate, num_generations, lora, …).
    """
    return Trainer(agent, suite, measures, **options).train()


class Trainer:
    """A training run that is built but not started. Its `model`, `tokenizer` and `engine`, which is
    TRL's trainer, can be inspected and changed before `train()`."""

    def __init__(
        self,
        agent: AnyAgent,
        suite: Suite | None = None,
        measures: Measures | None = None,
        *,
        model: Any = None,
        tokenizer: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        weights: Mapping[str, float] | None = None,
        reward_functions: Sequence[Callable[..., Any]] = (),
        context: ContextFactory | None = None,
        user: UserFunction | None = None,
        rollout_function: RolloutFunction | None = None,
        family: Family | str | None = None,
        examples: Sequence[WorkedExample] | None = None,
        processes: int | None = None,
        runs: str | Path = "runs",
        run: str | None = None,
        accept_changes: bool = False,
        show_progress: bool = True,
        **settings: Unpack[LearnOptions],
    ) -> None:
        launched = Launched.here(processes)
        self.settings = _refuse_processes(train_settings({**default_settings(agent), **settings}))
        self._task = task = read_task(
            agent,
            suite,
            measures,
            weights=weights,
            reward_functions=reward_functions,
            context=context,
            user=user,
            family=family,
            examples=examples,
            settings=self.settings,
        )
        _refuse_unsuited(task, self.settings, rollout_function)
        spec = _spec_of(task, model, self.settings, launched)
        work = load_work(
            task,
            self.settings,
            spec.policy,
            launched.world_size,
            model=None if isinstance(model, str) else model,
            tokenizer=tokenizer,
            rollout_function=rollout_function,
            optimizers=(optimizer, scheduler),
            code_digest=spec.code_digest,
        )
        self.folder = _shared_folder(Path(runs), run, spec, launched, accept_changes)
        self._attempt = attempt_here(self.folder, launched.rank, accept_changes=accept_changes)
        self._stop, self._built, self._has_trained = threading.Event(), time.time(), False
        self._shows_progress = show_progress and launched.rank == 0
        self._bar = progress_bar("training", TimeElapsedColumn(), is_wanted=self._shows_progress)
        self._new_lines = NewLines()
        self._training = Training(
            self._attempt, work, launched, on_progress=self._show, should_stop=self._stop.is_set
        )

    @property
    def engine(self) -> Any:
        """TRL's trainer."""
        return self._training.built.engine

    @property
    def model(self) -> Any:
        """The model that is trained, including its adapters."""
        return self.engine.model

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the model."""
        return self._training.built.work.learner.tokenizer

    @property
    def policy(self) -> TokenPolicy:
        """A policy that samples with the current weights."""
        return self._training.built.policy

    def stop(self) -> None:
        """Request a stop after the current step, with a checkpoint. Thread-safe."""
        self._stop.set()

    def train(self) -> TrainResult:
        """Train to the last step, from the run's newest checkpoint if it has one. A trainer trains
        once; to continue a run that was stopped, make another trainer for it."""
        if self._has_trained:
            raise InvalidInput(
                f"this trainer has trained; to continue its run, make another one with "
                f"run={self.folder.id!r}"
            )
        with _stops_on_signals(self._stop), self._bar:
            doing = "playing the first step"
            self._shown = self._bar.add_task("training", total=None, note=doing)
            self._training.built.engine.gather([])  # rank 0 has made the run's folder by now
            try:
                ended = run_job(self._attempt, self._task, self._begin)
                self.engine.publish()
            except KeyboardInterrupt:
                print(f"stopped; pass run={self.folder.id!r} to resume it", file=sys.stderr)
                raise
            finally:  # so that the policy's evaluations on held-out cases count as the run's
                if saved := list_checkpoints(self.folder.checkpoints):
                    self.policy.name = str(saved[-1].path.resolve())
        if ended.is_stopped:
            done = f"after {ended.summary.steps} of {ended.summary.planned_steps} steps"
            is_called_by_train = sys._getframe(1).f_code is train.__code__
            warnings.warn(
                f"the training was stopped {done}; pass run={self.folder.id!r} to resume it",
                RuntimeWarning,
                stacklevel=3 if is_called_by_train else 2,  # points at the user's call
            )
        return TrainResult(
            folder=self.folder,
            summary=ended.summary,
            agent=self._task.agent,
            model=self.model,
            tokenizer=self.tokenizer,
            policy=self.policy,
            settings=self.settings,
            task=self._task,
            worked_examples=self._task.examples,
        )

    def _begin(self, *_: object) -> Training:
        """Return the training that has been built, once its run is locked."""
        self._has_trained = True
        if self._attempt.rank == 0:
            with contextlib.suppress(FileNotFoundError):
                if self.folder.stop_request.stat().st_mtime < self._built:
                    self.folder.stop_request.unlink()  # it was for an earlier attempt
        return self._training

    def _show(self, beat: Mapping[str, Any]) -> None:
        """Print the new lines of a heartbeat and update the bar."""
        if not self._shows_progress:
            return
        for line in self._new_lines(beat):
            self._bar.console.print(line, soft_wrap=True, highlight=False, markup=False)
        self._bar.update(
            self._shown,
            total=beat["steps"],
            completed=beat["step"],
            note=left_text(beat.get("seconds_left")),
        )


def _refuse_unsuited(task: Task, settings: TrainSettings, function: RolloutFunction | None) -> None:
    """Raise an error if the agent cannot be trained, or if a rollout function, which makes its own
    prompts, would leave out worked examples."""
    if function is None:
        task.refuse_untrainable(settings)
    elif task.examples:
        raise InvalidInput(
            "a rollout_function makes its own prompts, so the worked examples would not be in "
            "them; leave out `examples`"
        )


def _spec_of(task: Task, model: Any, settings: TrainSettings, launched: Launched) -> TrainSpec:
    named = policy_named(model if isinstance(model, str) else None, settings)
    own = {"policy": named, "settings": settings, "processes": launched.world_size}
    return spec_of(TrainSpec, {**fields_of(task), **own})


def _refuse_processes(settings: TrainSettings) -> TrainSettings:
    if settings.players:
        raise SettingError(
            "players is not available in train(), which plays in this process; use "
            "`sparring train --set players=N`"
        )
    if settings.sampling is not None and settings.sampling.number_started:
        raise SettingError(
            "train() starts no sampling servers; pass their addresses, "
            "sampling=['http://HOST:PORT'], or use `sparring train --sampling N`"
        )
    return settings


def _shared_folder(
    runs: Path,
    run: str | None,
    spec: TrainSpec,
    launched: Launched,
    accept_changes: bool,
) -> RunFolder:
    """Return the run's folder. Rank 0 creates or checks it; the other ranks wait for rank 0
    before they train."""
    if launched.world_size > 1 and run is None:
        raise InvalidInput("several processes share one run: give it a name, run='…'")
    if launched.rank != 0:
        return RunFolder(runs / str(run))
    return open_run(runs, run, spec, accept_changes=accept_changes)


@contextmanager
def _stops_on_signals(stop: threading.Event) -> Iterator[None]:
    """Within the context, SIGTERM and Ctrl-C end the training after the current step, with a
    checkpoint. Ctrl-C after a stop request ends it at once. Handlers that the user has installed
    are not replaced."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def request_stop(number: int, _: Any) -> None:
        if number == signal.SIGINT:
            if stop.is_set():
                raise KeyboardInterrupt
            print("stopping after this step, with a checkpoint; Ctrl-C again stops at once")
        stop.set()

    defaults = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    replaced = {
        number: default
        for number, default in defaults.items()
        if signal.getsignal(number) is default
    }
    for number in replaced:
        signal.signal(number, request_stop)
    try:
        yield
    finally:
        for number, default in replaced.items():
            signal.signal(number, default)
