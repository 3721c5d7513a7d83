"""Every rollout of a run, in append-only shards that are read by range.

A shard is a JSONL file with an index of fixed-size entries beside it, so that the n-th of
ten million rollouts is two seeks away and a page of a listing reads that page only. The
index entry is written after the line: what has no entry does not exist, and is cut off
when the log is opened again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from sparring.contracts.errors import InvalidInput
from sparring.contracts.rollouts import Ending, Rollout
from sparring.run_folder.files import dump_line
from sparring.run_folder.layout import RANK
from sparring.run_folder.records import to_record

SHARD_ROLLOUTS = 4096
_ENTRY = struct.Struct("<QQIIffBBHI")  # 40 bytes
# Numbers on disk: append, never reorder.
_ENDINGS = (
    Ending.ANSWERED,
    Ending.UNPARSABLE_CALL,
    Ending.UNKNOWN_TOOL,
    Ending.TOOL_DEADLINE,
    Ending.TURN_LIMIT,
    Ending.TOKEN_BUDGET,
    Ending.INVALID_OUTPUT,
    Ending.INPUT_GUARDRAIL,
    Ending.OUTPUT_GUARDRAIL,
    Ending.TOOL_GUARDRAIL,
    Ending.ROLLOUT_DEADLINE,
    Ending.MACHINERY,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """What the index knows of a rollout without opening its shard."""

    id_digest: int
    offset: int
    length: int
    step: int
    reward: float | None
    seconds: float
    ending: Ending
    tool_calls: int
    sampled: int


def id_digest(rollout_id: str) -> int:
    return int.from_bytes(hashlib.sha256(rollout_id.encode()).digest()[:8], "little")


class RolloutWriter:
    """Appends rollouts of one rank. A killed writer loses at most the line it was writing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._count = 0
        self._shard = -1
        self._data = self._index = -1
        shards = sorted(folder.glob("*.idx"))
        self._open_shard(int(shards[-1].stem) if shards else 0)

    def __enter__(self) -> RolloutWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def append(self, rollout: Rollout, seconds: float) -> None:
        if self._count == SHARD_ROLLOUTS:
            self._open_shard(self._shard + 1)
        line = dump_line(to_record(rollout))
        _write_all(self._data, line)
        entry = _ENTRY.pack(
            id_digest(rollout.id),
            self._end,
            len(line),
            rollout.key.step,
            math.nan if rollout.reward is None else rollout.reward,
            seconds,
            _ENDINGS.index(rollout.ending),
            0,
            min(len(rollout.tool_calls), 0xFFFF),
            rollout.tokens.sampled,
        )
        _write_all(self._index, entry)
        self._end += len(line)
        self._count += 1

    def close(self) -> None:
        for descriptor in (self._data, self._index):
            if descriptor >= 0:
                os.fsync(descriptor)
                os.close(descriptor)
        self._data = self._index = -1

    def _open_shard(self, number: int) -> None:
        self.close()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._index = os.open(_index_path(self._folder, number), flags, 0o644)
        self._data = os.open(_data_path(self._folder, number), flags, 0o644)
        self._shard = number
        self._count = os.fstat(self._index).st_size // _ENTRY.size
        written = os.fstat(self._data).st_size
        self._end = 0
        while self._count:
            last = _unpack(os.pread(self._index, _ENTRY.size, (self._count - 1) * _ENTRY.size))
            self._end = last.offset + last.length
            if self._end <= written:
                break
            self._count -= 1  # the power went before the line was on disk
            self._end = 0
        os.ftruncate(self._index, self._count * _ENTRY.size)
        os.ftruncate(self._data, self._end)


