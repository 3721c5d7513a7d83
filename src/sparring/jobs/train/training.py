"""Executes a training run on one rank: trains, saves checkpoints, validates, reports.

Rank 0 writes metrics, events and checkpoints; every rank writes its own rollout log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from sparring.contracts.errors import Untrainable
from sparring.contracts.specs import FORMAT
from sparring.contracts.summaries import TrainSummary
from sparring.jobs.run_job import Attempt, Job
from sparring.jobs.train.warm_start import warm_start
from sparring.jobs.worker import report_event, supervised_attempt
from sparring.learning.engine import Launched, from_rank_0
from sparring.learning.reporting import MAX_UNSCORED, Hooks, OnProgress, Reporter
from sparring.learning.work import Built, TrainWork, build
from sparring.policies.pretrained import origin_of
from sparring.run_folder.checkpoint_list import Checkpoint, best_of, list_checkpoints
from sparring.run_folder.contents import read_history_rows, read_run_spec, read_summary
from sparring.run_folder.files import read_lines
from sparring.trackers import Trackers
from sparring.trackers.trackers import TrackedRun


class Training(Job[TrainSummary]):
    """One attempt at one training run, on one rank."""

    def __init__(
        self,
        attempt: Attempt,
        work: TrainWork,
        launched: Launched,
        *,
        on_progress: OnProgress,
        should_stop: Callable[[], bool],
    ) -> None:
        self._folder = folder = attempt.folder
        self._work = work
        self._launched = launched
        self._accept_changes = attempt.accept_changes
        heartbeat = attempt.heartbeat if attempt.owns_process else None
        self._is_stop_requested = should_stop
        self._on_progress = on_progress
        hooks = Hooks(
            on_step=self._note_step,
            on_validation=self._note_validation,
            on_parity=lambda parity: self._announce(str(parity), "parity", **asdict(parity)),
            on_warning=self._warn,
            on_saved=lambda step, path: self._report("checkpoint", step=step, path=str(path)),
            on_doing=heartbeat.note if heartbeat else lambda _doing, _step: None,
            should_stop=self._should_stop,
        )
        if problems := work.trial_problems():
            listed = "\n".join(f"  - {problem}" for problem in problems)
            raise Untrainable(f"{work.task.agent.name!r} cannot be trained:\n{listed}")
        self.built: Built = build(folder, work, self._launched, hooks)
        if heartbeat is not None:
            heartbeat.watch(self._tokens_drawn)
        self._reporter: Reporter | None = None
        self._trackers: Trackers | None = None
        self._is_done_already = False

    @property
    def is_stopped(self) -> bool:
        """Whether the training ended on a stop request."""
        return self.built.steps.stopped

    def run(self) -> TrainSummary:
        """Train to the last step, from the newest checkpoint if any, and return the summary."""
        started = time.monotonic()
        steps, newest = self.built.steps, self._find_checkpoint()
        self._begin(newest)
        try:
            steps.doing("measuring memory")
            self.built.engine.prepare(self.built.prompt_tokens, self._announce)
            warm_start(
                self._folder,
                self.built,
                self._launched,
                announce=self._announce,
                accept_changes=self._accept_changes,
            )
            if not self.is_stopped and not self._is_over(newest):
                steps.run(newest)
                self._check_end()
        finally:
            self.built.collector.close()
            self.built.engine.close()
            if self._reporter is not None:
                self._reporter.end()
        return self._sum_up(time.monotonic() - started)

    # ------------------------------------------------------------------ inside

    def _begin(self, newest: Checkpoint | None) -> None:
        """Report the inputs, open the reports, and continue the counts of the newest checkpoint."""
        step = newest.step if newest else 0
        self._report(
            "inputs",
            suite=self._work.suite.digest,
            plan=str(self.built.plan),
            model=self.built.policy.name,
            **origin_of(self._work.learner.tokenizer),
        )
        for note in self.built.plan.notes:
            self._report("note", message=note)
        if newest:
            self._report("resumed", step=step, path=str(newest.path))
        self._open_reports(step)
        self.built.collector.resume_at(step, newest.difficulty() if newest else None)

    def _is_over(self, newest: Checkpoint | None) -> bool:
        """Return whether nothing is left to train: all steps are done, or a stop is requested."""
        is_complete = newest is not None and newest.step >= self.built.plan.steps
        if not is_complete and not self.built.steps.is_stop_requested():
            return False
        self.built.engine.load(newest)
        self._is_done_already = is_complete and self._folder.summary.is_file()
        self.built.steps.stopped = not is_complete
        return True

    def _check_end(self) -> None:
        """Raise the error that ended the training before its last step."""
        if (guard_stop := self.built.steps.guard_stop) is not None:
            if self.built.engine.step < self.built.plan.steps:
                raise guard_stop
            self._warn(str(guard_stop))  # nothing is left to stop

    def _find_checkpoint(self) -> Checkpoint | None:
        """Return the newest valid checkpoint, which rank 0 finds and verifies for all ranks."""
        checkpoints = self.built.engine.checkpoints

        def find() -> Checkpoint | None:
            checkpoints.clear_staging()
            found = checkpoints.newest_verified(accept_changes=self._accept_changes)
            checkpoints.set_aside_after(found.step if found else 0)
            return found

        return from_rank_0(find, self.built.engine)

    def _should_stop(self) -> bool:
        requested_by_file = self._launched.rank == 0 and self._folder.stop_request.exists()
        return requested_by_file or self._is_stop_requested()

    # ------------------------------------------------------------------ reporting

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
            self._report("links", **links)
        self._reporter = Reporter(
            self._folder,
            self.built.plan,
            self._trackers,
            attempt=supervised_attempt()
            or sum(event.get("event") == "started" for event in read_lines(self._folder.events)),
            tokens_drawn=self._tokens_drawn,
            on_progress=self._on_progress,
        )
        self._reporter.begin(step)

    def _tokens_drawn(self) -> int:
        return int(getattr(self.built.policy, "tokens_drawn", 0))

    def _note_step(self, step: int, row: dict[str, Any]) -> None:
        if self._reporter is not None:
            self._reporter.step(step, row)

    def _note_validation(self, step: int, figures: dict[str, Any]) -> None:
        if self._reporter is not None:
            self._reporter.validation(step, figures)
        if (unscored := figures.get("unscored", 0.0)) > MAX_UNSCORED:
            self._warn(
                f"{unscored:.0%} of the validation rollouts after step {step} could not be scored, "
                "so no checkpoint is chosen by them"
            )

    def _announce(self, message: str, event: str = "note", **data: Any) -> None:
        """Report an event and show its message in the progress lines."""
        self._report(event, message=message, **data)
        if self._reporter is not None:
            self._reporter.say(message)

    def _warn(self, message: str) -> None:
        self._report("warning", message=message)
        if self._reporter is not None:
            self._reporter.say(f"warning: {message}")
        elif self._launched.rank == 0:
            print(f"warning: {message}", flush=True)

    def _report(self, event: str, **data: Any) -> None:
        if self._launched.rank == 0:
            report_event(self._folder, event, **data)

    def _sum_up(self, seconds: float) -> TrainSummary:
        if self._is_done_already:
            return read_summary(self._folder, TrainSummary)
        history = read_history_rows(self._folder)
        validated = [row for row in history if row.get("validation/reward") is not None]
        checkpoints = list_checkpoints(self._folder.checkpoints)
        best = best_of(checkpoints)
        steps = [row for row in history if "loss" in row]
        return TrainSummary.model_validate(
            {
                "format": FORMAT,
                "kind": "train",
                "run": self._folder.id,
                "environment": read_run_spec(self._folder).environment,
                "model": self._work.learner.name,
                "warm_start": next(
                    (each.manifest.get("warm_start") for each in checkpoints if each.step == 0),
                    None,
                ),
                "steps": self.built.engine.step,
                "planned_steps": self.built.plan.steps,
                "plan": str(self.built.plan),
                "seconds": round(max(seconds, _seconds_of(steps)), 1),
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
                "last_checkpoint": str(checkpoints[-1].path) if checkpoints else None,
                "best_checkpoint": str(best.path) if best else None,
                "best_score": best.score if best else None,
                "links": self._trackers.links() if self._trackers else {},
            }
        )


def _seconds_of(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds of all steps. A row has the mean of the steps since the row before it."""
    ends = [0, *(int(row["step"]) for row in rows)]
    counts = (after - before for before, after in pairwise(ends))
    seconds = (float(row.get("seconds", 0.0)) for row in rows)
    return sum(each * count for each, count in zip(seconds, counts, strict=True))
