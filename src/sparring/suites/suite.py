"""A suite: cases, split by their ids into training, validation and held-out."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict, Unpack

from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import SplitTooSmall, SuiteError
from sparring.contracts.rollouts import clean_text
from sparring.contracts.specs import Table
from sparring.suites.promptfoo import promptfoo_records
from sparring.suites.records import (
    JsonlRecords,
    ListRecords,
    Record,
    Records,
    csv_rows,
    inspect_records,
    is_json,
    json_records,
    records_by_split,
    spool,
    to_input_items,
)
from sparring.suites.splitting import (
    SPLIT_NAMES,
    ConflictDetector,
    Conflicts,
    CopyDetector,
    Splitter,
    input_digest,
    json_line,
    question_digest,
)

Column = str | Callable[[Record], Any]
_SPLITS = tuple(Split)
# A small suite fills validation first, then training, then held-out.
_NEEDED_SPLITS = {Split.VALIDATION: 1, Split.TRAINING: 2, Split.HELD_OUT: 3}
MINIMUM_CASES = 20


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a record holds the parts of a case: column names, or functions of the record."""

    input: Column = "input"
    expected: Column | None = None
    id: Column | None = None
    split: Column | None = None
    measures: Column | None = None


class SuiteOptions(TypedDict, total=False):
    """Options of the loaders: where a record holds the parts of a case, and how cases are split."""

    input: Column
    expected: Column | None
    id: Column | None
    split: Column | None
    measures: Column | None
    shares: Mapping[str, float] | None
    minimum_cases: int


