"""The rollout logs of a run, one for each rank or player, read as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.run_folder.layout import RANK
from sparring.run_folder.rollout_log import Item, RolloutLog, Window
from sparring.run_folder.rollout_shards import Entry


class ShardedLog:
    """Reads all logs of a run as one, in the given order. Rollouts of a player that is not a rank
    have ids of the form PLAYER/ID, because several players play the same cases."""

    def __init__(self, folders: Sequence[Path], *, is_frozen: bool = False) -> None:
        self._logs = [RolloutLog(folder, is_frozen=is_frozen) for folder in folders]
        self._names = ["" if path.name.startswith(RANK) else path.name for path in folders]

    def __len__(self) -> int:
        return sum(map(len, self._logs))

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Yield the index entries of a range."""
        for _, log, first, last in self._pieces(start, stop):
            yield from log.entries(first, last)

    def records(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        """Yield the records of a range."""
        for item in self.items(start, stop):
            yield item.record

    def items(self, start: int, stop: int, *, heads: bool = False) -> Iterator[Item]:
        """Yield index entries with their records; with `heads`, only the beginning of long ones."""
        for name, log, first, last in self._pieces(start, stop):
            for item in log.items(first, last, heads=heads):
                record = item.record
                full = {**record, "id": f"{name}/{record['id']}"} if name else record
                yield Item(item.entry, full)

    def read(self, position: int, entry: Entry, *, heads: bool = False) -> dict[str, Any]:
        """Return the record of an entry; with `heads`, only the beginning of a long one."""
        for name, log in zip(self._names, self._logs, strict=True):
            if position < len(log):
                record = log.read(position, entry, heads=heads)
                return {**record, "id": f"{name}/{record['id']}"} if name else record
            position -= len(log)
        raise IndexError(position)

    def windows(self, start: int, stop: int, size: int) -> Iterator[Window]:
        """Yield stretches of raw lines of about `size` bytes."""
        before = 0
        for log in self._logs:
            first, last = max(0, start - before), min(len(log), stop - before)
            for window in log.windows(first, last, size) if first < last else ():
                yield Window(before + window.start, window.data, window.places)
            before += len(log)

    def steps(self, first: int, last: int) -> list[range]:
        """Return the positions of the rollouts of these steps, one range for each log."""
        ranges, before = [], 0
        for log in self._logs:
            found = log.steps(first, last)
            if found:
                ranges.append(range(before + found.start, before + found.stop))
            before += len(log)
        return ranges

    def position(self, rollout_id: str) -> int | None:
        """Return the position of the rollout with this id, or None."""
        player, _, rest = rollout_id.partition("/")
        has_player = player in filter(None, self._names)
        before = 0
        for name, log in zip(self._names, self._logs, strict=True):
            if not has_player or name == player:
                found = log.position(rest if has_player else rollout_id)
                if found is not None:
                    return before + found
            before += len(log)
        return None

    def find(self, rollout_id: str) -> dict[str, Any]:
        """Return the record with this id; InvalidInput if no log has it."""
        player, _, rest = rollout_id.partition("/")
        if player in filter(None, self._names):  # otherwise the id itself contains a slash
            return self._logs[self._names.index(player)].find(rest)
        for log in self._logs[:-1]:
            try:
                return log.find(rollout_id)
            except InvalidInput:
                continue
        return self._logs[-1].find(rollout_id)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[str, RolloutLog, int, int]]:
        before = 0
        for name, log in zip(self._names, self._logs, strict=True):
            size = len(log)
            first, last = max(0, start - before), min(size, stop - before)
            if first < last:
                yield name, log, first, last
            before += size
