"""Reports a training: counts per step, merged over ranks, as metrics, heartbeat and callbacks.

`StepCounts` are sums over rollouts. `StepReports` merges them with the engine's figures into one
row per report and applies the guards. It also detects rollouts without a reward: if no rollout of
the first report has one, the run stops; the first report with unscored rollouts causes a warning.
`Reporter` writes the rows and a heartbeat, on rank 0, and logs to trackers.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from sparring.contracts.errors import GuardStop, InfrastructureError
from sparring.contracts.rollouts import Ending, Rollout
from sparring.learning.batches import BatchPlan
from sparring.learning.engine import Engine, Parity, Ranks
from sparring.learning.guards import GuardMonitor
from sparring.learning.rows import LearningRollout
from sparring.run_folder import RunFolder
from sparring.run_folder.files import append_line, write_json
from sparring.trackers import Trackers

LearnedGroup: TypeAlias = tuple[LearningRollout, ...]
OnProgress = Callable[[Mapping[str, Any]], None]
MAX_UNSCORED = 0.1  # of the rollouts of a validation
_HEARTBEAT_SECONDS = 1.0
_RECENT_STEPS = 10
_BY_CAUSE = ("dead/", "replaced/", "failed_replacements/")


@dataclass(slots=True)
class StepCounts:
    """Sums, minima and maxima by name. Its size does not depend on the number of rollouts."""

    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    lows: dict[str, float] = field(default_factory=dict)
    highs: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, rollouts: Iterable[Rollout]) -> StepCounts:
        """Return the counts of these rollouts."""
        counts = cls()
        for rollout in rollouts:
            counts._add(rollout)
        return counts

    def plus(self, **sums: float) -> StepCounts:
        """Add these sums in place, and return self."""
        for name, value in sums.items():
            self.sums[name] += value
        return self

    @classmethod
    def merged(cls, parts: Iterable[StepCounts]) -> StepCounts:
        """Return the sums, minima and maxima over all parts."""
        total = cls()
        for part in parts:
            for name, value in part.sums.items():
                total.sums[name] += value
            for name, value in part.lows.items():
                total.lows[name] = min(value, total.lows.get(name, value))
            for name, value in part.highs.items():
                total.highs[name] = max(value, total.highs.get(name, value))
        return total

    def metrics(self) -> dict[str, float]:
        """Return rates and means under their names in metrics.jsonl; empty without rollouts."""
        if not self.sums["rollouts"]:
            return {}
        return {name: value for name, value in self._figures().items() if value is not None}

    def score(self) -> float | None:
        """Return the mean reward, by which checkpoints are compared; None if more than a tenth of
        the rollouts could not be scored."""
        rollouts, scored = self.sums["rollouts"], self.sums["scored"]
        is_known = scored and (rollouts - scored) / rollouts <= MAX_UNSCORED
        return self.sums["reward"] / scored if is_known else None

    def _figures(self) -> dict[str, float | None]:
        rollouts = self.sums["rollouts"]
        scored, sampled = self.sums["scored"], self.sums["sampled_tokens"]
        seconds = self.sums["play_seconds"]
        has_tools = self.sums["with_tools"] or self.sums["with_a_call"]
        return {
            **self._spread("reward", scored),
            **self._spread("advantage", self.sums["with_advantage"]),
            **self._pass_rates(),
            **self._env_losses(),
            **self._group_figures(),
            **self._pace_figures(),
            "rollouts": int(rollouts),
            "unscored": (rollouts - scored) / rollouts,
            "truncated": self.sums["truncated"] / rollouts,
            "parse_rate": self.sums["parsed"] / rollouts,
            "call_rate": self._share("with_a_call", rollouts) if has_tools else None,
            "tool_failures": self._share("failed_calls", self.sums["calls"]),
            "completion_tokens": sampled / rollouts,
            "sampled_tokens": int(sampled),
            "discarded_rows": self.sums["discarded_rows"] or None,
            "tokens_per_second": sampled / seconds if seconds else None,
        }

    def _spread(self, name: str, count: float) -> dict[str, float | None]:
        return {
            name: self._share(name, count),
            f"{name}_min": self.lows.get(name),
            f"{name}_max": self.highs.get(name),
        }

    def _pass_rates(self) -> dict[str, float | None]:
        names = [name.removeprefix("judged/") for name in self.sums if name.startswith("judged/")]
        return {
            f"pass_rate/{name}": self._share(f"correct/{name}", self.sums[f"judged/{name}"])
            for name in sorted(names)
        }

    def _env_losses(self) -> dict[str, float | None]:
        """Return the cross-entropy per token of tool results, overall and by tool."""
        prefix = "env_tokens/"
        tools = sorted(name.removeprefix(prefix) for name in self.sums if name.startswith(prefix))
        if not tools:
            return {}
        losses = {tool: self.sums[f"env_loss/{tool}"] for tool in tools}
        tokens = {tool: self.sums[f"env_tokens/{tool}"] for tool in tools}
        return {
            "env_loss": sum(losses.values()) / sum(tokens.values()),
            **{f"env_loss/{tool}": losses[tool] / tokens[tool] for tool in tools},
        }

    def _group_figures(self) -> dict[str, float | None]:
        """Return shares of live groups, and numbers of dead and replaced groups by cause."""
        if not self.sums["groups"]:
            return {}
        causes = {name: self.sums[name] for name in sorted(self.sums) if name.startswith(_BY_CAUSE)}
        replaced = sum(value for name, value in causes.items() if name.startswith("replaced/"))
        return {
            "groups": self.sums["groups"],
            "live_groups": self._share("live_groups", self.sums["groups"]),
            "teaching_groups": self._share("teaching_groups", self.sums["groups"]),
            **causes,
            "replaced_groups": replaced,
            "skipped": self.sums["skipped"],
        }

    def _pace_figures(self) -> dict[str, float | None]:
        """Return staleness, idle times and the parity gap; empty without sampling servers."""
        if not (paced := self.sums["paced"]):
            return {}
        return {
            "staleness": self.sums["staleness"] / paced,
            "trainer_idle_seconds": self.sums["trainer_idle"] / paced,
            "sampler_idle_seconds": self.sums["samplers_idle"] / paced,
            "parity_gap": self.highs.get("parity_gap"),
        }

    def _share(self, name: str, count: float) -> float | None:
        return self.sums[name] / count if count else None

    def _add(self, rollout: Rollout) -> None:
        calls = rollout.tool_calls
        for name, value in (
            ("rollouts", 1),
            ("scored", rollout.reward is not None),
            ("truncated", rollout.is_truncated),
            ("parsed", rollout.ending is not Ending.UNPARSABLE_CALL),
            ("with_a_call", bool(calls)),
            ("calls", len(calls)),
            ("failed_calls", sum(call.failure is not None for call in calls)),
            ("sampled_tokens", rollout.tokens.sampled),
            ("discarded_rows", sum(row.is_discarded for row in rollout.rows)),
        ):
            self.sums[name] += value
        self._add_value("reward", rollout.reward)
        if rollout.advantage is not None:
            self.sums["with_advantage"] += 1
        self._add_value("advantage", rollout.advantage)
        for judgement in rollout.judgements:
            if (correct := judgement.is_correct) is not None:
                self.sums[f"judged/{judgement.measure}"] += 1
                self.sums[f"correct/{judgement.measure}"] += correct

    def _add_value(self, name: str, value: float | None) -> None:
        if value is None:
            return
        self.sums[name] += value
        self.lows[name] = min(value, self.lows.get(name, value))
        self.highs[name] = max(value, self.highs.get(name, value))


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of the engine. Only rank 0 calls `on_step`, `on_validation` and `on_saved`.

    `on_learned` gets the learning rollouts of a group before the credit rules do, and returns those
    to learn from. `on_doing` gets the name of an activity that begins, and the step.
    """

    on_step: Callable[[int, dict[str, Any]], None] = lambda _step, _row: None
    on_validation: Callable[[int, dict[str, Any]], None] = lambda _step, _row: None
    on_parity: Callable[[Parity], None] = lambda _: None
    on_warning: Callable[[str], None] = lambda _: None
    on_saved: Callable[[int, Path], None] = lambda _step, _path: None
    on_doing: Callable[[str, int], None] = lambda _doing, _step: None
    on_learned: Callable[[LearnedGroup], LearnedGroup] = lambda learned: learned
    should_stop: Callable[[], bool] = lambda: False


