"""A log of rollouts: append-only shards that are read by range.

A shard is a JSONL file and an index of fixed-size entries, so that reading the n-th of ten million
rollouts takes two seeks, and a page of a listing reads only its own lines. The index entry is
written after the line. A line without an entry does not count, and is removed when the log is
opened for writing. A full shard is compressed.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.contracts.rollouts import Rollout
from sparring.run_folder.files import dump_line
from sparring.run_folder.records import HEAD_BYTES, RolloutRecord, read_head, to_record
from sparring.run_folder.shard_files import (
    ENTRY_BYTES,
    SHARD_ROLLOUTS,
    Entry,
    ShardLines,
    compress,
    expand,
    find_digest,
    index_path,
    is_compressed,
    line_places,
    pack_entry,
    plain_path,
    remove,
    unpack_entries,
    unpack_entry,
)


@dataclass(frozen=True, slots=True)
class Item:
    """One rollout: its index entry and its record."""

    entry: Entry
    record: RolloutRecord


@dataclass(frozen=True, slots=True)
class Window:
    """Raw lines from position `start` on; `places` has the offsets of each line in `data`."""

    start: int
    data: bytes
    places: list[tuple[int, int]]


class RolloutWriter:
    """Appends rollouts to one log. A killed writer loses at most one rollout."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._count = 0
        self._shard = -1
        self._data = self._index = -1
        last = max((int(path.stem) for path in folder.glob("*.idx")), default=0)
        self._open_shard(last + is_compressed(folder, last))
        if self._shard:
            self._compress(self._shard - 1)  # if the last writer was killed before this

    def __enter__(self) -> RolloutWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, rollout: Rollout, seconds: float) -> None:
        """Append one rollout, which took `seconds` to play."""
        if self._count == SHARD_ROLLOUTS:
            self._open_shard(self._shard + 1)
            self._compress(self._shard - 1)
        line = dump_line(to_record(rollout))
        _write_all(self._data, line)
        entry = pack_entry(rollout, seconds, offset=self._end, length=len(line))
        _write_all(self._index, entry)
        self._end += len(line)
        self._count += 1

    def close(self) -> None:
        """Sync and close the current shard."""
        for descriptor in (self._data, self._index):
            if descriptor >= 0:
                os.fsync(descriptor)
                os.close(descriptor)
        self._data = self._index = -1

    def _open_shard(self, number: int) -> None:
        self.close()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._index = os.open(index_path(self._folder, number), flags, 0o644)
        self._data = os.open(plain_path(self._folder, number), flags, 0o644)
        self._shard = number
        self._count = os.fstat(self._index).st_size // ENTRY_BYTES
        written = os.fstat(self._data).st_size
        self._end = 0
        while self._count:
            last = unpack_entry(os.pread(self._index, ENTRY_BYTES, (self._count - 1) * ENTRY_BYTES))
            self._end = last.offset + last.length
            if self._end <= written:
                break
            self._count -= 1  # a power loss can keep an entry and lose its line
            self._end = 0
        os.ftruncate(self._index, self._count * ENTRY_BYTES)
        os.ftruncate(self._data, self._end)

    def _compress(self, shard: int) -> None:
        if plain_path(self._folder, shard).is_file():
            compress(self._folder, shard)


def cut_from_step(folder: Path, step: int) -> None:
    """Delete the rollouts of `step` and of later steps.

    A run that resumes from a checkpoint plays them again. The log holds only rollouts that led to
    the current weights.
    """
    for path in sorted(folder.glob("*.idx"), reverse=True):
        block = path.read_bytes()
        remaining = [entry for entry in unpack_entries(block) if entry.step < step]
        shard = int(path.stem)
        if len(remaining) == SHARD_ROLLOUTS:
            return
        if remaining or not shard:
            if is_compressed(folder, shard):
                expand(folder, shard)
            plain = plain_path(folder, shard)
            size = plain.stat().st_size  # a power loss can keep entries and lose their lines
            remaining = [entry for entry in remaining if entry.offset + entry.length <= size]
            last = remaining[-1] if remaining else None
            os.truncate(path, len(remaining) * ENTRY_BYTES)
            os.truncate(plain, last.offset + last.length if last else 0)
            return
        remove(folder, shard)  # before its index, by which a cut after a crash finds it
        path.unlink()


