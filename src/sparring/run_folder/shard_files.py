"""A shard on disk: an index with one fixed-size entry per rollout, and the rollouts as lines, which
are plain while they are written and compressed once the shard is full.

A compressed shard is a series of zstd frames of whole lines, followed by the seek table of zstd's
seekable format. Reading a line decompresses one frame, and `zstd -d` restores the plain file. The
offsets in the index are offsets in the plain file, so compression does not change them.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import accumulate
from pathlib import Path

from backports import zstd

from sparring.contracts.rollouts import Ending, Rollout
from sparring.run_folder.files import sync_folder

SHARD_ROLLOUTS = 4096
_ENTRY = struct.Struct("<QQIIffBBHI")
ENTRY_BYTES = _ENTRY.size  # 40
# An ending is stored as its position in this tuple: append, never reorder.
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
    Ending.INFRASTRUCTURE_ERROR,
    Ending.NO_MODEL_CALL,
)
_FRAME_BYTES = 1 << 18  # of plain lines: repeated prompts compress well, and reads stay fast
_LEVEL = 3
_SKIPPABLE = struct.Struct("<II")  # magic number, size of the table
_FRAME = struct.Struct("<II")  # compressed and plain size
_FOOTER = struct.Struct("<IBI")  # number of frames, descriptor, magic number
_TABLE_MAGIC, _FOOTER_MAGIC = 0x184D2A5E, 0x8F92EAB1


@dataclass(frozen=True, slots=True)
class Entry:
    """The index entry of one rollout, readable without opening its shard."""

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
    """Return the 64-bit digest of an id that index entries contain."""
    return int.from_bytes(hashlib.sha256(rollout_id.encode()).digest()[:8], "little")


def pack_entry(rollout: Rollout, seconds: float, *, offset: int, length: int) -> bytes:
    """Return the index entry of a rollout whose line begins at `offset`."""
    return _ENTRY.pack(
        id_digest(rollout.id),
        offset,
        length,
        rollout.key.step,
        math.nan if rollout.reward is None else rollout.reward,
        seconds,
        _ENDINGS.index(rollout.ending),
        0,
        min(len(rollout.tool_calls), 0xFFFF),
        rollout.tokens.sampled,
    )


def unpack_entries(block: bytes) -> Iterator[Entry]:
    """Yield the complete entries in a block of an index."""
    for place in range(0, len(block) - ENTRY_BYTES + 1, ENTRY_BYTES):
        yield unpack_entry(block[place : place + ENTRY_BYTES])


def unpack_entry(block: bytes) -> Entry:
    """Return the entry in exactly `ENTRY_BYTES` bytes of an index."""
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


def line_places(block: bytes) -> list[tuple[int, int]]:
    """Return the start and end offset of the line of each entry in a block."""
    return [(entry[1], entry[1] + entry[2]) for entry in _ENTRY.iter_unpack(block)]


def find_digest(block: bytes, rollout_id: str) -> int | None:
    """Return the number of the entry with this id in a block; None if there is none."""
    digest = struct.pack("<Q", id_digest(rollout_id))
    place = block.find(digest)
    while place >= 0 and place % ENTRY_BYTES:
        place = block.find(digest, place + 1)
    return place // ENTRY_BYTES if place >= 0 else None


def index_path(folder: Path, shard: int) -> Path:
    """Return the path of a shard's index."""
    return folder / f"{shard:05d}.idx"


def plain_path(folder: Path, shard: int) -> Path:
    """Return the path of a shard's plain lines."""
    return folder / f"{shard:05d}.jsonl"


def compressed_path(folder: Path, shard: int) -> Path:
    """Return the path of a shard's compressed lines."""
    return folder / f"{shard:05d}.jsonl.zst"