class StepReports:
    """Reports the steps of one training run. All ranks must call `report` together."""

    def __init__(self, hooks: Hooks, guards: GuardMonitor, engine: Engine) -> None:
        self._hooks = hooks
        self._guards = guards
        self._engine = engine
        self._counts: list[StepCounts] = []
        self._first_cause = ""
        self._was_scored = False
        self._has_warned = False
        self._reported_step = 0
        self.guard_stop: GuardStop | None = None

    def starts_after(self, step: int) -> None:
        """Note the step that the training starts from: 0, or that of a checkpoint."""
        self._reported_step = step

    def add(self, counts: StepCounts, cause: str = "") -> None:
        """Add counts of this rank to the next report. `cause` is why a rollout has no reward."""
        self._counts.append(counts)
        self._first_cause = self._first_cause or cause

    def report(self, step: int) -> None:
        """Report the engine's figures and the counts of all ranks as one row, unless this step has
        already been reported. If a guard stops the run, set `guard_stop`: the weights are saved
        before the run ends.

        Raises InfrastructureError if no rollout has been scored yet, and GuardStop if the loss is
        not finite.
        """
        if step == self._reported_step:
            return
        engine = self._engine
        figures = engine.figures()
        self.add(StepCounts().plus(**figures.sums))
        counts = merged_over_ranks(StepCounts.merged(self._counts), engine)
        self._counts = []
        cause = next(filter(None, engine.gather([self._first_cause])), "")
        self._refuse_start_without_rewards(counts, cause)
        self._warn_of_unscored(counts, cause)
        row = {**figures.means, **counts.metrics()}
        if engine.rank == 0:
            self._hooks.on_step(step, row)
        steps, self._reported_step = step - self._reported_step, step
        try:
            self._guards.look(step, row, steps)
        except GuardStop as stop:
            if stop.guard == "not_finite":
                raise
            self.guard_stop = self.guard_stop or stop

    def _refuse_start_without_rewards(self, counts: StepCounts, cause: str) -> None:
        """Raise InfrastructureError if no rollout has been scored yet: every step would be
        empty."""
        self._was_scored = self._was_scored or counts.sums["scored"] > 0
        if not self._was_scored:
            raise InfrastructureError(
                f"none of the first {int(counts.sums['rollouts'])} rollouts could be scored: "
                f"{cause or 'no cause is known'}; fix the cause, and resume the run"
            )

    def _warn_of_unscored(self, counts: StepCounts, cause: str) -> None:
        """Warn once about unscored rollouts, which shrink the batch without any other sign."""
        unscored = counts.sums["rollouts"] - counts.sums["scored"]
        if unscored and cause and not self._has_warned:
            self._has_warned = True
            rollouts = counts.sums["rollouts"]
            self._hooks.on_warning(
                f"{unscored:.0f} of {rollouts:.0f} rollouts could not be scored: {cause}"
            )


