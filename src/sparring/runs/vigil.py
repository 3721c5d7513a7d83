"""Telling a process that works from one that only lives, by the counters of its pulse.

Times are taken here, by one clock that nobody steps: what others write of the time is not
believed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sparring.run_folder import RunFolder
from sparring.run_folder.files import read_json
from sparring.runs.causes import Cause

_LOADING = ("", "starting", "loading", "measuring memory")


@dataclass(slots=True)
class _Seen:
    beats: int = -1
    progress: int = -1
    doing: str = ""
    step: int | None = None
    beat_at: float = field(default_factory=time.monotonic)
    progress_at: float = field(default_factory=time.monotonic)


class Vigil:
    """Watches the ranks of one attempt."""

    def __init__(
        self,
        folder: RunFolder,
        attempt: int,
        ranks: Sequence[int],
        *,
        hung_seconds: float,
        start_seconds: float,
    ) -> None:
        self._folder = folder
        self._attempt = attempt
        self._seen = {rank: _Seen() for rank in ranks}
        self._hung_seconds = hung_seconds
        self._start_seconds = start_seconds

    def look(self) -> None:
        now = time.monotonic()
        for rank, seen in self._seen.items():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                told = read_json(self._folder.pulse(rank))
                if told["attempt"] != self._attempt:
                    continue
                if told["beats"] != seen.beats:
                    seen.beats, seen.beat_at = int(told["beats"]), now
                if told["progress"] != seen.progress:
                    seen.progress, seen.progress_at = int(told["progress"]), now
                seen.doing, seen.step = str(told["doing"]), told.get("step")

    @property
    def is_working(self) -> bool:
        """Whether every rank has loaded what it needs, and begun."""
        return all(seen.doing not in _LOADING for seen in self._seen.values())

    @property
    def step(self) -> int | None:
        """Of the first rank, as far as it has come."""
        return self._seen[min(self._seen)].step

    @property
    def place(self) -> str:
        """`at step 4, while playing`, or `while loading`."""
        seen = self._seen[min(self._seen)]
        doing = f"while {seen.doing}" if seen.doing else "before it began"
        return doing if seen.step is None else f"at step {seen.step}, {doing}"

    def hung(self) -> Cause | None:
        """What is wrong, if nothing has moved for too long. A rank that does not even beat is the
        culprit; the others wait for it."""
        limit = self._hung_seconds if self.is_working else self._start_seconds
        now = time.monotonic()
        if any(now - seen.progress_at < limit for seen in self._seen.values()):
            # One that is stopped holds all others up, but they stand still soon after it.
            return None
        silent = [rank for rank, seen in self._seen.items() if now - seen.beat_at > limit / 2]
        who = f"rank {silent[0]}" if silent and len(self._seen) > 1 else "the run"
        how = "shows no sign of life" if silent else "lives and does nothing"
        return Cause(
            "hung", f"hung {self.place}: {who} {how}, and nothing has moved for {limit:g} s"
        )
