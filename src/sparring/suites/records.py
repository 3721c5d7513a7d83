"""Sources of raw records with random access: files, which are not loaded into memory, JSON arrays,
dataset dictionaries and Inspect tasks. Chats become the SDK's input items.
"""

from __future__ import annotations

import csv
import json
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from sparring.contracts.errors import SuiteError
from sparring.contracts.json import JsonObject

Record = Mapping[str, Any]  # what the user wrote: its columns are theirs


class Records(Protocol):
    """A sequence of mappings with cheap random access."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> Record: ...


def missing_file(path: Path, advice: str) -> str:
    """Return the message about a file that does not exist, with the folder of a relative path."""
    where = "" if path.is_absolute() else f" in the working directory {Path.cwd()}"
    return f"{path} does not exist{where}; {advice}"


class JsonlRecords:
    """A JSONL file, read by offset. It takes 16 bytes of memory per record of any size."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise SuiteError(missing_file(path, "give the path of a JSONL file"))
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
        raise SuiteError(missing_file(path, "give the path of a CSV file with a header"))
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


def json_records(path: Path) -> list[Record]:
    """Return the items of a JSON file that contains an array."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SuiteError(f"{path} cannot be read: {error.strerror}; give a JSON file") from error
    except (ValueError, RecursionError) as error:
        raise SuiteError(
            f"{path} is not JSON: {error}; if it has one object per line, use from_jsonl"
        ) from error
    if not isinstance(content, list):
        raise SuiteError(f"{path} contains {type(content).__name__}, not an array of objects")
    return content


def records_by_split(datasets: Mapping[str, Any]) -> Iterator[Record]:
    """Yield the records of a dictionary of datasets, each with its dataset's key as `split`."""
    for split, dataset in datasets.items():
        for record in dataset:
            yield {**record, "split": split}


def inspect_records(task: Any) -> Iterator[Record]:
    """Yield a record per Inspect sample: its metadata, and `id`, `input` and `expected`."""
    samples = getattr(task, "dataset", task)
    if isinstance(samples, str | Mapping) or not hasattr(samples, "__iter__"):
        raise SuiteError(
            f"Suite.from_inspect takes a task or a dataset of Inspect, not {type(task).__name__}"
        )
    for number, sample in enumerate(samples):
        if not hasattr(sample, "input"):
            raise SuiteError(f"sample {number} has no input; give a dataset of Inspect's samples")
        choices = getattr(sample, "choices", None)
        given = getattr(sample, "id", None)
        yield {
            **(getattr(sample, "metadata", None) or {}),
            "id": str(number if given is None else given),
            "input": _inspect_input(sample.input, choices),
            "expected": _inspect_target(sample.target),
        }


def _inspect_input(given: Any, choices: Sequence[str] | None) -> Any:
    """Return the input with its choices as lettered lines, because targets are letters."""
    listed = "".join(f"\n{chr(65 + place)}) {text}" for place, text in enumerate(choices or ()))
    if isinstance(given, str):
        return given + listed
    messages = [
        {"role": message.role, "content": message.text}
        for message in given
        if message.role in ("system", "user", "assistant")
    ]
    if len(messages) != len(given):
        raise SuiteError(
            "a sample has tool messages, which from_inspect cannot convert; "
            "use Suite.from_records instead"
        )
    if listed:
        messages[-1]["content"] += listed
    return messages


def _inspect_target(target: Any) -> Any:
    """Return the expected answer; a list of several targets means that any of them is right."""
    if isinstance(target, list | tuple):
        return target[0] if len(target) == 1 else list(target)
    return target


def to_input_items(messages: Sequence[Any], where: str) -> list[JsonObject]:
    """Return a conversation as input items: each tool call and each result becomes an item.

    Items that are already in the SDK's form are unchanged. `where` names the record in errors.
    """
    return [item for message in messages for item in _items(message, where)]


def _items(message: Any, where: str) -> Iterator[JsonObject]:
    if not isinstance(message, Mapping):
        raise SuiteError(
            f"the input of {where} contains a value of type {type(message).__name__}; an input "
            'is a text, or a list of messages such as {"role": "user", "content": "…"}'
        )
    role, calls = message.get("role"), message.get("tool_calls")
    if role == "tool":
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str):
            raise SuiteError(f"{where} has a tool message without the `tool_call_id` of its call")
        output = message.get("content") or ""
        yield {"type": "function_call_output", "call_id": call_id, "output": output}
    elif role == "assistant" and calls:
        if message.get("content"):
            yield {"role": "assistant", "content": message["content"]}
        for call in calls:
            yield _call(call, where)
    elif "tool_calls" in message or "tool_call_id" in message:
        kept = {name: value for name, value in message.items() if name in ("role", "content")}
        yield kept
    else:
        yield dict(message)


def _call(call: Any, where: str) -> JsonObject:
    function: Any = call.get("function") if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not isinstance(call.get("id"), str):
        raise SuiteError(
            f"{where} has a tool call without an id or a function name; write it as "
            '{"id": "…", "function": {"name": "…", "arguments": "{…}"}}'
        )
    arguments = function.get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": call["id"], "name": name, "arguments": text}