def merged_over_ranks(counts: StepCounts, ranks: Ranks) -> StepCounts:
    """Return the merged counts of all ranks. All ranks must call this."""
    return StepCounts.merged(ranks.gather([counts]))


class Reporter:
    """Writes one metrics row per report of the engine, and a heartbeat every second."""

    def __init__(
        self,
        folder: RunFolder,
        plan: BatchPlan,
        trackers: Trackers,
        *,
        attempt: int = 1,
        tokens_drawn: Callable[[], int] = lambda: 0,
        on_progress: OnProgress = lambda _: None,
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._trackers = trackers
        self._attempt = attempt
        self._tokens_drawn = tokens_drawn
        self._on_progress = on_progress
        self._heartbeat: dict[str, Any] = {
            "step": 0,
            "steps": plan.steps,
            "metrics": {},
            "messages": [f"run {folder.id}: {plan}", *plan.notes],
        }
        self._validation_seconds = 0.0
        self._durations: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._last = time.monotonic()
        self._last_cpu = time.process_time()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write_heartbeats, daemon=True)

    def begin(self, step: int) -> None:
        """Start the heartbeat of a run that begins (`step` 0) or resumes after `step`."""
        self._heartbeat["step"] = step
        self._last, self._last_cpu = time.monotonic(), time.process_time()
        self._on_progress(self._heartbeat)
        self._thread.start()

    def say(self, line: str) -> None:
        """Append a message to the heartbeat, and report progress."""
        self._heartbeat["messages"].append(line)
        self._on_progress(self._heartbeat)

    def step(self, step: int, row: Mapping[str, Any]) -> None:
        """Write the metrics of finished optimizer steps, of which `step` is the last. Seconds are
        means per step."""
        now, cpu = time.monotonic(), time.process_time()
        steps = max(1, step - self._heartbeat["step"])
        cpu_seconds, self._last_cpu = (cpu - self._last_cpu) / steps, cpu
        self._durations.append((now - self._last) / steps)
        self._last = now
        metrics = {
            **row,
            "seconds": round(self._durations[-1], 3),
            "cpu_seconds": round(cpu_seconds, 3),  # of rank 0
        }
        self._write(step, metrics)
        self._heartbeat |= {"step": step, "metrics": metrics}
        self._heartbeat["seconds_left"] = self._seconds_left()
        self._on_progress(self._heartbeat)
        self._write_heartbeat()

    def validation(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write the metrics of a validation after `step`."""
        self._write(step, {f"validation/{name}": value for name, value in figures.items()})
        now = time.monotonic()
        self._validation_seconds = now - self._last
        self._last, self._last_cpu = now, time.process_time()  # steps exclude validation
        self._heartbeat |= {"validation": figures.get("reward"), "validated_at": step}
        self._heartbeat["seconds_left"] = self._seconds_left()
        self._on_progress(self._heartbeat)

    def _seconds_left(self) -> float | None:
        """Estimate the remaining seconds, from now, by the mean of recent steps and the last
        validation; None before the first step."""
        if not self._durations:
            return None
        step: int = self._heartbeat["step"]
        ahead = step if self._heartbeat.get("validated_at") == step else step - 1
        mean = sum(self._durations) / len(self._durations)
        interval, last = self._plan.save_steps, self._plan.steps
        validations = last // interval - ahead // interval + (last % interval > 0 and ahead < last)
        left = mean * (last - step) + self._validation_seconds * validations
        return round(max(0.0, left - (time.monotonic() - self._last)), 1)

    def end(self) -> None:
        """Write the last heartbeat and close the trackers."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * _HEARTBEAT_SECONDS)
        self._write_heartbeat()
        self._trackers.finish()

    def _write(self, step: int, row: Mapping[str, Any]) -> None:
        append_line(self._folder.metrics, {"attempt": self._attempt, "step": step, **row})
        self._trackers.log(step, row)

    def _write_heartbeats(self) -> None:
        while not self._done.wait(_HEARTBEAT_SECONDS):
            self._write_heartbeat()

    def _write_heartbeat(self) -> None:
        heartbeat = {
            "format": 1,
            "pid": os.getpid(),
            "time": time.time(),
            "tokens_drawn": self._tokens_drawn(),
            **self._heartbeat,
            "seconds_left": self._seconds_left(),
        }
        write_json(self._folder.heartbeat, heartbeat, durable=False)
