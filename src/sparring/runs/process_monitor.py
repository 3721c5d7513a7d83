"""Monitors the processes of one attempt: whether they work, are done, or have failed, and why."""

from __future__ import annotations

import time

from sparring.contracts.specs import RunSpec
from sparring.runs.causes import (
    Cause,
    ExitedProcess,
    cause_of_exit,
    cause_of_failure,
    last_lines,
    memory_kills,
)
from sparring.runs.epoch_writer import EpochWriter
from sparring.runs.hang_detector import HangDetector, describe_hang
from sparring.runs.helpers import PREFIXES
from sparring.runs.hosts import Hosts
from sparring.runs.worker_group import WorkerGroup

_PROBE_SECONDS = 5.0
_SILENT_SERVICE_SECONDS = 30.0
_UNKNOWN_END_SECONDS = 30.0
_SLACK_SECONDS = 60.0


class ProcessMonitor:
    """Monitors processes by exit codes and heartbeats, and further hosts by their reports."""

    def __init__(self, writer: EpochWriter, workers: WorkerGroup, spec: RunSpec) -> None:
        self._writer = writer
        self._workers = workers
        self._start_seconds = spec.supervision.start_timeout
        placement = workers.placement
        self._hang_detector = HangDetector(
            placement.attempt,
            range(placement.world_size),
            hang_timeout=_hung_seconds(spec),
            start_timeout=self._start_seconds,
        )
        self.hosts: Hosts | None = None
        if placement.nodes > 1:
            self.hosts = Hosts(writer.folder, placement.attempt, placement.nodes)
        self._first_step: int | None = None
        self._unexplained_since: float | None = None
        self._probed_at = self._answered_at = time.monotonic()
        self._kills_before = memory_kills()

    @property
    def is_working(self) -> bool:
        """Whether every rank has finished loading and begun to work."""
        return self._hang_detector.is_working

    @property
    def has_worked(self) -> bool:
        """Whether this attempt has finished a step or saved a checkpoint."""
        step = self._hang_detector.step
        has_stepped = None not in (step, self._first_step) and step != self._first_step
        return has_stepped or self._writer.history.has_saved

    @property
    def is_done(self) -> bool:
        """Whether all ranks, on all hosts, have ended."""
        return self._workers.is_done and (self.hosts is None or self.hosts.ranks_are_done)

    def find_problem(self) -> Cause | None:
        """Return the cause of a failure of the running attempt; None if there is none."""
        if (lost := self._workers.lost()) is not None:
            return self._cause_of_loss(lost)
        if self.hosts is not None and (cause := self.hosts.lost(self._start_seconds)) is not None:
            return self._cause_on_other_host(cause)
        if (exited := self._unexplained_exit()) is not None:
            return self._cause_of_loss(exited)
        self._look()
        if self.is_working and self._first_step is None:
            self._first_step = self._hang_detector.step
        if (cause := self._hang_detector.cause_of_hang()) is not None:
            self._workers.dump_stacks()
            message = f"{cause.message}; {describe_hang(self._workers.ranks[0].log)}"
            return Cause(cause.kind, message, cause.is_retried)
        return self._silent_service()

    def final_cause(self) -> Cause | None:
        """Return the cause of a failure after all ranks have ended without a bad exit code; None
        if they reported that the run completed or stopped, or if no rank was started."""
        history = self._writer.look()
        if failure := history.attempt.failure:
            return cause_of_failure(failure, self._hang_detector.place, self._writer.folder.path)
        if history.attempt.result or not self._workers.ranks:  # a stop came before any rank started
            return None
        first = self._workers.ranks[0]
        return self._cause_of_exit(first.exited or ExitedProcess(first.name, None, first.log))

    # ------------------------------------------------------------------ inside

    def _look(self) -> None:
        """Pass the heartbeats of all ranks, on all hosts, to the hang detector."""
        heartbeats = self._workers.heartbeats()
        if self.hosts is not None:
            heartbeats |= self.hosts.heartbeats()
        self._hang_detector.note_heartbeats(heartbeats)

    def _cause_of_loss(self, exited: ExitedProcess) -> Cause:
        """Return the cause of an unexpected end. A failure that a rank has reported takes
        precedence over a rank's exit code. For a service or helper, the cause quotes its log."""
        history = self._writer.look()
        self._look()
        if exited.name.startswith(("service-", *PREFIXES)):
            lines = last_lines(exited.log)
            message = f"{self._cause_of_exit(exited).message}; the last lines of its log:\n{lines}"
            return Cause("service" if exited.name.startswith(PREFIXES) else "killed", message)
        if failure := history.attempt.failure:
            return cause_of_failure(failure, self._hang_detector.place, self._writer.folder.path)
        return self._cause_of_exit(exited)

    def _cause_on_other_host(self, cause: Cause) -> Cause:
        """Return the failure that a rank has reported, if any, unless the host itself was lost."""
        failure = self._writer.look().attempt.failure
        if failure and cause.kind != "host_lost":
            return cause_of_failure(failure, self._hang_detector.place, self._writer.folder.path)
        return cause

    def _cause_of_exit(self, exited: ExitedProcess) -> Cause:
        has_kills = memory_kills() > self._kills_before
        folder, place = self._writer.folder.path, self._hang_detector.place
        return cause_of_exit(exited, place, folder, was_out_of_memory=has_kills)

    def _unexplained_exit(self) -> ExitedProcess | None:
        """Return a rank that ended over 30 s ago without a reported result, while others run."""
        ended = [rank.exited for rank in self._workers.ranks if rank.exited]
        if not ended or self._workers.is_done or self._writer.history.attempt.result:
            self._unexplained_since = None
            return None
        self._unexplained_since = self._unexplained_since or time.monotonic()
        return (
            ended[0] if time.monotonic() - self._unexplained_since > _UNKNOWN_END_SECONDS else None
        )

    def _silent_service(self) -> Cause | None:
        now = time.monotonic()
        if now - self._probed_at < _PROBE_SECONDS:
            return None
        self._probed_at = now
        silent = self._workers.silent_service()
        if not silent:
            self._answered_at = now
        elif now - self._answered_at > _SILENT_SERVICE_SECONDS:
            return Cause("hung", f"{silent} has not answered for {now - self._answered_at:.0f} s")
        return None


def _hung_seconds(spec: RunSpec) -> float:
    """Return the spec's `hang_timeout`. If no source sets it, it is at least a minute above
    `rollout_timeout`."""
    seconds = spec.supervision.hang_timeout
    if "hang_timeout" in spec.sources:
        return seconds
    return max(seconds, spec.play_settings.rollout_timeout + _SLACK_SECONDS)
