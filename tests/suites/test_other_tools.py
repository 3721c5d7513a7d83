"""The cases of other evaluation tools."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparring.contracts.cases import Split
from sparring.contracts.errors import SuiteError
from sparring.suites import Suite
from sparring.suites.other_tools import inspect_records, json_records, records_by_split


@dataclass
class Message:
    role: str
    text: str


@dataclass
class Sample:
    """The fields of Inspect's samples that are read."""

    input: Any
    target: Any = ""
    id: Any = None
    choices: list[str] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class Task:
    dataset: list[Sample]


def test_an_array_of_objects_is_a_suite(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    rows = [{"input": "a", "split": "test"}, {"input": "b", "split": "dev"}]
    path.write_text(json.dumps(rows), encoding="utf-8-sig")
    assert Suite.from_json(path, minimum_cases=1).size(Split.HELD_OUT) == 1


@pytest.mark.parametrize(
    ("content", "problem"), [("{}", "contains dict, not an array"), ("[1", "is not JSON")]
)
def test_a_file_without_an_array_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "cases.json"
    path.write_text(content)
    with pytest.raises(SuiteError, match=problem):
        json_records(path)
    with pytest.raises(SuiteError, match="cannot be read"):
        json_records(tmp_path / "missing.json")


def test_the_keys_of_a_dictionary_of_datasets_name_the_splits() -> None:
    datasets = {"train": [{"input": "a"}], "test": [{"input": "b"}, {"input": "c"}]}
    assert [each["split"] for each in records_by_split(datasets)] == ["train", "test", "test"]
    suite = Suite.from_dataset(datasets, minimum_cases=1)
    assert (suite.size(Split.TRAINING), suite.size(Split.HELD_OUT)) == (1, 2)


def test_samples_of_inspect_become_cases_with_their_targets_and_metadata() -> None:
    task = Task(
        [
            Sample("1 + 1?", "2", id="sum", metadata={"level": 1}),
            Sample([Message("system", "Be brief."), Message("user", "Hi?")], ["hi", "hello"]),
            Sample("Which?", "B", choices=["cat", "dog"]),
        ]
    )
    first, second, third = inspect_records(task)
    assert first == {"level": 1, "id": "sum", "input": "1 + 1?", "expected": "2"}
    assert second["input"][1] == {"role": "user", "content": "Hi?"}
    assert (second["expected"], second["id"]) == (["hi", "hello"], "1")
    assert third["input"] == "Which?\nA) cat\nB) dog"
    assert len(Suite.from_inspect(task, minimum_cases=1)) == 3


def test_the_id_0_of_inspect_is_an_id() -> None:
    shuffled = [Sample("a", "A", id=2), Sample("b", "B", id=0), Sample("c", "C", id=1)]
    assert [each["id"] for each in inspect_records(shuffled)] == ["2", "0", "1"]


def test_what_is_no_task_of_inspect_is_refused() -> None:
    with pytest.raises(SuiteError, match="takes a task or a dataset"):
        list(inspect_records("mmlu"))
    with pytest.raises(SuiteError, match="sample 0 has no input"):
        list(inspect_records([object()]))
    with pytest.raises(SuiteError, match="tool messages"):
        list(inspect_records([Sample([Message("tool", "2")])]))
