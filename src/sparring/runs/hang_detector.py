"""Detects processes that are alive but stalled, by the counters in their heartbeats, and locates
the hang by the stacks that they dump into their logs.

Durations are measured with this process's monotonic clock. Timestamps that other processes write
are ignored.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sparring
from sparring.contracts.json import Beat
from sparring.run_folder.files import read_tail
from sparring.runs.causes import Cause

_FRAME = re.compile(r'  File "(.+)", line (\d+) in (.+)')
_OURS = str(Path(sparring.__file__).resolve().parent)
_TAIL = 1 << 18
_SHOWN = 4


def describe_hang(log: Path) -> str:
    """Return text with the innermost frame of user code (a tool, a world, a measure) of up to four
    threads or, without user code, Sparring's innermost frame in the main thread."""
    text = read_tail(log, _TAIL)
    threads = [_frames(part) for part in re.split(r"(?:Current thread|Thread) 0x", text)[1:]]
    innermost = [next(filter(_is_user_code, frames), "") for frames in threads]
    shown = [frame for frame in dict.fromkeys(innermost) if frame]
    if not shown and threads:
        shown = [frame for frame in threads[-1] if _OURS in frame][:1]
    if not shown:
        return "it wrote no stacks; it may be suspended by a signal"
    return f"it is in {'; '.join(shown[:_SHOWN])} (all stacks are in {log})"


def _frames(part: str) -> list[str]:
    return [f"{file}:{line} ({name})" for file, line, name in _FRAME.findall(part)]


def _is_user_code(frame: str) -> bool:
    return not any(part in frame for part in (_OURS, "/site-packages/", "/lib/python", "<frozen"))


_LOADING = ("starting", "loading", "measuring memory")


@dataclass(slots=True)
class _RankState:
    beats: int = -1
    progress: int = -1
    doing: str = ""
    step: int | None = None
    beat_at: float = field(default_factory=time.monotonic)
    progress_at: float = field(default_factory=time.monotonic)


class HangDetector:
    """Detects a hang of one attempt from the heartbeats of its ranks."""

    def __init__(
        self,
        attempt: int,
        ranks: Sequence[int],
        *,
        hang_timeout: float,
        start_timeout: float,
    ) -> None:
        self._attempt = attempt
        self._ranks = {rank: _RankState() for rank in ranks}
        self._hung_seconds = hang_timeout
        self._start_seconds = start_timeout

    def note_heartbeats(self, heartbeats: Mapping[int, Beat]) -> None:
        """Record the last heartbeat of each rank. Heartbeats of other attempts are ignored."""
        now = time.monotonic()
        for rank, state in self._ranks.items():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                beat = heartbeats[rank]
                if beat["attempt"] != self._attempt:
                    continue
                if beat["beats"] != state.beats:
                    state.beats, state.beat_at = int(beat["beats"]), now
                if beat["progress"] != state.progress:
                    state.progress, state.progress_at = int(beat["progress"]), now
                state.doing, state.step = str(beat["doing"]), beat.get("step")

    @property
    def is_working(self) -> bool:
        """Whether every rank has finished loading and begun to work."""
        doings = [state.doing for state in self._ranks.values()]
        return all(doing and not doing.startswith(_LOADING) for doing in doings)

    @property
    def step(self) -> int | None:
        """The step that rank 0 reports; None before its first step."""
        return self._ranks[min(self._ranks)].step

    @property
    def place(self) -> str:
        """The step and activity of rank 0: `at step 4, while playing`, or `while loading`."""
        state = self._ranks[min(self._ranks)]
        doing = f"while {state.doing}" if state.doing else "before it began"
        return doing if state.step is None else f"at step {state.step}, {doing}"

    def cause_of_hang(self) -> Cause | None:
        """Return a cause if no rank has made progress within the limit. The cause names the first
        rank without a recent heartbeat, if any, because the other ranks wait for it."""
        limit = self._hung_seconds if self.is_working else self._start_seconds
        now = time.monotonic()
        if any(now - state.progress_at < limit for state in self._ranks.values()):
            # The ranks wait for each other, so a rank that hangs soon stalls all others.
            return None
        silent = [rank for rank, state in self._ranks.items() if now - state.beat_at > limit / 2]
        who = f"rank {silent[0]}" if silent and len(self._ranks) > 1 else "the run"
        how = "sends no heartbeat" if silent else "is alive but stalled"
        return Cause("hung", f"hung {self.place}: {who} {how}; no progress for {limit:g} s")
