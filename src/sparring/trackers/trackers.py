"""The four trackers behind one interface, and the guard around them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sparring.contracts.errors import SettingError

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """What a tracker is told of a run."""

    id: str
    name: str
    project: str
    entity: str | None
    folder: Path
    settings: Mapping[str, Any]
    first_step: int = 0


class Tracker(Protocol):
    link: str

    def log(self, step: int, figures: Figures) -> None: ...

    def finish(self) -> None: ...


class TensorBoard:
    """Event files in the run folder; `tensorboard --logdir` shows them."""

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / "tensorboard"
        self.link = f"tensorboard --logdir {folder}"
        self._writer = SummaryWriter(str(folder), purge_step=run.first_step + 1)

    def log(self, step: int, figures: Figures) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def finish(self) -> None:
        self._writer.close()


class Trackio:
    """A local database; `trackio show` opens it."""

    def __init__(self, run: TrackedRun) -> None:
        import trackio

        self._trackio = trackio
        self.link = f"trackio show --project {run.project}"
        trackio.init(
            project=run.project,
            name=run.name,
            config=dict(run.settings),
            resume="allow",
            embed=False,
        )

    def log(self, step: int, figures: Figures) -> None:
        self._trackio.log(dict(figures), step=step)

    def finish(self) -> None:
        self._trackio.finish()


class WeightsAndBiases:
    """W&B; offline where WANDB_MODE says so."""

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self._run = wandb.init(
            project=run.project,
            entity=run.entity,
            name=run.name,
            id=run.id,
            resume="allow",
            dir=str(run.folder),
            config=dict(run.settings),
        )
        self.link = self._run.url or f"wandb sync {Path(self._run.dir).parent}"

    def log(self, step: int, figures: Figures) -> None:
        self._run.log(dict(figures), step=step)

    def finish(self) -> None:
        self._run.finish()


class MLflow:
    """An experiment of MLflow, at MLFLOW_TRACKING_URI or in ./mlruns."""

    def __init__(self, run: TrackedRun) -> None:
        import mlflow

        self._mlflow = mlflow
        mlflow.set_experiment(run.project)
        started = mlflow.start_run(run_name=run.name)
        mlflow.log_params({key: str(value)[:500] for key, value in run.settings.items()})
        self.link = f"{mlflow.get_tracking_uri()}: {run.project}, run {started.info.run_id}"

    def log(self, step: int, figures: Figures) -> None:
        names = {name.replace(" ", "_"): value for name, value in figures.items()}
        self._mlflow.log_metrics(names, step=step)

    def finish(self) -> None:
        self._mlflow.end_run()


TRACKERS: Mapping[str, Callable[[TrackedRun], Tracker]] = {
    "tensorboard": TensorBoard,
    "trackio": Trackio,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}
Warn = Callable[[str], None]


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


class Trackers:
    """All trackers of a run. One that fails is dropped, with one warning."""

    def __init__(self, names: tuple[str, ...], run: TrackedRun, warn: Warn = _warn) -> None:
        if unknown := [name for name in names if name not in TRACKERS]:
            raise SettingError(
                f"there is no tracker {', '.join(unknown)}; there are {', '.join(TRACKERS)}, none"
            )
        self._warn = warn
        self._working: dict[str, Tracker] = {}
        for name in names:
            try:
                self._working[name] = TRACKERS[name](run)
            except ImportError:
                warn(f"{name} is not installed (pip install {name}); the run goes on without it")
            except Exception as error:  # whatever a tracker does wrong, the run goes on
                warn(f"{name} cannot be used ({error}); the run goes on without it")

    def links(self) -> dict[str, str]:
        """Where each tracker shows the run."""
        return {name: tracker.link for name, tracker in self._working.items()}

    def log(self, step: int, row: Mapping[str, Any]) -> None:
        figures = {
            name: float(value)
            for name, value in row.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for name, tracker in list(self._working.items()):
            self._guarded(name, lambda tracker=tracker: tracker.log(step, figures))  # type: ignore[misc]

    def finish(self) -> None:
        for name, tracker in list(self._working.items()):
            self._guarded(name, tracker.finish)

    def _guarded(self, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self._working.pop(name, None)
            self._warn(
                f"{name} failed ({type(error).__name__}: {error}); the run goes on without it"
            )
