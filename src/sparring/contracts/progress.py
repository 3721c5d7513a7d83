"""Formats durations, counts and the progress in a training run's heartbeat."""

from __future__ import annotations

from typing import Any

from sparring.contracts.json import Beat


def headline(beat: Beat) -> str:
    """Return loss, reward, pass rates, live groups, speed and time left on one line."""
    row = beat.get("metrics") or {}
    parts = []
    if row.get("loss") is not None:
        parts.append(f"loss {row['loss']:+.3f}")
    if row.get("reward") is not None:
        parts.append(f"reward {row['reward']:.2f}")
    for name, rate in row.items():
        if name.startswith("pass_rate/") and rate is not None:
            parts.append(f"{name.removeprefix('pass_rate/')} {rate:.0%}")
    if row.get("live_groups") is not None:
        parts.append(f"live groups {row['live_groups']:.0%}")
    if row.get("tokens_per_second"):
        parts.append(f"{row['tokens_per_second']:.0f} tok/s")
    if beat.get("seconds_left") is not None:
        parts.append(f"{duration_text(beat['seconds_left'])} left")
    return " · ".join(parts)


def _validation_text(beat: Beat) -> str:
    reward = beat.get("validation")
    return "unknown: no rollout could be scored" if reward is None else f"{reward:.3f}"


def duration_text(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 90:
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
        messages = list(beat["said"])
        lines, self._shown = messages[self._shown :], len(messages)
        if beat["step"] != self._step:
            self._step = beat["step"]
            if text := headline(beat):  # empty for an attempt that has just resumed
                lines.append(f"step {beat['step']}/{beat['steps']} · {text}")
        at = beat.get("validated_at", self._validated_at)
        if at != self._validated_at:
            self._validated_at = at
            lines.append(
                f"validation at step {self._validated_at}: reward {_validation_text(beat)}"
            )
        return lines
