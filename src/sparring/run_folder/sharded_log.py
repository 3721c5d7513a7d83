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
        for name, log, first, _ in self._pieces(position, position + 1):
            record = log.read(first, entry, heads=heads)
            return {**record, "id": f"{name}/{record['id']}"} if name else record
        raise IndexError(position)

    def windows(self, start: int, stop: int, size: int) -> Iterator[Window]:
        """Yield the raw lines of a range in windows of at most `size` bytes, or of one longer
        line."""
        for _, log, places in self._places():
            first, last = max(0, start - places.start), min(len(places), stop - places.start)
            for window in log.windows(first, last, size) if first < last else ():
                yield Window(places.start + window.start, window.data, window.places)

    def steps(self, first: int, last: int) -> list[range]:
        """Return the positions of the rollouts of steps `first` to `last`, inclusive, as one range
        per log with such rollouts."""
        ranges = []
        for _, log, places in self._places():
            if found := log.steps(first, last):
                ranges.append(range(places.start + found.start, places.start + found.stop))
        return ranges

    def positions_of(self, player: str) -> range:
        """Return the positions of the rollouts of one player; raises InvalidInput if there is no
        log of that player."""
        for name, _, places in self._places():
            if name == player:
                return places
        known = ", ".join(filter(None, self._names))
        found = f"it has {known}" if known else "its rollouts have no player names"
        raise InvalidInput(f"this run has no player {player[:200]!r}; {found}")

    def position(self, rollout_id: str) -> int | None:
        """Return the position of the rollout with this id, or None."""
        player, _, rest = rollout_id.partition("/")
        has_player = player in filter(None, self._names)
        for name, log, places in self._places():
            if not has_player or name == player:
                found = log.position(rest if has_player else rollout_id)
                if found is not None:
                    return places.start + found
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
        for name, log, places in self._places():
            first, last = max(0, start - places.start), min(len(places), stop - places.start)
            if first < last:
                yield name, log, first, last

    def _places(self) -> Iterator[tuple[str, RolloutLog, range]]:
        """Yield each log with its name and the positions of its rollouts."""
        start = 0
        for name, log in zip(self._names, self._logs, strict=True):
            places = range(start, start + len(log))
            yield name, log, places
            start = places.stop


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
    """Return every rollout in the logs, in order; logs that do not exist are skipped."""
    log = ShardedLog([place for place in places if place.is_dir()])
    return [from_record(record) for record in log.records(0, len(log))]