def cut_from_step(folder: Path, step: int) -> None:
    """Forget the rollouts of this step and later ones.

    They were played after the checkpoint that a run goes on from, and are played again: the
    log stays the history of the weights that there are.
    """
    for path in sorted(folder.glob("*.idx"), reverse=True):
        block = path.read_bytes()
        entries = [
            _unpack(block[place : place + _ENTRY.size])
            for place in range(0, len(block) - _ENTRY.size + 1, _ENTRY.size)
        ]
        kept = [entry for entry in entries if entry.step < step]
        data = path.with_suffix(".jsonl")
        if kept or path.stem == "00000":
            os.truncate(path, len(kept) * _ENTRY.size)
            os.truncate(data, kept[-1].offset + kept[-1].length if kept else 0)
            return
        path.unlink()
        data.unlink(missing_ok=True)


class RolloutLog:
    """Reads a log while it is being written; nothing is ever loaded whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __len__(self) -> int:
        shards = self._shards()
        if not shards:
            return 0
        return shards[-1] * SHARD_ROLLOUTS + self._entries_in(shards[-1])

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[Entry]:
        """Index entries of a range, in the order of writing."""
        stop = len(self) if stop is None else min(stop, len(self))
        while start < stop:
            shard, first = divmod(start, SHARD_ROLLOUTS)
            count = min(stop - start, SHARD_ROLLOUTS - first)
            with _index_path(self._folder, shard).open("rb") as file:
                file.seek(first * _ENTRY.size)
                block = file.read(count * _ENTRY.size)
            for position in range(0, len(block) - _ENTRY.size + 1, _ENTRY.size):
                yield _unpack(block[position : position + _ENTRY.size])
            start += count

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[dict[str, Any]]:
        """Records of a range, one line read at a time."""
        for number, entry in enumerate(self.entries(start, stop), start):
            with _data_path(self._folder, number // SHARD_ROLLOUTS).open("rb") as file:
                file.seek(entry.offset)
                yield json.loads(file.read(entry.length))

    def find(self, rollout_id: str) -> dict[str, Any]:
        """The record with this id, found through the index."""
        wanted = id_digest(rollout_id)
        for number, entry in enumerate(self.entries()):
            if entry.id_digest == wanted:
                return next(self.records(number, number + 1))
        raise InvalidInput(
            f"no rollout {rollout_id!r} in {self._folder}; `sparring rollout list` shows them"
        )

    def _shards(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.idx"))

    def _entries_in(self, shard: int) -> int:
        return _index_path(self._folder, shard).stat().st_size // _ENTRY.size


class GangLog:
    """The logs of a run as one: log after log, each in the order of writing. Rollouts of a player
    that is no rank are known as PLAYER/ID: several players have played the same cases."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._logs = [RolloutLog(folder) for folder in folders]
        self._names = ["" if each.name.startswith(RANK) else each.name for each in folders]

    def __len__(self) -> int:
        return sum(map(len, self._logs))

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        for _, log, first, last in self._pieces(start, stop):
            yield from log.entries(first, last)

    def records(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        for name, log, first, last in self._pieces(start, stop):
            for record in log.records(first, last):
                yield {**record, "id": f"{name}/{record['id']}"} if name else record

    def find(self, rollout_id: str) -> dict[str, Any]:
        player, _, rest = rollout_id.partition("/")
        if player in filter(None, self._names):  # else an id that has a stroke in it
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


def _unpack(block: bytes) -> Entry:
    digest, offset, length, step, reward, seconds, ending, _, calls, sampled = _ENTRY.unpack(block)
    return Entry(
        id_digest=digest,
        offset=offset,
        length=length,
        step=step,
        reward=None if math.isnan(reward) else reward,
        seconds=seconds,
        ending=_ENDINGS[ending],
        tool_calls=calls,
        sampled=sampled,
    )


def _write_all(descriptor: int, data: bytes) -> None:
    """A disk that fills up raises here, before the index says the line exists."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _index_path(folder: Path, shard: int) -> Path:
    return folder / f"{shard:05d}.idx"


def _data_path(folder: Path, shard: int) -> Path:
    return folder / f"{shard:05d}.jsonl"
