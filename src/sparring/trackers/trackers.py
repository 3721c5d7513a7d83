"""The built-in trackers, and `Trackers`, which turns their failures into warnings.

A package adds a tracker with an entry point in the group `sparring.trackers`: a class that
implements `Tracker` and is constructed with a `TrackedRun`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sparring.contracts.errors import SettingError
from sparring.installed import load_plugin, plugin_names

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The run that a tracker logs. `first_step` is the step that an attempt resumes after."""

    id: str
    name: str
    project: str
    entity: str | None
    folder: Path
    settings: Mapping[str, Any]
    first_step: int = 0


class Tracker(Protocol):
    """Logs the metrics of one run. `link` is the URL or command that shows the run."""

    link: str

    def log(self, step: int, figures: Figures) -> None:
        """Log the metrics of one step."""

    def finish(self) -> None:
        """Flush and close the tracker."""


class TensorBoard:
    """Writes event files to the run folder; `tensorboard --logdir` shows them."""

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / "tensorboard"
        self.link = f"tensorboard --logdir {folder}"
        self._writer = SummaryWriter(str(folder), purge_step=run.first_step + 1)

    def log(self, step: int, figures: Figures) -> None:
        """Log the metrics of one step."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def finish(self) -> None:
        """Close the event file."""
        self._writer.close()


class Trackio:
    """Writes to trackio's local database; `trackio show` displays it."""

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
        """Log the metrics of one step."""
        self._trackio.log(dict(figures), step=step)

    def finish(self) -> None:
        """End the trackio run."""
        self._trackio.finish()


class WeightsAndBiases:
    """Logs to W&B, or to the run folder with WANDB_MODE=offline."""

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
        """Log the metrics of one step."""
        self._run.log(dict(figures), step=step)

    def finish(self) -> None:
        """End the W&B run."""
        self._run.finish()


_REFUSED_BY_MLFLOW = re.compile(r"[^\w\-./]")


class MLflow:
    """Logs to an MLflow experiment at MLFLOW_TRACKING_URI, or at MLflow's default location.

    The run folder remembers the id of the MLflow run, so that a resumed run continues it.
    """

    def __init__(self, run: TrackedRun) -> None:
        import mlflow

        self._mlflow = mlflow
        experiment = mlflow.set_experiment(run.project)
        remembered = run.folder / "mlflow_run_id"
        run_id = self._continued(remembered, experiment) or self._started(run)
        remembered.write_text(run_id)
        self.link = f"{mlflow.get_tracking_uri()}: {run.project}, run {run_id}"

    def _continued(self, remembered: Path, experiment: Any) -> str | None:
        """Continue the remembered MLflow run, and return its id; None if this experiment does not
        have it any more."""
        run_id = remembered.read_text().strip() if remembered.is_file() else ""
        if not run_id:
            return None
        try:
            found = self._mlflow.get_run(run_id).info
        except self._mlflow.exceptions.MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        is_of_experiment = found.experiment_id == experiment.experiment_id
        if found.lifecycle_stage != "active" or not is_of_experiment:
            return None
        self._mlflow.start_run(run_id=run_id)
        return run_id

    def _started(self, run: TrackedRun) -> str:
        """Start an MLflow run with the settings as its parameters, and return its id."""
        active = self._mlflow.start_run(run_name=run.name)
        parameters = {key: str(value)[:500] for key, value in run.settings.items()}
        self._mlflow.log_params(parameters)
        return str(active.info.run_id)

    def log(self, step: int, figures: Figures) -> None:
        """Log the metrics of one step. Characters that MLflow refuses in names become
        underscores."""
        metrics = {_REFUSED_BY_MLFLOW.sub("_", name): value for name, value in figures.items()}
        self._mlflow.log_metrics(metrics, step=step)

    def finish(self) -> None:
        """End the MLflow run."""
        self._mlflow.end_run()


TRACKERS: Mapping[str, Callable[[TrackedRun], Tracker]] = {
    "tensorboard": TensorBoard,
    "trackio": Trackio,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}
GROUP = "sparring.trackers"
Warn = Callable[[str], None]


def known_trackers() -> list[str]:
    """Return the names of the built-in trackers, then those of plugins."""
    return [*TRACKERS, *plugin_names(GROUP)]


def _open(name: str, run: TrackedRun) -> Tracker:
    factory = TRACKERS.get(name) or load_plugin(GROUP, name)
    tracker: Tracker = factory(run)
    return tracker


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


class Trackers:
    """All trackers of a run. A tracker that fails is dropped with a warning.

    An unknown name raises SettingError.
    """

    def __init__(self, names: tuple[str, ...], run: TrackedRun, warn: Warn = _warn) -> None:
        if unknown := [name for name in names if name not in known_trackers()]:
            known = ", ".join(known_trackers())
            raise SettingError(f"there is no tracker {', '.join(unknown)}; use {known} or none")
        self._warn = warn
        self._working: dict[str, Tracker] = {}
        for name in names:
            try:
                self._working[name] = _open(name, run)
            except ImportError:
                warn(f"{name} is not installed (pip install {name}); the run continues without it")
            except Exception as error:  # no failure of a tracker may end the run
                warn(f"{name} cannot be used ({error}); the run continues without it")

    def links(self) -> dict[str, str]:
        """Return the `link` of each working tracker, by its name."""
        return {name: tracker.link for name, tracker in self._working.items()}

    def log(self, step: int, row: Mapping[str, Any]) -> None:
        """Send the numeric metrics of a row to every working tracker."""
        figures = {
            name: float(value)
            for name, value in row.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for name, tracker in list(self._working.items()):
            self._guard(name, lambda tracker=tracker: tracker.log(step, figures))  # type: ignore[misc]

    def finish(self) -> None:
        """Flush and close every working tracker."""
        for name, tracker in list(self._working.items()):
            self._guard(name, tracker.finish)

    def _guard(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._working.pop(name, None)
            self._warn(
                f"{name} failed ({type(error).__name__}: {error}); the run continues without it"
            )
