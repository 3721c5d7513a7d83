"""`train(…)` and `Trainer`: training in the calling process, in a script or a notebook."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from agents import Agent
from pydantic import ValidationError

from sparring.contracts.cases import Split
from sparring.contracts.errors import InvalidInput, SettingError
from sparring.contracts.policies import TokenPolicy
from sparring.contracts.specs import PolicySpec
from sparring.contracts.training import TrainSettings, TrainSpec
from sparring.engine.building import TrainWork
from sparring.engine.configuration import check, refuse_unknown
from sparring.engine.loading import load
from sparring.engine.ranks import Launched
from sparring.measures import Measure, MeasureSet
from sparring.measures.declaration import Judge
from sparring.player.own_rollouts import RolloutFunction
from sparring.player.player import ContextFactory
from sparring.player.trainability import refuse_several_rows, refuse_without_tools
from sparring.policies.families import Family
from sparring.proofs.null_players import examples_before
from sparring.run_folder import RunFolder
from sparring.suites import Suite
from sparring.worker.from_python import agent_digest, explained, open_run, refuse_wrong_kinds
from sparring.worker.holding import alone, report_event
from sparring.worker.train_result import TrainResult
from sparring.worker.training import Training
from sparring.worker.training_display import TrainingDisplay


def train(
    agent: Agent[Any],
    suite: Suite,
    measures: Sequence[Measure | str | Judge] = (),
    **options: Any,
) -> TrainResult:
    """Train the agent's model on the suite's training cases, rewarded by the measures.

    Options are those of `Trainer`: model, weights, run, …, and the settings of
    `TrainSettings`: max_steps, learning_rate, num_generations, lora, …
    """
    return Trainer(agent, suite, measures, **options).train()


class Trainer:
    """A training to look at and to influence: `model`, `tokenizer` and TRL's own trainer,
    `engine`, are there before the first step."""

    def __init__(
        self,
        agent: Agent[Any],
        suite: Suite,
        measures: Sequence[Measure | str | Judge] = (),
        *,
        model: Any = None,
        tokenizer: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        weights: Mapping[str, float] | None = None,
        reward_functions: Sequence[Callable[..., Any]] = (),
        context: ContextFactory | None = None,
        rollout_function: RolloutFunction | None = None,
        family: Family | None = None,
        processes: int | None = None,
        runs: str | Path = "runs",
        run: str | None = None,
        accept_changes: bool = False,
        show_progress: bool = True,
        **settings: Any,
    ) -> None:
        refuse_wrong_kinds(agent, suite)
        refuse_unknown(settings)
        launched = Launched.here()
        if processes is not None:
            launched.require(processes)
        suite.require(Split.TRAINING)
        self.settings = _checked(settings, suite.size(Split.TRAINING), launched.world_size)
        if rollout_function is None:
            refuse_several_rows(agent)
            if self.settings.learns_results:
                refuse_without_tools(agent, context)
        measure_set = MeasureSet.of(
            measures,
            weights,
            seconds=self.settings.measure_seconds,
            reward_functions=reward_functions,
        )
        policy = PolicySpec(model=model if isinstance(model, str) else None)
        spec = TrainSpec(
            target=f"(python) {agent.name}",
            policy=policy,
            settings=self.settings,
            processes=launched.world_size,
            measures=dict(measure_set.weights),
            code_digest=agent_digest(agent),
        )
        if launched.world_size > 1 and run is None:
            raise InvalidInput("several processes share one run: give it a name, run='…'")
        self.agent = agent
        self._examples = examples_before(next(suite.cases(Split.TRAINING, 1)))
        self._launched = launched
        self.folder = _shared_folder(Path(runs), run, spec, agent.name, launched, accept_changes)
        loaded = load(
            policy,
            self.settings,
            agent_model=agent.model,
            model=None if isinstance(model, str) else model,
            tokenizer=tokenizer,
            declared=family,
        )
        work = TrainWork(
            agent=agent,
            suite=suite,
            measures=measure_set,
            settings=self.settings,
            loaded=loaded,
            context=context,
            rollout_function=rollout_function,
            optimizers=(optimizer, scheduler),
            code_digest=spec.code_digest,
        )
        self._stop = threading.Event()
        self._display = TrainingDisplay(show_progress and launched.rank == 0)
        self._training = Training(
            self.folder,
            work,
            launched,
            on_progress=self._display.show,
            should_stop=self._stop.is_set,
            accept_changes=accept_changes,
        )

    @property
    def engine(self) -> Any:
        """TRL's own trainer."""
        return self._training.built.trainer

    @property
    def model(self) -> Any:
        """The model that learns, adapters included."""
        return self.engine.model

    @property
    def tokenizer(self) -> Any:
        return self.engine.processing_class

    @property
    def policy(self) -> TokenPolicy:
        """Samples with the weights as they are now."""
        return self._training.built.policy

    def stop(self) -> None:
        """Stop after the current step, with a checkpoint; callable from any thread."""
        self._stop.set()

    def train(self) -> TrainResult:
        """Train to the end, or go on where the run of this name stopped."""
        is_first = self._launched.rank == 0
        holding: AbstractContextManager[None] = alone(self.folder) if is_first else nullcontext()
        with holding, _stops_on_signals(self._stop), self._display:
            self._tell("started", pid=os.getpid(), host=socket.gethostname())
            try:
                summary = self._training.run()
            except KeyboardInterrupt:
                self._tell("stopped")
                print(f"stopped; run={self.folder.id!r} goes on with it", file=sys.stderr)
                raise
            except Exception as error:
                self._tell("failed", kind=type(error).__name__, message=str(error))
                raise
            self._tell("stopped" if self._training.stopped else "completed")
        if self._training.stopped:
            done = f"after {summary['steps']} of {summary['planned_steps']} steps"
            warnings.warn(
                f"the training was stopped {done}; run={self.folder.id!r} goes on with it",
                RuntimeWarning,
                stacklevel=3,
            )
        return TrainResult(
            folder=self.folder,
            summary=summary,
            agent=self.agent,
            model=self.model,
            tokenizer=self.tokenizer,
            policy=self.policy,
            settings=self.settings,
            examples=self._examples,
        )

    def _tell(self, event: str, **data: Any) -> None:
        if self._launched.rank == 0:
            report_event(self.folder, event, **data)


def _checked(given: Mapping[str, Any], training_cases: int, world_size: int) -> TrainSettings:
    try:
        settings = TrainSettings(**given)
    except ValidationError as error:
        raise SettingError(explained(error, TrainSettings)) from error
    check(settings, training_cases, world_size)
    return settings


def _shared_folder(
    runs: Path,
    run: str | None,
    spec: TrainSpec,
    name: str,
    launched: Launched,
    accept_changes: bool,
) -> RunFolder:
    """Rank 0 makes the folder; the others wait for it by meeting rank 0 later."""
    if launched.rank != 0:
        return RunFolder(runs / str(run))
    folder = open_run(runs, run, spec, name, accept_changes=accept_changes)
    folder.stop_request.unlink(missing_ok=True)
    return folder


@contextmanager
def _stops_on_signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM, or Ctrl-C, ends the training at the next boundary, with a checkpoint; Ctrl-C
    again ends it at once. Handlers that somebody else has set are left alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, _: Any) -> None:
        if number == signal.SIGINT:
            if stop.is_set():
                raise KeyboardInterrupt
            print("stopping after this step, with a checkpoint; Ctrl-C again stops at once")
        stop.set()

    ours = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    taken = {number: usual for number, usual in ours.items() if signal.getsignal(number) is usual}
    for number in taken:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, usual in taken.items():
            signal.signal(number, usual)
