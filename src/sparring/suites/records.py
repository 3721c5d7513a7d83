"""Where raw records come from. Each source can be asked for the n-th without holding all."""

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


class Records(Protocol):
    """A sequence of mappings with cheap random access."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> Mapping[str, Any]: ...


class JsonlRecords:
    """A JSONL file read by offset: eight bytes a record in memory, whatever the file holds."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise SuiteError(f"there is no file {path}; give the path of a JSONL file")
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

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, number: int) -> Mapping[str, Any]:
        # One positioned read, so that threads can share the file.
        start = self._offsets[number]
        stop = self._offsets[number + 1] if number + 1 < len(self) else os.fstat(self._fd).st_size
        line = os.pread(self._fd, stop - start, start)
        try:
            record = json.loads(line)
        except ValueError as error:
            problem = str(error).partition(":")[0]
            raise SuiteError(
                f"{self._path}:{self._lines[number]} is not JSON ({problem}); "
                "each line must hold one object"
            ) from error
        if not isinstance(record, dict):
            raise SuiteError(
                f"{self._path}:{self._lines[number]} holds {type(record).__name__}, "
                'not an object; each line must be like {"input": …, "expected": …}'
            )
        return record

    @property
    def _fd(self) -> int:
        return self._file.fileno()


class ListRecords:
    """Records that the caller holds in memory anyway."""

    def __init__(self, records: list[Mapping[str, Any]]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int) -> Mapping[str, Any]:
        record = self._records[number]
        if not isinstance(record, Mapping):
            raise SuiteError(
                f"record {number} is {type(record).__name__}, not a mapping; "
                "give dictionaries like {'input': …, 'expected': …}"
            )
        return record


def spool(records: Iterable[Mapping[str, Any]]) -> JsonlRecords:
    """Write a stream to an indexed local file, one record at a time, and read it from there."""
    descriptor, name = tempfile.mkstemp(prefix="suite-", suffix=".jsonl")
    path = Path(name)
    with os.fdopen(descriptor, "wb") as file:
        for record in records:
            file.write(json.dumps(dict(record), default=repr).encode("ascii") + b"\n")
    indexed = JsonlRecords(path)
    path.unlink()  # the open file keeps the data; nothing is left behind at exit
    return indexed


def csv_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    if not path.is_file():
        raise SuiteError(f"there is no file {path}; give the path of a CSV file with a header")
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        for row in reader:
            if None in row:
                raise SuiteError(
                    f"{path}:{reader.line_num} has more cells than the header has columns; "
                    "quote cells that contain a comma"
                )
            yield row
