"""Watching one attempt: is it working, is it done, and if something is wrong, what."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sparring.runs.causes import Cause, Gone, last_lines, memory_kills, of_an_end, of_failure
from sparring.runs.desk import Desk
from sparring.runs.gang import Gang
from sparring.runs.hosts import Hosts
from sparring.runs.stacks import where_it_is
from sparring.runs.vigil import Vigil

_PROBE_SECONDS = 5.0
_SILENT_SERVICE_SECONDS = 30.0
_UNKNOWN_END_SECONDS = 30.0
_SLACK_SECONDS = 60.0


class Watch:
    """Over the processes of this host by their ends and pulses, and over other hosts."""

    def __init__(self, desk: Desk, gang: Gang, spec: Mapping[str, Any]) -> None:
        self._desk = desk
        self._gang = gang
        limits = spec.get("supervision") or {}
        self._start_seconds = float(limits.get("start_seconds", 3600.0))
        placement = gang.placement
        self._vigil = Vigil(
            desk.folder,
            placement.attempt,
            range(placement.world_size),
            hung_seconds=_hung_seconds(spec),
            start_seconds=self._start_seconds,
        )
        several = placement.nodes > 1
        self.hosts = Hosts(desk.folder, placement.attempt, placement.nodes) if several else None
        self._first_step: int | None = None
        self._first_checkpoint = desk.history.checkpoint
        self._odd_since: float | None = None
        self._probed_at = self._answered_at = time.monotonic()
        self._kills_before = memory_kills()

    @property
    def is_working(self) -> bool:
        """Whether every rank has loaded what it needs, and begun."""
        return self._vigil.is_working

    @property
    def has_worked(self) -> bool:
        """Whether anything came of this attempt."""
        now = self._vigil.step
        has_stepped = None not in (now, self._first_step) and now != self._first_step
        return has_stepped or self._desk.history.checkpoint > self._first_checkpoint

    @property
    def is_done(self) -> bool:
        """Whether all ranks, on all hosts, have ended."""
        return self._gang.is_done and (self.hosts is None or self.hosts.ranks_are_done)

    def wrong(self) -> Cause | None:
        """What has gone wrong with an attempt that is not done."""
        if (gone := self._gang.lost()) is not None:
            return self._of_the_lost(gone)
        if self.hosts is not None and (cause := self.hosts.lost(self._start_seconds)) is not None:
            return self._of_another_host(cause)
        if (odd := self._odd_end()) is not None:
            return self._of_the_lost(odd)
        self._vigil.look()
        if self.is_working and self._first_step is None:
            self._first_step = self._vigil.step
        if (cause := self._vigil.hung()) is not None:
            self._gang.dump_stacks()
            told = f"{cause.message}; {where_it_is(self._gang.ranks[0].log)}"
            return Cause(cause.kind, told, cause.is_retried)
        return self._silent_service()

    def judged(self) -> Cause | None:
        """What became of it when all ranks have ended, none of them badly as far as their codes
        tell: nothing wrong, if they said how it ended."""
        history = self._desk.look()
        if history.fact == "failed":
            return of_failure(history, self._vigil.place, self._desk.folder.path)
        if history.fact or not self._gang.ranks:  # stopped before any was started
            return None
        first = self._gang.ranks[0]
        return self._of_an_end(first.gone or Gone(first.name, None, first.log))

    # ------------------------------------------------------------------ inside

    def _of_the_lost(self, gone: Gone) -> Cause:
        """The words of whoever failed, which come before its end, or how it ended."""
        history = self._desk.look()
        self._vigil.look()
        if gone.name.startswith("service-"):
            lines = last_lines(gone.log)
            told = f"{self._of_an_end(gone).message}; the last lines of its log:\n{lines}"
            return Cause("killed", told)
        if history.fact == "failed":
            return of_failure(history, self._vigil.place, self._desk.folder.path)
        return self._of_an_end(gone)

    def _of_another_host(self, cause: Cause) -> Cause:
        """A rank that failed there has told why."""
        history = self._desk.look()
        if history.fact == "failed" and cause.kind != "host_lost":
            return of_failure(history, self._vigil.place, self._desk.folder.path)
        return cause

    def _of_an_end(self, gone: Gone) -> Cause:
        was_full = memory_kills() > self._kills_before
        folder = self._desk.folder.path
        return of_an_end(gone, self._vigil.place, folder, was_out_of_memory=was_full)

    def _odd_end(self) -> Gone | None:
        """A rank that has ended without a word, while the others do not follow."""
        ended = [each.gone for each in self._gang.ranks if each.gone]
        if not ended or self._gang.is_done or self._desk.history.fact:
            self._odd_since = None
            return None
        self._odd_since = self._odd_since or time.monotonic()
        return ended[0] if time.monotonic() - self._odd_since > _UNKNOWN_END_SECONDS else None

    def _silent_service(self) -> Cause | None:
        now = time.monotonic()
        if now - self._probed_at < _PROBE_SECONDS:
            return None
        self._probed_at = now
        silent = self._gang.silent_service()
        if not silent:
            self._answered_at = now
        elif now - self._answered_at > _SILENT_SERVICE_SECONDS:
            return Cause("hung", f"{silent} has not answered for {now - self._answered_at:.0f} s")
        return None


def _hung_seconds(spec: Mapping[str, Any]) -> float:
    """What was set; a default never less than a rollout may take."""
    seconds = float((spec.get("supervision") or {}).get("hung_seconds", 900.0))
    if "hung_seconds" in (spec.get("sources") or {}):
        return seconds
    settings = spec.get("settings") or spec.get("play") or {}
    return max(seconds, float(settings.get("rollout_seconds", 0.0)) + _SLACK_SECONDS)