class ShardLines:
    """Reads one shard, plain or compressed, by offsets in the plain file."""

    def __init__(self, folder: Path, shard: int) -> None:
        self._frames: _Frames | None = None
        try:
            self._file = compressed_path(folder, shard).open("rb")
        except FileNotFoundError:
            self._file = self._plain(folder, shard)
        else:
            self._frames = _Frames(self._file)

    def __enter__(self) -> ShardLines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes of the plain lines from `offset` on."""
        if self._frames is not None:
            return self._frames.read(offset, length)
        self._file.seek(offset)
        return self._file.read(length)

    def _plain(self, folder: Path, shard: int) -> BufferedReader:
        try:
            return plain_path(folder, shard).open("rb")
        except FileNotFoundError:  # compressed since the first attempt to open it
            file = compressed_path(folder, shard).open("rb")
            self._frames = _Frames(file)
            return file


class _Frames:
    """Reads the frames of a compressed shard. Keeps the frame that was read last, because
    most reads are sequential."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self._sizes = _read_table(file)
        self._starts = [0, *accumulate(plain for _, plain in self._sizes)]
        self._places = [0, *accumulate(packed for packed, _ in self._sizes)]
        self._kept: tuple[int, bytes] = (-1, b"")

    def read(self, offset: int, length: int) -> bytes:
        number = bisect_right(self._starts, offset) - 1
        parts = []
        while length > 0 and number < len(self._sizes):
            part = self._read_in(number, offset - self._starts[number], length)
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
            number += 1
        return b"".join(parts)

    def _read_in(self, number: int, first: int, length: int) -> bytes:
        packed, plain = self._sizes[number]
        if self._kept[0] != number:
            self._file.seek(self._places[number])
            data = self._file.read(packed)
            if plain > 2 * _FRAME_BYTES and first + length < plain:  # the head of a long line
                return _plain_bytes(data, first + length)[first:]
            self._kept = (number, _plain_bytes(data, plain))
        return self._kept[1][first : first + length]


def compress(folder: Path, shard: int) -> None:
    """Compress a full shard. The plain file is removed once the compressed file is synced."""
    plain, target = plain_path(folder, shard), compressed_path(folder, shard)
    partial = target.with_suffix(".partial")
    sizes: list[tuple[int, int]] = []
    with plain.open("rb") as lines, partial.open("wb") as file:
        for block in _blocks(lines):
            frame = zstd.compress(block, _LEVEL)
            file.write(frame)
            sizes.append((len(frame), len(block)))
        file.write(_table(sizes))
        file.flush()
        os.fsync(file.fileno())
    partial.rename(target)
    sync_folder(folder)
    plain.unlink()


def expand(folder: Path, shard: int) -> None:
    """Replace a compressed shard with a plain one, which can be cut and appended to."""
    target = plain_path(folder, shard)
    partial = target.with_suffix(".partial")
    with compressed_path(folder, shard).open("rb") as file, partial.open("wb") as lines:
        for packed, plain in _read_table(file):
            lines.write(_plain_bytes(file.read(packed), plain))
        lines.flush()
        os.fsync(lines.fileno())
    partial.rename(target)
    sync_folder(folder)
    compressed_path(folder, shard).unlink()


def is_compressed(folder: Path, shard: int) -> bool:
    """Return whether a shard has a compressed file."""
    return compressed_path(folder, shard).is_file()


def remove(folder: Path, shard: int) -> None:
    """Remove a shard's lines, plain and compressed; its index is left."""
    plain_path(folder, shard).unlink(missing_ok=True)
    compressed_path(folder, shard).unlink(missing_ok=True)


def _blocks(lines: BufferedReader) -> Iterator[bytes]:
    """Yield blocks of whole lines, each of at least `_FRAME_BYTES` except the last."""
    block: list[bytes] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= _FRAME_BYTES:
            yield b"".join(block)
            block, size = [], 0
    if block:
        yield b"".join(block)


def _plain_bytes(frame: bytes, most: int) -> bytes:
    """Decompress a frame to at most `most` bytes, so that it cannot exceed the size in its
    table."""
    return zstd.ZstdDecompressor().decompress(frame, most)


def _table(sizes: list[tuple[int, int]]) -> bytes:
    entries = b"".join(_FRAME.pack(*each) for each in sizes)
    footer = _FOOTER.pack(len(sizes), 0, _FOOTER_MAGIC)
    return _SKIPPABLE.pack(_TABLE_MAGIC, len(entries) + len(footer)) + entries + footer


def _read_table(file: BufferedReader) -> list[tuple[int, int]]:
    """Return the compressed and plain size of each frame, and seek to the file's beginning."""
    file.seek(-_FOOTER.size, os.SEEK_END)
    count, _, magic = _FOOTER.unpack(file.read(_FOOTER.size))
    if magic != _FOOTER_MAGIC:
        raise ValueError(f"{file.name} has no seek table: damaged, or not Sparring's")
    file.seek(-_FOOTER.size - count * _FRAME.size, os.SEEK_END)
    sizes = list(_FRAME.iter_unpack(file.read(count * _FRAME.size)))
    file.seek(0)
    return sizes