class RolloutLog:
    """Reads one log, even while it is being written, without loading a whole shard. With
    `is_frozen`, the length is read once, so that it does not change while a page is read."""

    def __init__(self, folder: Path, *, is_frozen: bool = False) -> None:
        self._folder = folder
        self._length: int | None = None
        self._is_frozen = is_frozen

    def __len__(self) -> int:
        if self._length is not None:
            return self._length
        length = self._count()
        self._length = length if self._is_frozen else None
        return length

    def _count(self) -> int:
        last = self._last_shard()
        if last < 0:
            return 0
        entries = index_path(self._folder, last).stat().st_size // ENTRY_BYTES
        return last * SHARD_ROLLOUTS + entries

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[Entry]:
        """Yield the index entries of a range, in the order of writing."""
        stop = len(self) if stop is None else min(stop, len(self))
        while start < stop:
            shard, first = divmod(start, SHARD_ROLLOUTS)
            count = min(stop - start, SHARD_ROLLOUTS - first)
            yield from unpack_entries(self._block(shard, first, count))
            start += count

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[RolloutRecord]:
        """Yield the records of a range, reading one line at a time."""
        for item in self.items(start, stop):
            yield item.record

    def items(
        self, start: int = 0, stop: int | None = None, *, heads: bool = False
    ) -> Iterator[Item]:
        """Yield index entries with their records; with `heads`, long records are cut."""
        stop = len(self) if stop is None else min(stop, len(self))
        while start < stop:
            shard, first = divmod(start, SHARD_ROLLOUTS)
            block = self._block(shard, first, min(stop - start, SHARD_ROLLOUTS - first))
            with ShardLines(self._folder, shard) as lines:
                for entry in unpack_entries(block):
                    yield Item(entry, _record(lines, entry, heads=heads))
            start += SHARD_ROLLOUTS - first

    def read(self, position: int, entry: Entry, *, heads: bool = False) -> RolloutRecord:
        """Return the record of the entry at `position`; with `heads`, a long record is cut."""
        with ShardLines(self._folder, position // SHARD_ROLLOUTS) as lines:
            return _record(lines, entry, heads=heads)

    def windows(self, start: int, stop: int, size: int) -> Iterator[Window]:
        """Yield the raw lines of a range in windows of at most `size` bytes, or of one longer
        line."""
        stop = min(stop, len(self))
        while start < stop:
            shard, first = divmod(start, SHARD_ROLLOUTS)
            block = self._block(shard, first, min(stop - start, SHARD_ROLLOUTS - first))
            places = line_places(block)
            with ShardLines(self._folder, shard) as lines:
                while places:
                    base = places[0][0]
                    count = max(1, sum(1 for _, end in places if end - base <= size))
                    chosen, places = places[:count], places[count:]
                    data = lines.read(base, chosen[-1][1] - base)
                    yield Window(start, data, [(low - base, high - base) for low, high in chosen])
                    start += count

    def steps(self, first: int, last: int) -> range:
        """Return the positions of the rollouts of steps `first` to `last`, inclusive, by binary
        search: steps never decrease within a log."""
        count = len(self)
        by_step = _StepsOf(self, count)
        return range(bisect_left(by_step, first), bisect_right(by_step, last))

    def position(self, rollout_id: str) -> int | None:
        """Return the position of the rollout with this id, or None. Only entries of the step in the
        id are searched."""
        step = rollout_id.rpartition(".")[0].rpartition(".")[2]
        if not (step.isascii() and step.isdigit() and len(step) < 12):
            return None
        likely = self.steps(int(step), int(step))
        return self._search(rollout_id, likely.start, likely.stop)

    def find(self, rollout_id: str) -> RolloutRecord:
        """Return the record of the rollout with this id; raises InvalidInput if there is none."""
        number = self.position(rollout_id)
        if number is not None:
            return next(self.records(number, number + 1))
        raise InvalidInput(
            f"no rollout {rollout_id!r} in {self._folder}; `sparring rollout list` shows them"
        )

    def _search(self, rollout_id: str, start: int, stop: int) -> int | None:
        """Return the position of an id between `start` and `stop`, found by its digest, or None."""
        while start < stop:
            shard, first = divmod(start, SHARD_ROLLOUTS)
            count = min(stop - start, SHARD_ROLLOUTS - first)
            place = find_digest(self._block(shard, first, count), rollout_id)
            if place is not None:
                return start + place
            start += count
        return None

    def _block(self, shard: int, first: int, count: int) -> bytes:
        with index_path(self._folder, shard).open("rb") as file:
            file.seek(first * ENTRY_BYTES)
            return file.read(count * ENTRY_BYTES)

    def _last_shard(self) -> int:
        """Return the number of the last shard, -1 if there is none. Shards are numbered without
        gaps, so a binary search finds the last of thousands in a few look-ups."""
        if not self._has(0):
            return -1
        known, missing = 0, 1
        while self._has(missing):
            known, missing = missing, missing * 2
        while missing - known > 1:
            middle = (known + missing) // 2
            known, missing = (middle, missing) if self._has(middle) else (known, middle)
        return known

    def _has(self, shard: int) -> bool:
        return index_path(self._folder, shard).exists()


def _record(lines: ShardLines, entry: Entry, *, heads: bool) -> RolloutRecord:
    """Return the record of an entry; with `heads`, a long record is cut."""
    if heads and entry.length > HEAD_BYTES:
        return read_head(lines.read(entry.offset, HEAD_BYTES))
    record: RolloutRecord = json.loads(lines.read(entry.offset, entry.length))
    return record


class _StepsOf(Sequence[int]):
    """The steps of a log's rollouts as a sequence; each look-up reads one index entry."""

    def __init__(self, log: RolloutLog, count: int) -> None:
        self._log = log
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, position: Any) -> Any:
        return next(self._log.entries(position, position + 1)).step


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`. On a full disk this raises, before the line's index entry is written."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
