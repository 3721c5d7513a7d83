import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.cases import Split
from sparring.contracts.errors import SplitTooSmall, SuiteError
from sparring.suites import Suite


def records(count: int, start: int = 0) -> list[dict[str, object]]:
    return [{"input": f"question {n}", "expected": n} for n in range(start, start + count)]


def sides(suite: Suite) -> dict[str, Split]:
    return {str(case.input): split for split in Split for case in suite.cases(split)}


def suite_of(rows, **options) -> Suite:
    return Suite.from_records(rows, minimum_cases=0, **options)


@given(st.lists(st.text(min_size=1), min_size=1, unique=True), st.lists(st.text(min_size=1)))
def test_adding_cases_never_moves_one_across(before, added):
    small = sides(suite_of([{"input": text} for text in before]))
    large = sides(suite_of([{"input": text} for text in [*added, *before]]))
    assert all(large[text] == side for text, side in small.items())


def test_every_case_is_on_one_side_and_the_shares_are_about_right():
    suite = suite_of(records(5000))
    sizes = {split: suite.size(split) for split in Split}
    assert sum(sizes.values()) == 5000
    assert abs(sizes[Split.TRAINING] - 4000) < 150
    assert abs(sizes[Split.HELD_OUT] - 500) < 100


def test_equal_inputs_stay_together_and_keep_ids_of_their_own():
    rows = [{"input": "same", "expected": n} for n in range(3)]
    suite = suite_of(rows)
    cases = [case for split in Split for case in suite.cases(split)]
    assert len({case.split for case in cases}) == 1
    assert len({case.id for case in cases}) == 3


def test_an_explicit_split_is_followed():
    suite = suite_of([{"input": "a", "split": "test"}, {"input": "b", "split": "train"}])
    assert sides(suite) == {"a": Split.HELD_OUT, "b": Split.TRAINING}


def test_an_unknown_split_is_refused_with_the_names():
    with pytest.raises(SuiteError, match="training, validation or held-out"):
        suite_of([{"input": "a", "split": "dunno"}])


def test_a_split_too_small_to_say_anything_is_refused_with_the_number_needed():
    suite = Suite.from_records(records(40))
    with pytest.raises(SplitTooSmall, match="about 180 more cases are needed"):
        list(suite.cases(Split.VALIDATION))


def test_columns_may_be_names_or_functions():
    suite = suite_of(
        [{"q": 3, "a": 4, "m": ["exact"]}],
        input=lambda row: f"What is {row['q']}?",
        expected="a",
        id="q",
        measures="m",
    )
    case = next(case for split in Split for case in suite.cases(split))
    assert (case.id, case.input, case.expected, case.measures) == ("3", "What is 3?", 4, ("exact",))


def test_a_missing_column_is_named_with_those_there_are():
    with pytest.raises(SuiteError, match=r"no 'input', only question.*input='question'"):
        suite_of([{"question": "x"}])


def test_an_explicit_id_must_not_repeat():
    with pytest.raises(SuiteError, match="ids must differ"):
        suite_of([{"id": 1, "input": "a"}, {"id": 1, "input": "b"}], id="id")


def test_jsonl_csv_stream_and_dataset_give_the_same_cases(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{"input": f"q, {n}\nä", "expected": str(n)} for n in range(50)]
    jsonl = tmp_path / "cases.jsonl"
    jsonl.write_text("\n\n".join(json.dumps(row) for row in rows))
    csv = tmp_path / "cases.csv"
    csv.write_text("input,expected\n" + "".join(f'"{r["input"]}",{r["expected"]}\n' for r in rows))
    loaded = [
        Suite.from_records(rows, minimum_cases=0),
        Suite.from_records((row for row in rows), minimum_cases=0),
        Suite.from_jsonl(jsonl, minimum_cases=0),
        Suite.from_csv(csv, minimum_cases=0),
        Suite.from_dataset(datasets.Dataset.from_list(rows), minimum_cases=0),
        Suite.from_dataset(
            datasets.IterableDataset.from_generator(lambda: iter(rows)), minimum_cases=0
        ),
    ]
    seen = [
        [(case.id, case.input, case.expected) for split in Split for case in suite.cases(split)]
        for suite in loaded
    ]
    assert all(each == seen[0] for each in seen)
    assert len({suite.digest for suite in loaded}) == 1


def test_a_broken_line_is_named_by_file_and_line(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text('{"input": "a"}\n\nnot json\n')
    with pytest.raises(SuiteError, match=r"cases\.jsonl:3 is not JSON"):
        Suite.from_jsonl(path)


def test_a_misspelt_column_for_what_is_expected_is_refused():
    with pytest.raises(SuiteError, match="no 'anwser'"):
        suite_of([{"input": "a", "answer": "b"}], expected="anwser")
    assert suite_of([{"input": "a"}]) is not None


def test_unknown_shares_are_refused_with_the_splits():
    with pytest.raises(SuiteError, match="training, validation, held-out"):
        suite_of([{"input": "a"}], shares={"train": 1.0})


def test_an_unknown_option_is_refused_with_those_there_are(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text('{"input": "a"}\n')
    with pytest.raises(SuiteError, match="the options are"):
        Suite.from_jsonl(path, question="input")


def test_the_digest_changes_with_any_record():
    assert suite_of(records(10)).digest != suite_of(records(10, start=1)).digest


def test_a_streamed_suite_is_never_held_whole():
    """100,000 cases of about 1 kB would be 100 MB; what stays in memory is a small part."""
    filler = "x" * 1000

    def stream():
        for number in range(100_000):
            yield {"input": f"{number} {filler}"}

    tracemalloc.start()
    suite = suite_of(stream())
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(suite) == 100_000
    assert kept < 10_000_000
