"""Reads the rollout logs of a run, one per rank or player, as a single log.

`candidates` searches the raw lines without parsing them, at about a gigabyte per second: the caller
parses the record to decide whether it matches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from sparring.contracts.errors import InvalidInput
from sparring.contracts.rollouts import Rollout
from sparring.run_folder.layout import RANK
from sparring.run_folder.records import RolloutRecord, from_record
from sparring.run_folder.rollout_log import Item, RolloutLog, Window
from sparring.run_folder.shard_files import Entry

WINDOW_BYTES = 4_000_000
MAX_BYTES = 200_000_000  # limit of bytes read for one page
_PLAIN = re.compile(r"[ -~]+")


class ShardedLog:
    """The concatenation of several rollout logs. Rollouts of a player that is not a rank have ids
    of the form PLAYER/ID, because several players may play the same cases."""

    def __init__(self, folders: Sequence[Path], *, is_frozen: bool = False) -> None:
        self._logs = [RolloutLog(folder, is_frozen=is_frozen) for folder in folders]
        self._names = ["" if path.name.startswith(RANK) else path.name for path in folders]

    def __len__(self) -> int:
        return sum(map(len, self._logs))

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Yield the index entries of a range."""
        for _, log, first, last in self._pieces(start, stop):
            yield from log.entries(first, last)

    def records(self, start: int, stop: int) -> Iterator[RolloutRecord]:
        """Yield the records of a range."""
        for item in self.items(start, stop):
            yield item.record

    def items(self, start: int, stop: int, *, heads: bool = False) -> Iterator[Item]:
        """Yield index entries with their records; with `heads`, long records are cut."""
        for name, log, first, last in self._pieces(start, stop):
            for item in log.items(first, last, heads=heads):
                record = item.record
                full = {**record, "id": f"{name}/{record['id']}"} if name else record
                yield Item(item.entry, full)

    def read(self, position: int, entry: Entry, *, heads: bool = False) -> RolloutRecord:
        """Return the record of the entry at `position`; with `heads`, a long record is cut."""
        for name, log in zip(self._names, self._logs, strict=True):
            if position < len(log):
                record = log.read(position, entry, heads=heads)
                return {**record, "id": f"{name}/{record['id']}"} if name else record
            position -= len(log)
        raise IndexError(position)

    def windows(self, start: int, stop: int, size: int) -> Iterator[Window]:
        """Yield the raw lines of a range in windows of at most `size` bytes, or of one longer
        line."""
        before = 0
        for log in self._logs:
            first, last = max(0, start - before), min(len(log), stop - before)
            for window in log.windows(first, last, size) if first < last else ():
                yield Window(before + window.start, window.data, window.places)
            before += len(log)

    def steps(self, first: int, last: int) -> list[range]:
        """Return the positions of the rollouts of steps `first` to `last`, inclusive, as one range
        per log with such rollouts."""
        ranges, before = [], 0
        for log in self._logs:
            found = log.steps(first, last)
            if found:
                ranges.append(range(before + found.start, before + found.stop))
            before += len(log)
        return ranges

    def positions_of(self, player: str) -> range:
        """Return the positions of the rollouts of one player; raises InvalidInput if there is no
        log of that player."""
        before = 0
        for name, log in zip(self._names, self._logs, strict=True):
            if name == player:
                return range(before, before + len(log))
            before += len(log)
        known = ", ".join(filter(None, self._names))
        found = f"it has {known}" if known else "its rollouts have no player names"
        raise InvalidInput(f"this run has no player {player[:200]!r}; {found}")

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

    def find(self, rollout_id: str) -> RolloutRecord:
        """Return the record of the rollout with this id; raises InvalidInput if no log has it."""
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


def needle_of(text: str) -> bytes:
    """Return the longest ASCII part of a text, in lower case, as it appears in a JSON line.

    Other characters are left to the comparison with the record, because their lower case is not
    unique. A few characters that become ASCII in lower case, such as the Kelvin sign, are missed.
    """
    parts = _PLAIN.findall(text)
    longest = max(parts, key=len, default="")
    return json.dumps(longest)[1:-1].lower().encode()


def candidates(
    log: ShardedLog, needles: Sequence[bytes], ranges: Sequence[range]
) -> Iterator[tuple[int, bool]]:
    """Yield `(position, True)` for each line that contains every needle. After `MAX_BYTES`, yield
    `(position, False)` with the first unread position, and end."""
    wanted = [each for each in needles if each]
    read = 0
    for each in ranges:
        for window in log.windows(each.start, each.stop, WINDOW_BYTES):
            if read >= MAX_BYTES:
                yield window.start, False
                return
            read += len(window.data)
            data = window.data.lower()
            if all(needle in data for needle in wanted):
                for number, (low, high) in enumerate(window.places):
                    if all(data.find(needle, low, high) >= 0 for needle in wanted):
                        yield window.start + number, True


def read_rollouts(places: Sequence[Path]) -> list[Rollout]:
    """Return every rollout of the logs, in order; logs that do not exist are skipped."""
    log = ShardedLog([place for place in places if place.is_dir()])
    return [from_record(record) for record in log.records(0, len(log))]
