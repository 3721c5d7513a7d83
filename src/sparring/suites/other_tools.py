"""Reads cases from JSON arrays, dataset dictionaries and Inspect tasks as records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparring.contracts.errors import SuiteError
from sparring.suites.records import Record


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