class Suite:
    """Cases, split by their ids.

    Records in files are read on demand, one at a time. Lists, JSON files and promptfoo
    configurations stay in memory. The index takes one byte per case.
    """

    def __init__(
        self,
        records: Records,
        *,
        columns: Columns,
        splitter: Splitter | None = None,
        minimum_cases: int = MINIMUM_CASES,
    ) -> None:
        self._records = records
        self._columns = columns
        self.minimum = minimum_cases
        self.splitter = splitter or self._default_splitter()
        self._splits = array("B")
        self._repeats: dict[int, int] = {}
        self.names_splits = False  # whether a record has a split field
        self.conflicts = Conflicts()
        self.digest = self._index()

    # ------------------------------------------------------------------ loading

    @classmethod
    def from_records(
        cls,
        records: Iterable[Record],
        *,
        input: Column = "input",
        expected: Column | None = None,
        id: Column | None = None,
        split: Column | None = None,
        measures: Column | None = None,
        shares: Mapping[str, float] | None = None,
        minimum_cases: int = MINIMUM_CASES,
    ) -> Suite:
        """Return a suite from mappings. A sequence stays in memory; any other iterable is first
        written to an indexed temporary file, one record at a time."""
        source: Records = (
            ListRecords(list(records)) if isinstance(records, Sequence) else spool(records)
        )
        columns = Columns(input, expected, id, split, measures)
        splitter = Splitter.of(shares) if shares else None
        return cls(source, columns=columns, splitter=splitter, minimum_cases=minimum_cases)

    @classmethod
    def from_jsonl(cls, path: str | Path, **options: Unpack[SuiteOptions]) -> Suite:
        """Return a suite from a JSONL file, read in place. Options as for `from_records`."""
        return cls._create(JsonlRecords(Path(path)), options)

    @classmethod
    def from_csv(cls, path: str | Path, **options: Unpack[SuiteOptions]) -> Suite:
        """Return a suite from a CSV file with a header. Options as for `from_records`."""
        return cls._create(spool(csv_rows(Path(path))), options)

    @classmethod
    def from_json(cls, path: str | Path, **options: Unpack[SuiteOptions]) -> Suite:
        """Return a suite from a JSON file with an array of objects. Options as for
        `from_records`."""
        return cls._create(ListRecords(json_records(Path(path))), options)

    @classmethod
    def from_inspect(cls, task: Any, **options: Unpack[SuiteOptions]) -> Suite:
        """Return a suite from a task or dataset of Inspect, without its solvers and scorers.

        Targets become `expected`, and metadata become fields. Options as for `from_records`.
        """
        records = spool(inspect_records(task))
        return cls._create(records, {"expected": "expected", "id": "id", **options})

    @classmethod
    def from_promptfoo(
        cls,
        path: str | Path,
        *,
        ignore_assertions: Sequence[str] = (),
        **options: Unpack[SuiteOptions],
    ) -> Suite:
        """Return a suite from a promptfoo configuration or tests file, without its providers.

        The prompt with its variables filled in becomes the input; with several prompts, `input`
        must name a variable. The measure `assertions()` checks the tests' assertions, except the
        types in `ignore_assertions`. Other options as for `from_records`.
        """
        records = list(promptfoo_records(Path(path), ignore_assertions=ignore_assertions))
        return cls._create(ListRecords(records), options)

    @classmethod
    def from_dataset(cls, dataset: Any, **options: Unpack[SuiteOptions]) -> Suite:
        """Return a suite from a Hugging Face `Dataset` (read in place), `IterableDataset`, or
        `DatasetDict`, whose keys name the splits. Options as for `from_records`."""
        if isinstance(dataset, Mapping):
            return cls._create(spool(records_by_split(dataset)), options)
        if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
            return cls._create(dataset, options)
        return cls._create(spool(dataset), options)

    @classmethod
    def _create(cls, records: Records, options: SuiteOptions) -> Suite:
        if unknown := sorted(options.keys() - SuiteOptions.__annotations__.keys()):
            raise SuiteError(
                f"a suite has no option {unknown[0]!r}; the options are "
                f"{', '.join(SuiteOptions.__annotations__)}"
            )
        columns = Columns(
            input=options.get("input", "input"),
            expected=options.get("expected"),
            id=options.get("id"),
            split=options.get("split"),
            measures=options.get("measures"),
        )
        shares = options.get("shares")
        return cls(
            records,
            columns=columns,
            splitter=Splitter.of(shares) if shares else None,
            minimum_cases=options.get("minimum_cases", MINIMUM_CASES),
        )

    # ------------------------------------------------------------------ reading

    def __len__(self) -> int:
        return len(self._splits)

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.size(split)} {split.value}" for split in Split)
        return f"Suite({len(self)} cases: {counts})"

    def size(self, split: Split) -> int:
        """Return the number of cases in a split."""
        return self._splits.count(_SPLITS.index(split))

    def cases(self, split: Split, limit: int | None = None) -> Iterator[Case]:
        """Yield up to `limit` cases of one split, in the order of the records."""
        self.require(split)
        for number in islice(self._numbers_of(split), limit):
            yield self._case(number)

    def first_split(self) -> Split:
        """Return training, or validation if training has too few cases."""
        is_enough = self.size(Split.TRAINING) >= self.minimum
        return Split.TRAINING if is_enough else Split.VALIDATION

    def spread(self, wanted: int) -> list[Case]:
        """Return up to `wanted` training cases, evenly spaced, because files are often sorted."""
        self.require(Split.TRAINING)
        numbers = list(self._numbers_of(Split.TRAINING))
        count = min(wanted, len(numbers))
        step = (len(numbers) - 1) / max(1, count - 1)
        return [self._case(numbers[round(place * step)]) for place in range(count)]

    def all_but(self, split: Split) -> Iterator[Case]:
        """Yield the cases of all splits but one, in the order of the records."""
        excluded = _SPLITS.index(split)
        for number, index in enumerate(self._splits):
            if index != excluded:
                yield self._case(number)

    def case_ids(self, split: Split) -> list[str]:
        """Return the ids of the cases of one split, in the order of the records."""
        return [case.id for case in self.cases(split)]

    def question_digests(self, split: Split) -> frozenset[str]:
        """Return the `question_digest` of each case of one split."""
        numbers = self._numbers_of(split)
        return frozenset(question_digest(self._case(number).input) for number in numbers)

    def finder(self, split: Split) -> Callable[[str], Case]:
        """Return a function that reads a case of one split by id; KeyError if there is none."""
        numbers = {self._case(number).id: number for number in self._numbers_of(split)}
        return lambda case_id: self._case(numbers[case_id])

    def _numbers_of(self, split: Split) -> Iterator[int]:
        wanted = _SPLITS.index(split)
        return (number for number, index in enumerate(self._splits) if index == wanted)

    def cases_to_add(self, split: Split) -> int:
        """Return how many cases a suite with adapted shares lacks to fill a split."""
        return max(0, _NEEDED_SPLITS[split] * self.minimum - len(self))

    def require(self, split: Split) -> None:
        """Raise SplitTooSmall if a split has fewer than `minimum` cases."""
        size = self.size(split)
        if size >= self.minimum:
            return
        if self.distinct == 1 < len(self):
            raise SplitTooSmall(
                f"all {len(self)} records have the same input, and records with equal inputs stay "
                "in one split: give the cases different inputs, or name the id column with id=…"
            )
        share = self.splitter.share(split)
        remedy = "give records a `split` field, change `shares`"
        if self.names_splits:
            remedy = f"give {self.minimum - size} more records the `split` {split.value}"
        elif self.splitter.is_adapted:
            remedy = f"add {self.cases_to_add(split) or self.minimum - size} cases"
            to_prove = self.cases_to_add(Split.HELD_OUT)
            if split is not Split.HELD_OUT and to_prove > self.cases_to_add(split) > 0:
                remedy += f" ({to_prove} to prove, too)"
            if self.distinct < len(self):
                remedy += f", with different inputs: {self.distinct} of {len(self)} differ"
        elif share > 0:
            more = math.ceil((self.minimum - size) / share)
            remedy = f"add about {more} cases (at a share of {share:.0%}), {remedy}"
        training = self.size(Split.TRAINING)
        if split is Split.VALIDATION and training >= self.minimum:
            remedy += (
                f", evaluate on the {training} training cases with split='training' (unless the "
                "model was trained on them)"
            )
        points = f"{98 / math.sqrt(size):.0f}" if size else ""
        margin = f" ({size} cases measure a pass rate to within ±{points} points)" if size else ""
        raise SplitTooSmall(
            f"the {split.value} split has {size} of {len(self)} cases, but needs at least "
            f"{self.minimum}{margin}: {remedy}, or lower `minimum_cases` if a rough result is "
            "enough"
        )

    # ------------------------------------------------------------------ indexing

    def _index(self) -> str:
        """Read all records, assign each to a split, number repeated ids, and return the suite's
        digest. Raises SuiteError for an invalid record or a copy in another split."""
        if not len(self._records):
            raise SuiteError("the suite has no cases; check the file or the list it comes from")
        digest = hashlib.sha256()
        occurrences: dict[str, int] = {}
        conflicts = ConflictDetector()
        detector = CopyDetector(
            name
            for name in (self._columns.id, self._columns.split, "split")
            if isinstance(name, str)
        )
        for number in range(len(self._records)):
            record = self._records[number]
            case_id = self._id(record, number)
            expected = self._expected(record, number)
            occurrences[case_id] = occurrences.get(case_id, 0) + 1
            if occurrences[case_id] > 1:
                if self._columns.id is not None:
                    raise SuiteError(
                        f"record {number} has the same id as an earlier record: {case_id!r}; ids "
                        "must differ (omit the id column to use the input's digest)"
                    )
                self._repeats[number] = occurrences[case_id]
            split = self._split_of(record, case_id, number)
            self._splits.append(_SPLITS.index(split))
            case_input = self._input(record, number)
            if isinstance(case_input, list):
                to_input_items(case_input, f"record {number}")  # fails here, not in a rollout
            _measure_names(_column_value(record, self._columns.measures, number), number)
            digest.update(json_line([case_id, split, case_input, expected]))
            if others := self._other_fields(record):
                digest.update(json_line(others))
            others.pop("id", None)
            conflicts.add(self._case_id(case_id, number), case_input, others, expected)
            detector.add(record, case_input, expected, split)
        detector.refuse_copies()
        self.distinct = len(occurrences)
        self.conflicts = conflicts.found()
        return digest.hexdigest()

    def _other_fields(self, record: Record) -> Table:
        """Return the fields that measures may read besides the columns. Only JSON values count: the
        text of another object may differ between processes."""
        columns = self._columns
        known: set[object] = {columns.input, columns.id, *getattr(self._records, "inexact", ())}
        known |= {columns.expected or "expected", columns.split or "split"}
        return {
            str(name): value
            for name, value in record.items()
            if name not in known and is_json(value)
        }

    def _default_splitter(self) -> Splitter:
        """Return a splitter with the default shares, or with adapted ones for a small suite."""
        count = len(self._records)
        if self._columns.split is not None or count >= 20 * self.minimum:
            return Splitter.of(None)
        records = [self._records[number] for number in range(count)]
        if any("split" in record for record in records):
            return Splitter.of(None)
        case_ids = [self._id(record, number) for number, record in enumerate(records)]
        return Splitter.adapted(case_ids, self.minimum)

    def _case(self, number: int) -> Case:
        record = self._records[number]
        columns = self._columns
        case_id = self._case_id(self._id(record, number), number)
        case_input = self._input(record, number)
        if isinstance(case_input, list):
            case_input = to_input_items(case_input, f"record {number}")
        return Case(
            id=case_id,
            input=case_input,
            expected=self._expected(record, number),
            split=_SPLITS[self._splits[number]],
            measures=_measure_names(_column_value(record, columns.measures, number), number),
            fields=dict(record),
        )

    def _case_id(self, own: str, number: int) -> str:
        repeat = self._repeats.get(number)
        return own if repeat is None else f"{own}~{repeat}"

    def _input(self, record: Record, number: int) -> str | list[dict[str, Any]]:
        value = _column_value(record, self._columns.input, number)
        if not isinstance(value, str | list) or not value:
            raise SuiteError(
                f"the input of record {number} is {value!r}; it must be a non-empty string or list "
                "of input items"
            )
        return value

    def _expected(self, record: Record, number: int) -> Any:
        """Return the expected answer. It is optional unless its column is named, because a missing
        named column is probably a typo."""
        if self._columns.expected is None:
            return record.get("expected")
        return _column_value(record, self._columns.expected, number)

    def _id(self, record: Record, number: int) -> str:
        if self._columns.id is None:
            return input_digest(self._input(record, number))
        return clean_text(str(_column_value(record, self._columns.id, number)))

    def _split_of(self, record: Record, case_id: str, number: int) -> Split:
        column = self._columns.split
        if column is None and "split" not in record:
            return self.splitter.side(case_id)
        self.names_splits = True
        value = _column_value(record, column or "split", number)
        try:
            return SPLIT_NAMES[str(value).lower()]
        except KeyError:
            raise SuiteError(
                f"record {number} has the split {value!r}; use training, validation or held-out"
            ) from None


def _column_value(record: Record, column: Column | None, number: int) -> Any:
    if column is None:
        return None
    if callable(column):
        return column(record)
    if column not in record:
        fields = ", ".join(map(str, record)) or "no fields"
        raise SuiteError(
            f"record {number} has no {column!r}; it has {fields}. "
            "Name the columns, as in Suite.from_…(…, input='question', expected='answer')"
        )
    return record[column]


def _measure_names(value: Any, number: int) -> tuple[str, ...]:
    if value is None or value == "":  # an empty cell of a table
        return ()
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise SuiteError(f"the measures of record {number} must be names, not {value!r}")
    return tuple(names)
