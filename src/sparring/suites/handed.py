"""A suite handed to another process without its held-out cases.

The file holds training and validation cases only; of the held-out ones, how many there are and
digests of what they ask, by which a demonstration that shows one is recognised.
"""

from __future__ import annotations

import os
import pickle
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, BinaryIO

from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import SuiteError
from sparring.suites.splitting import Splitter
from sparring.suites.suite import Suite

_LENGTH = 8


@dataclass(frozen=True, slots=True)
class _About:
    """What is known of the whole."""

    digest: str
    total: int
    minimum: int
    splitter: Splitter
    names_splits: bool
    held_out: int
    held_out_questions: frozenset[str]


def hand_over(suite: Suite, file: BinaryIO) -> None:
    """Write what training may have, one case at a time."""
    about = _About(
        suite.digest,
        len(suite),
        suite.minimum,
        suite.splitter,
        suite.names_splits,
        suite.size(Split.HELD_OUT),
        suite.question_digests(Split.HELD_OUT),
    )
    _write(file, about)
    for case in suite.all_but(Split.HELD_OUT):
        try:
            _write(file, case)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise SuiteError(
                f"case {case.id} holds something that cannot be handed to the training process "
                f"({error}); keep to texts, numbers, lists and dictionaries in records"
            ) from error


class HandedSuite(Suite):
    """What was handed over. It reads like the suite it came from, held-out cases apart."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._offsets: array[int] = array("Q")
        self._sides = array("B")
        self._about: _About = pickle.loads(self._block(0))  # noqa: S301 - our own process wrote it
        self.digest = self._about.digest
        self.minimum, self.splitter = self._about.minimum, self._about.splitter
        self.names_splits = self._about.names_splits
        sides = tuple(Split)
        size = os.fstat(self._file.fileno()).st_size
        place = _LENGTH + len(self._block(0))
        while place < size:
            self._offsets.append(place)
            block = self._block(place)
            self._sides.append(sides.index(pickle.loads(block).split))  # noqa: S301
            place += _LENGTH + len(block)

    def __len__(self) -> int:
        return self._about.total

    def size(self, split: Split) -> int:
        return self._about.held_out if split is Split.HELD_OUT else super().size(split)

    def cases(self, split: Split, limit: int | None = None) -> Iterator[Case]:
        if split is Split.HELD_OUT:
            raise SuiteError("held-out cases were not handed over; `sparring prove` plays them")
        return super().cases(split, limit)

    def question_digests(self, split: Split) -> frozenset[str]:
        if split is Split.HELD_OUT:
            return self._about.held_out_questions
        return super().question_digests(split)

    def _case(self, number: int) -> Case:
        case: Case = pickle.loads(self._block(self._offsets[number]))  # noqa: S301
        return case

    def _block(self, place: int) -> bytes:
        """By position, so that threads can share the file."""
        descriptor = self._file.fileno()
        length = int.from_bytes(os.pread(descriptor, _LENGTH, place), "little")
        return os.pread(descriptor, length, place + _LENGTH)


def _write(file: BinaryIO, value: object) -> None:
    block = pickle.dumps(value)
    file.write(len(block).to_bytes(_LENGTH, "little") + block)
