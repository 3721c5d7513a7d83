"""A run of kind train: learn, checkpoint, validate, report; on each rank of a gang.

Rank 0 writes metrics, events and checkpoints; every rank appends its own rollout shard.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from sparring.contracts.errors import MachineryFailure
from sparring.contracts.specs import FORMAT
from sparring.engine.building import Built, TrainWork, build
from sparring.engine.grpo import Hooks
from sparring.engine.ranks import Launched, told_by_rank_0
from sparring.learning.parity import Parity
from sparring.learning.reporting import OnProgress, Reporter
from sparring.run_folder import RunFolder
from sparring.run_folder.checkpoint_list import Checkpoint, best_of, list_checkpoints
from sparring.run_folder.files import read_json, read_lines, write_json
from sparring.run_folder.metrics import history_of
from sparring.trackers import Trackers
from sparring.trackers.trackers import TrackedRun
from sparring.worker.fitting import fit_passes
from sparring.worker.holding import report_event, supervised_attempt
from sparring.worker.pulse import Pulse
from sparring.worker.warm_start import warm_start


class Training:
    """One attempt at one training, on one rank."""

    def __init__(
        self,
        folder: RunFolder,
        work: TrainWork,
        launched: Launched | None = None,
        *,
        on_progress: OnProgress = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
        accept_changes: bool = False,
        pulse: Pulse | None = None,
    ) -> None:
        self._folder = folder
        self._work = work
        self._launched = launched or Launched.here()
        self._accept_changes = accept_changes
        self._asked_to_stop = should_stop
        self._on_progress = on_progress
        hooks = Hooks(
            on_step=self._note_step,
            on_validation=self._note_validation,
            on_parity=self._note_parity,
            on_warning=self._warn,
            on_saved=lambda step, path: self._tell("checkpoint", step=step, path=str(path)),
            on_doing=pulse.note if pulse else lambda _doing, _step: None,
            should_stop=self._should_stop,
        )
        self.built: Built = build(folder, work, self._launched, hooks)
        if pulse is not None:
            pulse.watch(self._tokens_drawn)
        self._reporter: Reporter | None = None
        self._trackers: Trackers | None = None
        self._is_done_already = False

    @property
    def stopped(self) -> bool:
        """Whether it ended because somebody asked it to."""
        return self.built.trainer.stopped

    def run(self) -> dict[str, Any]:
        """Go on from the newest checkpoint, or from the beginning, to the end."""
        started = time.monotonic()
        found = self._find_checkpoint()
        step = found.step if found else 0
        self._tell("inputs", suite=self._work.suite.digest, plan=str(self.built.plan))
        for note in self.built.plan.notes:
            self._tell("note", message=note)
        if found:
            self._tell("resumed", step=step, path=str(found.path))
            self.built.trainer.epochs_before = step // self.built.plan.steps_per_epoch
        self._open_reports(step)
        for note in self.built.notes():
            self._say(note)
        self.built.practice.resume_at(step, found.difficulty() if found else None)
        try:
            self.built.trainer.doing("measuring memory")
            size = fit_passes(self._folder, self._work, self.built, self._launched, self._say)
            warm_start(
                self._folder,
                self._work,
                self.built,
                self._launched,
                say=self._say,
                size=size,
                accept_changes=self._accept_changes,
            )
            if not self.stopped:
                self._train(found)
        finally:
            self.built.practice.close()
            if self._reporter is not None:
                self._reporter.end()
        return self._sum_up(time.monotonic() - started)

    # ------------------------------------------------------------------ inside

    def _train(self, found: Checkpoint | None) -> None:
        trainer, steps = self.built.trainer, self.built.plan.steps
        if found is not None and found.step >= steps:
            trainer._load_from_checkpoint(str(found.path))  # done already; only hand it back
            trainer.state.global_step = found.step
            self._is_done_already = self._folder.summary.is_file()
            return
        if trainer.wants_to_stop():  # asked while the model was loading: nothing to save yet
            trainer.stopped = True
            return
        trainer.train(resume_from_checkpoint=str(found.path) if found else None)
        if trainer.state.global_step < steps and not trainer.stopped:
            raise MachineryFailure(
                f"training ended at step {trainer.state.global_step} of {steps} without a word"
            )

    def _find_checkpoint(self) -> Checkpoint | None:
        """Rank 0 looks and verifies; the others are told."""
        checkpoints = self.built.checkpoints

        def look() -> int | None:
            checkpoints.clear_staging()
            found = checkpoints.newest_verified(accept_changes=self._accept_changes)
            checkpoints.set_aside_after(found.step if found else 0)
            return found.step if found else None

        step = told_by_rank_0(look, self._launched)
        return next((each for each in checkpoints.all() if each.step == step), None)

    def _should_stop(self) -> bool:
        asked_by_file = self._launched.rank == 0 and self._folder.stop_request.exists()
        return asked_by_file or self._asked_to_stop()

    # ------------------------------------------------------------------ telling

    def _open_reports(self, step: int) -> None:
        if self._launched.rank != 0:
            return
        settings = self._work.settings
        tracked = TrackedRun(
            id=self._folder.id,
            first_step=step,
            name=settings.run_name or self._folder.id,
            project=settings.project or "sparring",
            entity=settings.entity,
            folder=self._folder.path,
            settings=settings.model_dump(mode="json"),
        )
        self._trackers = Trackers(settings.report_to, tracked, self._warn)
        if links := self._trackers.links():
            self._tell("links", **links)
        self._reporter = Reporter(
            self._folder,
            self.built.plan,
            self._trackers,
            attempt=supervised_attempt() or self._starts(),
            tokens_drawn=self._tokens_drawn,
            on_progress=self._on_progress,
        )
        self._reporter.begin(step)

    def _tokens_drawn(self) -> int:
        return int(getattr(self.built.policy, "tokens_drawn", 0))

    def _starts(self) -> int:
        """How often the run was started, this time included."""
        return sum(event.get("event") == "started" for event in read_lines(self._folder.events))

    def _note_step(self, step: int, row: dict[str, Any]) -> None:
        if self._reporter is not None:
            self._reporter.step(step, row)

    def _note_validation(self, step: int, figures: dict[str, Any]) -> None:
        if self._reporter is not None:
            self._reporter.validation(step, figures)

    def _note_parity(self, parity: Parity) -> None:
        self._say(str(parity), "parity", **asdict(parity))

    def _say(self, message: str, event: str = "note", **data: Any) -> None:
        """For whoever looks, and for the record."""
        self._tell(event, message=message, **data)
        if self._reporter is not None:
            self._reporter.say(message)

    def _warn(self, message: str) -> None:
        self._tell("warning", message=message)
        if self._reporter is not None:
            self._reporter.say(f"warning: {message}")
        elif self._launched.rank == 0:
            print(f"warning: {message}", flush=True)

    def _tell(self, event: str, **data: Any) -> None:
        if self._launched.rank == 0:
            report_event(self._folder, event, **data)

    def _sum_up(self, seconds: float) -> dict[str, Any]:
        if self._is_done_already:
            return read_json(self._folder.summary)
        history = history_of(self._folder)
        validated = [row for row in history if row.get("validation/reward") is not None]
        there = list_checkpoints(self._folder.checkpoints)
        best = best_of(there)
        steps = [row for row in history if "loss" in row]
        summary = {
            "format": FORMAT,
            "kind": "train",
            "run": self._folder.id,
            "environment": self._folder.read_spec().get("environment", ""),
            "model": self._work.loaded.name,
            "warm_start": next(
                (each.manifest.get("warm_start") for each in there if each.step == 0), None
            ),
            "steps": self.built.trainer.state.global_step,
            "planned_steps": self.built.plan.steps,
            "plan": str(self.built.plan),
            "seconds": round(max(seconds, sum(row.get("seconds", 0.0) for row in steps)), 1),
            "unsandboxed": self._work.settings.unsandboxed,
            "last": steps[-1] if steps else {},
            "validation": [
                {
                    "step": row["step"],
                    **{
                        name.removeprefix("validation/"): value
                        for name, value in row.items()
                        if name.startswith("validation/")
                    },
                }
                for row in validated[:1] + validated[1:][-1:]
            ],
            "last_checkpoint": str(there[-1].path) if there else None,
            "best_checkpoint": str(best.path) if best else None,
            "best_score": best.score if best else None,
            "links": self._trackers.links() if self._trackers else {},
        }
        if self._launched.rank == 0:
            write_json(self._folder.summary, summary)
        return summary
