"""Formats durations, counts and the progress in heartbeats."""

from __future__ import annotations

from typing import Any

from sparring.contracts.json import Beat

_LINE = 80
_SHORT = 60
_MINUTES = 90  # from here on, durations are in minutes
_MIN_STEPS = 2  # until the pace is known
_SLOWER = 4 / 3


def step_line(beat: Beat) -> str:
    """Return step, loss, reward, live groups and time left on one line, and as many pass rates as
    fit on it. It is empty for an attempt that has just resumed."""
    row = beat.get("metrics") or {}
    parts = [f"step {beat['step']}/{beat['steps']}"]
    if row.get("loss") is not None:
        parts.append(f"loss {row['loss']:+.3f}")
    if row.get("reward") is not None:
        parts.append(f"reward {row['reward']:.2f}")
    if row.get("live_groups") is not None:
        parts.append(f"live groups {row['live_groups']:.0%}")
    if left := left_text(beat.get("seconds_left")):
        parts.append(left)
    line = " · ".join(parts)
    for name, rate in row.items():
        if name.startswith("pass_rate/") and rate is not None:
            longer = f"{line} · {name.removeprefix('pass_rate/')} {rate:.0%}"
            line = longer if len(longer) <= _LINE else line
    return line if row else ""


def seconds_left(beat: Beat, now: float) -> float | None:
    """Return the seconds left by a heartbeat, which may have been written some time ago; None if
    they are unknown or over."""
    seconds = beat.get("seconds_left")
    if seconds is None:
        return None
    left = float(seconds) - max(0.0, now - float(beat.get("time", now)))
    return round(left, 1) if left > 0 else None


def left_text(seconds: float | None) -> str:
    """Return the time left as text, which counts no seconds; empty if it is unknown or over."""
    if seconds is None or seconds <= 0:
        return ""
    if seconds < _SHORT:
        return "less than a minute left"
    return f"{duration_text(max(seconds, _MINUTES))} left"


def _validation_text(beat: Beat) -> str:
    reward = beat.get("validation")
    return "unknown: no rollout could be scored" if reward is None else f"{reward:.3f}"


def duration_text(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < _MINUTES:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: `1 finding`, `2 findings`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class NewLines:
    """Called with each heartbeat of a run; returns the lines that are new in it."""

    def __init__(self) -> None:
        self._shown = 0
        self._process: Any = None
        self._step = 0
        self._validated_at = -1

    def __call__(self, beat: Beat) -> list[str]:
        if beat.get("pid") != self._process:  # a new attempt repeats the messages
            self._process, self._shown = beat.get("pid"), 0
        messages = list(beat["messages"])
        lines, self._shown = messages[self._shown :], len(messages)
        if beat["step"] != self._step:
            self._step = beat["step"]
            lines += filter(None, [step_line(beat)])
        at = beat.get("validated_at", self._validated_at)
        if at != self._validated_at:
            self._validated_at = at
            lines.append(
                f"validation at step {self._validated_at}: reward {_validation_text(beat)}"
            )
        return lines


class SlowerThanExpected:
    """Called with each heartbeat of a training; returns one line, once, if the training will take
    a third longer than a check has expected. `hours` is None without a check."""

    def __init__(self, hours: float | None) -> None:
        self._expected = None if hours is None else 3600 * hours
        self._began: float | None = None

    def __call__(self, beat: Beat) -> list[str]:
        now, left = beat.get("time"), beat.get("seconds_left")
        if self._expected is None or now is None:
            return []
        self._began = now if self._began is None else self._began
        if left is None or beat.get("step", 0) < _MIN_STEPS:
            return []
        seconds = now - self._began + left
        if seconds < _SLOWER * self._expected:
            return []
        expected = duration_text(self._expected)
        self._expected = None
        return [f"slower than the check expected: {duration_text(seconds)} instead of {expected}"]
