"""Records are read one at a time from where they are; what is wrong with one is named."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.contracts.cases import Split
from sparring.contracts.errors import SuiteError
from sparring.suites import Suite
from sparring.suites.records import (
    JsonlRecords,
    ListRecords,
    csv_rows,
    inspect_records,
    json_records,
    records_by_split,
    spool,
    to_input_items,
)

values = st.text() | st.integers() | st.lists(st.booleans(), max_size=3)
ROWS = [{"input": "plain"}, {"input": "ä\n\u2028", "expected": [1, None]}, {"input": "last"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def write(folder: Path, text: str | bytes, name: str = "cases.jsonl") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("between", ["\n", "\r\n", "\n\n   \n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_a_jsonl_file_is_read_in_any_order(tmp_path: Path, between: str, end: str) -> None:
    records = JsonlRecords(write(tmp_path, between.join(map(json.dumps, ROWS)) + end))
    assert len(records) == 3
    assert [records[number] for number in (2, 0, 1, 0)] == [ROWS[2], ROWS[0], ROWS[1], ROWS[0]]


def test_a_file_with_a_byte_order_mark_or_without_records_is_read(tmp_path: Path) -> None:
    assert JsonlRecords(write(tmp_path, b'\xef\xbb\xbf{"input": "a"}\n'))[0] == {"input": "a"}
    assert len(JsonlRecords(write(tmp_path, "\n\n"))) == 0


def test_threads_read_one_file_without_mixing_records(tmp_path: Path) -> None:
    rows = [{"input": f"{number} " + "x" * (number % 97)} for number in range(500)]
    records = JsonlRecords(write(tmp_path, "\n".join(map(json.dumps, rows))))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(records.__getitem__, range(500))) == rows


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "is not JSON (Expecting property name enclosed in double quotes); each line"),
        ('{"input": 1} {"input": 2}', "is not JSON (Extra data)"),
        ("[" * 100_000, "is not JSON ("),
        (b'{"input": "\xff"}', "is not JSON ("),
        ("[1]", "is list, not an object; each line must be like"),
        ("null", "is NoneType, not an object"),
    ],
)
def test_a_line_that_is_no_object_is_named_by_its_number(
    tmp_path: Path, line: str | bytes, problem: str
) -> None:
    spoilt = line.encode() if isinstance(line, str) else line
    path = write(tmp_path, b'{"input": "fine"}\n\n' + spoilt + b"\n")
    records = JsonlRecords(path)
    assert records[0] == {"input": "fine"}
    with pytest.raises(SuiteError) as refused:
        records[1]
    assert str(refused.value).startswith(f"{path}:3 {problem}")


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"none\.jsonl does not exist; give the path of a JSONL"):
        JsonlRecords(tmp_path / "none.jsonl")
    with pytest.raises(SuiteError, match=r"none\.csv does not exist; give the path of a CSV file"):
        list(csv_rows(tmp_path / "none.csv"))


def test_a_list_holds_mappings() -> None:
    wrong: Any = "text"
    records = ListRecords([{"input": "a"}, wrong])
    assert (len(records), records[0]) == (2, {"input": "a"})
    with pytest.raises(SuiteError, match="record 1 is str, not a mapping; give dictionaries"):
        records[1]


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.text(), values, max_size=3), max_size=5))
def test_a_stream_reads_like_the_list_of_its_records(rows: list[dict[str, Any]]) -> None:
    records = spool(iter(rows))
    assert [records[number] for number in range(len(records))] == rows


def test_a_stream_is_written_one_record_at_a_time_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    alive: list[int] = []

    class Row(dict[str, Any]):
        def __del__(self) -> None:
            alive.remove(self["input"])

    def stream() -> Iterator[Mapping[str, Any]]:
        for number in range(50):
            assert len(alive) <= 2
            alive.append(number)
            yield Row(input=number)

    records = spool(stream())
    assert list(tmp_path.iterdir()) == []
    assert records[49] == {"input": 49}


def test_a_value_that_json_cannot_express_is_kept_as_its_text() -> None:
    assert spool([{"input": "a", "where": Path("x")}])[0]["where"] == repr(Path("x"))


def test_the_rows_of_a_csv_file_are_known_by_its_header(tmp_path: Path) -> None:
    text = '\ufeffinput, expected\n"a, b",1\n\n"two\nlines",\nshort\n'
    assert list(csv_rows(write(tmp_path, text, "cases.csv"))) == [
        {"input": "a, b", "expected": "1"},
        {"input": "two\nlines", "expected": ""},
        {"input": "short", "expected": None},
    ]


def test_a_row_with_more_cells_than_columns_is_named_by_its_line(tmp_path: Path) -> None:
    rows = csv_rows(write(tmp_path, "input\nfine\na, b\n", "cases.csv"))
    assert next(rows) == {"input": "fine"}
    with pytest.raises(SuiteError, match=r"cases\.csv:3 has more cells .* quote cells"):
        next(rows)


def test_a_cell_that_is_too_long_is_named_by_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "input\nfine\n" + "x" * 200_000, "cases.csv")
    with pytest.raises(SuiteError, match=r"cases\.csv:3 cannot be read .* JSONL for long texts"):
        list(csv_rows(path))


def test_a_csv_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "input\ncafé\n".encode("latin-1"), "cases.csv")
    with pytest.raises(SuiteError, match=r"cases\.csv is not UTF-8.* save it as UTF-8"):
        list(csv_rows(path))


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


def test_an_object_that_is_no_inspect_task_is_refused() -> None:
    with pytest.raises(SuiteError, match="takes a task or a dataset"):
        list(inspect_records("mmlu"))
    with pytest.raises(SuiteError, match="sample 0 has no input"):
        list(inspect_records([object()]))
    with pytest.raises(SuiteError, match="tool messages"):
        list(inspect_records([Sample([Message("tool", "2")])]))


def test_calls_and_results_become_items_of_their_own() -> None:
    items = to_input_items(
        [
            {"role": "user", "content": "1 + 1?"},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
            {"role": "assistant", "content": "2", "tool_calls": None},
        ],
        "record 0",
    )
    assert items == [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"role": "assistant", "content": "2"},
    ]


def test_items_of_the_sdk_and_arguments_as_objects_are_accepted() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    call = {"id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}
    made = to_input_items([item, {"role": "assistant", "tool_calls": [call]}], "record 0")
    assert made[0] == item
    assert made[1]["arguments"] == '{"a": 1}'


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("hello", "the input of record 7 contains a value of type str"),
        ({"role": "tool", "content": "2"}, "without the `tool_call_id`"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "add"}}]}, "without an id"),
        ({"role": "assistant", "tool_calls": ["add"]}, "without an id or a function name"),
    ],
)
def test_a_message_that_cannot_be_read_is_refused_with_its_record(
    message: Any, problem: str
) -> None:
    with pytest.raises(SuiteError, match=problem):
        to_input_items([message], "record 7")


def test_a_suite_of_chat_histories_has_items_that_the_sdk_reads() -> None:
    history = [{"role": "assistant", "tool_calls": [CALL]}, {"role": "user", "content": "So?"}]
    suite = Suite.from_records([{"input": history, "split": "test"}], minimum_cases=1)
    (case,) = suite.cases(Split.HELD_OUT)
    assert [item.get("type") for item in case.input] == ["function_call", None]
