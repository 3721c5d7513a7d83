"""The training view of a suite: a file without held-out cases, for the training process.

The file contains the training and validation cases. It contains nothing about the held-out cases
except their number and the digests of their questions, which are used to recognise demonstrations
made from them.
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
from sparring.suites.splitting import Conflicts, Splitter
from sparring.suites.suite import Suite

_LENGTH = 8


@dataclass(frozen=True, slots=True)
class _Header:
    """Properties of the full suite."""

    digest: str
    total: int
    minimum: int
    splitter: Splitter
    names_splits: bool
    held_out: int
    distinct: int
    conflicts: Conflicts
    held_out_questions: frozenset[str]


def write_training_view(suite: Suite, file: BinaryIO) -> None:
    """Write the training view of a suite, one case at a time."""
    header = _Header(
        suite.digest,
        len(suite),
        suite.minimum,
        suite.splitter,
        suite.names_splits,
        suite.size(Split.HELD_OUT),
        suite.distinct,
        suite.conflicts,
        suite.question_digests(Split.HELD_OUT),
    )
    _write(file, header)
    for case in suite.all_but(Split.HELD_OUT):
        try:
            _write(file, case)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise SuiteError(
                f"case {case.id} has a value that cannot be passed to the training process "
                f"({error}); use only texts, numbers, lists and dictionaries in records"
            ) from error


class TrainingView(Suite):
    """A suite that `write_training_view` wrote; `cases` raises SuiteError for held-out."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._offsets: array[int] = array("Q")
        self._splits = array("B")
        self._header: _Header = pickle.loads(self._block(0))  # noqa: S301 - our own process wrote it
        self.digest = self._header.digest
        self.minimum, self.splitter = self._header.minimum, self._header.splitter
        self.names_splits = self._header.names_splits
        self.distinct, self.conflicts = self._header.distinct, self._header.conflicts
        splits = tuple(Split)
        size = os.fstat(self._file.fileno()).st_size
        offset = _LENGTH + len(self._block(0))
        while offset < size:
            self._offsets.append(offset)
            block = self._block(offset)
            self._splits.append(splits.index(pickle.loads(block).split))  # noqa: S301
            offset += _LENGTH + len(block)

    def __len__(self) -> int:
        return self._header.total

    def size(self, split: Split) -> int:
        """Return the number of cases in a split of the full suite."""
        return self._header.held_out if split is Split.HELD_OUT else super().size(split)

    def cases(self, split: Split, limit: int | None = None) -> Iterator[Case]:
        """Return an iterator over the cases of one split; raises SuiteError for held-out."""
        if split is Split.HELD_OUT:
            raise SuiteError(
                "the training process has no held-out cases; `sparring prove` plays them"
            )
        return super().cases(split, limit)

    def question_digests(self, split: Split) -> frozenset[str]:
        """Return the `question_digest` of each case of one split; held-out is allowed."""
        if split is Split.HELD_OUT:
            return self._header.held_out_questions
        return super().question_digests(split)

    def _case(self, number: int) -> Case:
        case: Case = pickle.loads(self._block(self._offsets[number]))  # noqa: S301
        return case

    def _block(self, offset: int) -> bytes:
        """Read one block, with `pread` because threads share the file."""
        descriptor = self._file.fileno()
        length = int.from_bytes(os.pread(descriptor, _LENGTH, offset), "little")
        return os.pread(descriptor, length, offset + _LENGTH)


def _write(file: BinaryIO, value: object) -> None:
    block = pickle.dumps(value)
    file.write(len(block).to_bytes(_LENGTH, "little") + block)
