"""A suite: cases with a stable split into training, validation and held-out."""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.contracts.cases import Case, Split
from sparring.contracts.errors import SplitTooSmall, SuiteError
from sparring.contracts.rollouts import clean_text
from sparring.suites.records import JsonlRecords, ListRecords, Records, csv_rows, spool
from sparring.suites.splitting import Splitter, input_digest, question_digest

Column = str | Callable[[Mapping[str, Any]], Any]
_SIDES = tuple(Split)
MINIMUM_CASES = 20


@dataclass(frozen=True, slots=True)
class Columns:
    """Where in a record each part of a case is: a column name, or a function of the record."""

    input: Column = "input"
    expected: Column | None = None
    id: Column | None = None
    split: Column | None = None
    measures: Column | None = None


class Suite:
    """Cases behind an index: a byte and a digest a case in memory, the rest where it lies.

    Iterating a split reads one case at a time, so a million cases cost no more than one.
    """

    def __init__(
        self,
        records: Records,
        *,
        columns: Columns,
        splitter: Splitter,
        minimum_cases: int = MINIMUM_CASES,
    ) -> None:
        self._records = records
        self._columns = columns
        self.splitter = splitter
        self.minimum = minimum_cases
        self._sides = array("B")
        self._repeats: dict[int, int] = {}
        self.names_splits = False  # by a field of the records
        self.digest = self._index()

    # ------------------------------------------------------------------ loading

    @classmethod
    def from_records(
        cls,
        records: Iterable[Mapping[str, Any]],
        *,
        input: Column = "input",
        expected: Column | None = None,
        id: Column | None = None,
        split: Column | None = None,
        measures: Column | None = None,
        shares: Mapping[str, float] | None = None,
        minimum_cases: int = MINIMUM_CASES,
    ) -> Suite:
        """A suite from mappings. A list stays in memory; any other iterable is written to an
        indexed temporary file first, one record at a time."""
        source: Records = (
            ListRecords(list(records)) if isinstance(records, Sequence) else spool(records)
        )
        columns = Columns(input, expected, id, split, measures)
        return cls(
            source, columns=columns, splitter=Splitter.of(shares), minimum_cases=minimum_cases
        )

    @classmethod
    def from_jsonl(cls, path: str | Path, **options: Any) -> Suite:
        """A suite from a JSONL file, read in place. Options as for `from_records`."""
        return cls._over(JsonlRecords(Path(path)), options)

    @classmethod
    def from_csv(cls, path: str | Path, **options: Any) -> Suite:
        """A suite from a CSV file with a header. Options as for `from_records`."""
        return cls._over(spool(csv_rows(Path(path))), options)

    @classmethod
    def from_dataset(cls, dataset: Any, **options: Any) -> Suite:
        """A suite from a Hugging Face `Dataset` (read in place) or `IterableDataset`."""
        if isinstance(dataset, Mapping):
            raise SuiteError(
                f"this is a dictionary of datasets ({', '.join(map(str, dataset))}); pass one of "
                "them, or give each record a `split` field"
            )
        if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
            return cls._over(dataset, options)
        return cls._over(spool(dataset), options)

    @classmethod
    def _over(cls, records: Records, options: dict[str, Any]) -> Suite:
        shares = options.pop("shares", None)
        minimum = options.pop("minimum_cases", MINIMUM_CASES)
        try:
            columns = Columns(**options)
        except TypeError as error:
            wrong = str(error).rpartition("argument ")[2]
            raise SuiteError(
                f"a suite has no option {wrong}; the options are input, expected, id, split, "
                "measures, shares and minimum_cases"
            ) from error
        return cls(records, columns=columns, splitter=Splitter.of(shares), minimum_cases=minimum)

    # ------------------------------------------------------------------ reading

    def __len__(self) -> int:
        return len(self._sides)

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.size(side)} {side.value}" for side in Split)
        return f"Suite({len(self)} cases: {counts})"

    def size(self, split: Split) -> int:
        return self._sides.count(_SIDES.index(split))

    def cases(self, split: Split, limit: int | None = None) -> Iterator[Case]:
        """The cases of one split, in the order of the records, one at a time."""
        self.require(split)
        wanted = _SIDES.index(split)
        given = 0
        for number, side in enumerate(self._sides):
            if side == wanted:
                if limit is not None and given >= limit:
                    return
                given += 1
                yield self._case(number)

    def all_but(self, split: Split) -> Iterator[Case]:
        """The cases of the other splits, in the order of the records."""
        left_out = _SIDES.index(split)
        for number, side in enumerate(self._sides):
            if side != left_out:
                yield self._case(number)

    def case_ids(self, split: Split) -> list[str]:
        """The ids of one split, in the order of the records."""
        return [case.id for case in self.cases(split)]

    def question_digests(self, split: Split) -> frozenset[str]:
        """What the cases of one split ask, in a form that tells two apart and shows none."""
        wanted = _SIDES.index(split)
        return frozenset(
            question_digest(self._case(number).input)
            for number, side in enumerate(self._sides)
            if side == wanted
        )

    def finder(self, split: Split) -> Callable[[str], Case]:
        """Looks cases of one split up by id; a record is read when it is asked for."""
        wanted = _SIDES.index(split)
        places = {
            self._case(number).id: number
            for number, side in enumerate(self._sides)
            if side == wanted
        }
        return lambda case_id: self._case(places[case_id])

    def require(self, split: Split) -> None:
        """Refuse a split with too few cases to say anything, with the number needed."""
        have = self.size(split)
        if have >= self.minimum:
            return
        share = self.splitter.share(split)
        way_out = "give records a `split` field, change `shares`"
        if self.names_splits:
            way_out = f"give {self.minimum - have} more records the `split` {split.value}"
        elif share > 0:
            more = math.ceil((self.minimum - have) / share)
            way_out = f"about {more} more cases are needed at a share of {share:.0%}, or {way_out}"
        tells = f", which tells a pass rate to ±{98 / math.sqrt(have):.0f} points" if have else ""
        raise SplitTooSmall(
            f"the {split.value} split has {have} of {len(self)} cases{tells}; {self.minimum} are "
            f"the least: {way_out}, or lower `minimum_cases` if a rough figure will do"
        )

    # ------------------------------------------------------------------ inside

    def _index(self) -> str:
        """One pass over all records: sides, repeated ids, and the digest of the whole."""
        if not len(self._records):
            raise SuiteError("the suite has no cases; check the file or the list it comes from")
        digest = hashlib.sha256()
        seen: dict[str, int] = {}
        for number in range(len(self._records)):
            record = self._records[number]
            case_id = self._id(record, number)
            expected = self._expected(record, number)
            seen[case_id] = seen.get(case_id, 0) + 1
            if seen[case_id] > 1:
                if self._columns.id is not None:
                    raise SuiteError(
                        f"record {number} has the id {case_id!r}, which an earlier record has "
                        "too; ids must differ (leave the id out to use the input's digest)"
                    )
                self._repeats[number] = seen[case_id]
            side = self._side(record, case_id, number)
            self._sides.append(_SIDES.index(side))
            digest.update(_canonical([case_id, side, self._input(record, number), expected]))
        return digest.hexdigest()

    def _case(self, number: int) -> Case:
        record = self._records[number]
        columns = self._columns
        case_id = self._id(record, number)
        if number in self._repeats:
            case_id = f"{case_id}~{self._repeats[number]}"
        return Case(
            id=case_id,
            input=self._input(record, number),
            expected=self._expected(record, number),
            split=_SIDES[self._sides[number]],
            measures=_names(_take(record, columns.measures, number), number),
            fields=dict(record),
        )

    def _input(self, record: Mapping[str, Any], number: int) -> str | list[dict[str, Any]]:
        value = _take(record, self._columns.input, number)
        if not isinstance(value, str | list) or not value:
            raise SuiteError(
                f"the input of record {number} is {value!r}; it must be a text that is not "
                "empty, or a list of input items"
            )
        return value

    def _expected(self, record: Mapping[str, Any], number: int) -> Any:
        """Optional as long as nobody named its column; a misspelt name must not pass."""
        if self._columns.expected is None:
            return record.get("expected")
        return _take(record, self._columns.expected, number)

    def _id(self, record: Mapping[str, Any], number: int) -> str:
        if self._columns.id is None:
            return input_digest(self._input(record, number))
        return clean_text(str(_take(record, self._columns.id, number)))

    def _side(self, record: Mapping[str, Any], case_id: str, number: int) -> Split:
        column = self._columns.split
        if column is None and "split" not in record:
            return self.splitter.side(case_id)
        self.names_splits = True
        value = _take(record, column or "split", number)
        try:
            return _SPELLINGS[str(value).lower()]
        except KeyError:
            raise SuiteError(
                f"record {number} has the split {value!r}; use training, validation or held-out"
            ) from None


_SPELLINGS = {
    "training": Split.TRAINING,
    "train": Split.TRAINING,
    "validation": Split.VALIDATION,
    "valid": Split.VALIDATION,
    "val": Split.VALIDATION,
    "dev": Split.VALIDATION,
    "held-out": Split.HELD_OUT,
    "held_out": Split.HELD_OUT,
    "heldout": Split.HELD_OUT,
    "test": Split.HELD_OUT,
}


def _take(record: Mapping[str, Any], column: Column | None, number: int) -> Any:
    if column is None:
        return None
    if callable(column):
        return column(record)
    if column not in record:
        raise SuiteError(
            f"record {number} has no {column!r}, only {', '.join(map(str, record)) or 'nothing'}. "
            "Name the columns, as in Suite.from_…(…, input='question', expected='answer')"
        )
    return record[column]


def _names(value: Any, number: int) -> tuple[str, ...]:
    if value is None:
        return ()
    names = [value] if isinstance(value, str) else list(value)
    if not all(isinstance(name, str) for name in names):
        raise SuiteError(f"the measures of record {number} must be names, not {value!r}")
    return tuple(names)


def _canonical(case: list[Any]) -> bytes:
    return json.dumps(case, sort_keys=True, default=repr).encode("ascii") + b"\n"
