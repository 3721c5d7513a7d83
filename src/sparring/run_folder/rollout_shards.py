"""The index of a shard: one fixed-size entry per rollout."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sparring.contracts.rollouts import Ending, Rollout

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
