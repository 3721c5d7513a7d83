"""Sources of raw records with random access; files are not loaded into memory."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from sparring.contracts.errors import SuiteError

Record = Mapping[str, Any]  # what the user wrote: its columns are theirs


class Records(Protocol):
    """A sequence of mappings with cheap random access."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> Record: ...


class JsonlRecords:
    """A JSONL file, read by offset. It takes 16 bytes of memory per record of any size."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise SuiteError(f"{path} does not exist; give the path of a JSONL file")
        self._path = path
        self._offsets: array[int] = array("Q")
        self._lines: array[int] = array("Q")
        offset = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    self._offsets.append(offset)
                    self._lines.append(number)
                offset += len(line)
        self._file = path.open("rb")
        self.inexact: frozenset[str] = frozenset()  # fields that hold the `repr` of an object

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, number: int) -> Record:
        # `pread` instead of a seek, because threads share the file.
        start = self._offsets[number]
        stop = self._offsets[number + 1] if number + 1 < len(self) else os.fstat(self._fd).st_size
        line = os.pread(self._fd, stop - start, start)
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            problem = str(error).partition(":")[0]
            raise SuiteError(
                f"{self._path}:{self._lines[number]} is not JSON ({problem}); "
                "each line must be one object"
            ) from error
        if not isinstance(record, dict):
            raise SuiteError(
                f"{self._path}:{self._lines[number]} is {type(record).__name__}, "
                'not an object; each line must be like {"input": …, "expected": …}'
            )
        return record

    @property
    def _fd(self) -> int:
        return self._file.fileno()


class ListRecords:
    """Records in memory."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int) -> Record:
        record = self._records[number]
        if not isinstance(record, Mapping):
            raise SuiteError(
                f"record {number} is {type(record).__name__}, not a mapping; "
                "give dictionaries like {'input': …, 'expected': …}"
            )
        return record


def spool(records: Iterable[Record]) -> JsonlRecords:
    """Write a stream of records to a temporary file, one at a time, and index it."""
    descriptor, name = tempfile.mkstemp(prefix="suite-", suffix=".jsonl")
    path = Path(name)
    inexact: set[str] = set()
    try:
        with os.fdopen(descriptor, "wb") as file:
            for number, record in enumerate(records):
                file.write(_line(record, number, inexact))
        spooled = JsonlRecords(path)
        spooled.inexact = frozenset(inexact)
        return spooled
    finally:
        path.unlink()  # the open descriptor can still be read


def is_json(value: Any) -> bool:
    """Return whether JSON can express the value."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _line(record: Any, number: int, inexact: set[str]) -> bytes:
    """Return the record as a line of JSON. An object that JSON cannot express becomes its `repr`,
    and the name of its field is added to `inexact`."""
    if not isinstance(record, Mapping):
        raise SuiteError(
            f"record {number} is {type(record).__name__}, not a mapping; "
            "give dictionaries like {'input': …, 'expected': …}"
        )
    if not is_json(dict(record)):
        inexact |= {name for name, value in record.items() if not is_json(value)}
    try:
        return json.dumps(dict(record), default=repr).encode("ascii") + b"\n"
    except TypeError as error:
        raise SuiteError(f"record {number} cannot be written as JSON: {error}") from error


def csv_rows(path: Path) -> Iterator[Record]:
    """Yield the rows of a CSV file with a header, as mappings by column."""
    if not path.is_file():
        raise SuiteError(f"{path} does not exist; give the path of a CSV file with a header")
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        try:
            reader.fieldnames = [str(name).strip() for name in reader.fieldnames or ()]
            for row in reader:
                if None in row:
                    raise SuiteError(
                        f"{path}:{reader.line_num} has more cells than the header has columns; "
                        "quote cells that contain a comma"
                    )
                yield row
        except UnicodeDecodeError as error:
            raise SuiteError(f"{path} is not UTF-8: {error}; save it as UTF-8") from error
        except csv.Error as error:
            raise SuiteError(
                f"{path}:{reader.line_num + 1} cannot be read ({error}); use JSONL for long texts"
            ) from error
