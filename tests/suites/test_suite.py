import itertools
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.cases import Split
from sparring.contracts.errors import SplitTooSmall, SuiteError
from sparring.suites import Suite
from sparring.suites.splitting import normal


def records(count: int, start: int = 0) -> list[dict[str, object]]:
    return [{"input": f"question {n}", "expected": n} for n in range(start, start + count)]


def sides(suite: Suite) -> dict[str, Split]:
    return {str(case.input): split for split in Split for case in suite.cases(split)}


def suite_of(rows, **options) -> Suite:
    return Suite.from_records(rows, minimum_cases=0, **options)


@given(st.lists(st.text(min_size=1), min_size=1, unique_by=normal), st.integers(1, 9))
def test_adding_cases_never_moves_one_across(texts, count):
    """Texts that differ only in spacing or capitals are copies, which are refused."""
    before, added = texts[:count], texts[count:]
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


def test_keys_that_are_not_all_strings_are_refused():
    with pytest.raises(SuiteError, match="make them strings"):
        suite_of([{"input": "a", "expected": {1: "one", "two": 2}}])


def test_an_explicit_split_is_followed():
    suite = suite_of([{"input": "a", "split": "test"}, {"input": "b", "split": "train"}])
    assert sides(suite) == {"a": Split.HELD_OUT, "b": Split.TRAINING}


def test_an_unknown_split_is_refused_with_the_names():
    with pytest.raises(SuiteError, match="training, validation or held-out"):
        suite_of([{"input": "a", "split": "dunno"}])


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(12, (0, 12, 0)), (20, (0, 20, 0)), (39, (0, 39, 0)), (40, (20, 20, 0)), (59, (39, 20, 0)),
     (60, (20, 20, 20)), (150, (110, 20, 20)), (1000, (800, 100, 100))],
)  # fmt: skip
def test_a_small_suite_fills_validation_then_training_then_held_out(count, sizes):
    suite = Suite.from_records(records(count))
    slack = 40 if count == 1000 else 0  # default shares go by digests
    for split, size in zip((Split.TRAINING, Split.VALIDATION, Split.HELD_OUT), sizes, strict=True):
        assert abs(suite.size(split) - size) <= slack


@pytest.mark.parametrize(
    ("count", "split", "more"),
    [(12, "validation", 8), (12, "training", 28), (45, "held-out", 15)],
)
def test_a_suite_too_small_for_a_split_says_how_many_cases_it_needs(count, split, more):
    with pytest.raises(SplitTooSmall, match=f"{split} split has .* add {more} cases"):
        Suite.from_records(records(count)).require(Split(split))


def test_a_tiny_suite_says_how_many_cases_it_needs_to_train_and_to_prove():
    with pytest.raises(SplitTooSmall, match=r"add 38 cases \(58 to prove, too\)"):
        Suite.from_records(records(2)).require(Split.TRAINING)


def test_a_suite_of_one_input_says_so_and_not_to_add_cases():
    suite = Suite.from_records([{"input": "the same", "n": number} for number in range(80)])
    with pytest.raises(SplitTooSmall, match=r"^all 80 records have the same input, and"):
        suite.require(Split.TRAINING)
    named = [{"input": "Play.", "seed": number, "name": number} for number in range(80)]
    Suite.from_records(named, id="name").require(Split.TRAINING)


def test_a_suite_of_few_inputs_says_how_many_differ():
    suite = Suite.from_records([{"input": f"question {n % 2}", "n": n} for n in range(80)])
    small = next(split for split in Split if suite.size(split) < 20)
    with pytest.raises(SplitTooSmall, match="with different inputs: 2 of 80 differ"):
        suite.require(small)


def test_cases_that_differ_only_in_their_expected_outcome_are_found():
    requests = [{"input": f"Question {n % 40}", "expected": n // 40, "id": n} for n in range(80)]
    requests[1]["input"] = "question  1"
    conflicts = Suite.from_records(requests, id="id").conflicts
    assert (conflicts.cases, conflicts.inputs, conflicts.example) == (80, 40, "0 and 40")
    assert str(conflicts).startswith(
        "80 cases contradict each other: 40 inputs have different expected outcomes, first the "
        "cases 0 and 40; "
    )


@pytest.mark.parametrize(
    "more", [{"expected": 1}, {}, {"expected": None}], ids=["equal", "absent", "none"]
)
def test_cases_with_one_expected_outcome_or_none_contradict_nothing(more):
    requests = [{"input": "Play.", "id": n, **more} for n in range(3)]
    assert not Suite.from_records([*requests, {"input": "x", "id": 9}], id="id").conflicts.cases


def test_cases_with_other_worlds_contradict_nothing():
    requests = [{"input": "Play.", "secret": n, "expected": n, "id": n} for n in range(80)]
    assert not Suite.from_records(requests, id="id").conflicts.cases


def test_a_missing_file_of_cases_is_named_with_the_folder_it_was_looked_for_in():
    with pytest.raises(SuiteError, match=r"^none.jsonl does not exist in the working directory /"):
        Suite.from_jsonl("none.jsonl")
    with pytest.raises(SuiteError, match=r"^/none.csv does not exist; give"):
        Suite.from_csv("/none.csv")


def test_given_shares_are_not_adapted():
    shares = {"training": 0.8, "validation": 0.1, "held-out": 0.1}
    suite = Suite.from_records(records(40), shares=shares)
    with pytest.raises(SplitTooSmall, match=r"add about \d+ cases \(at a share of 10%\)"):
        list(suite.cases(Split.VALIDATION))


def test_a_suite_with_few_validation_cases_can_be_evaluated_on_its_training_cases():
    rows = [{**row, "split": "training"} for row in records(30)]
    with pytest.raises(SplitTooSmall, match="evaluate on the 30 training cases"):
        Suite.from_records(rows).require(Split.VALIDATION)


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
    with pytest.raises(SuiteError, match=r"no 'input'; it has question.*input='question'"):
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


def test_the_digest_changes_with_a_field_that_a_measure_may_read():
    def digest(**fields):
        records = [{"input": f"q{number}", **fields} for number in range(40)]
        return Suite.from_records(records).digest

    assert digest() != digest(item="lamp") != digest(item="chair")
    assert digest(item=object()) == digest(item=object()) == digest()


def test_the_digest_of_a_stream_leaves_out_what_json_cannot_express():
    def digest(value):
        return Suite.from_records({"input": f"q{n}", "item": value} for n in range(40)).digest

    assert digest(object()) == digest(object())
    assert digest("lamp") != digest("chair")


def test_a_streamed_suite_is_never_held_whole():
    """20,000 cases of about 1 kB would be 20 MB; what stays in memory is a small part."""
    filler = "x" * 1000

    def stream():
        for number in range(20_000):
            yield {"input": f"{number} {filler}"}

    tracemalloc.start()
    suite = suite_of(stream())
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(suite) == 20_000
    assert kept < 2_000_000


def test_a_case_with_two_ids_in_different_splits_is_refused():
    rows = [{"id": str(n), "input": f"question {n // 2}", "expected": n // 2} for n in range(600)]
    with pytest.raises(SuiteError, match=r"same case in several splits \(copies: \d+"):
        Suite.from_records(rows, id="id")
    Suite.from_records([{k: v for k, v in row.items() if k != "id"} for row in rows])


def test_equal_inputs_with_different_fields_are_different_cases():
    rows = [{"id": str(n), "input": "find it", "room": n} for n in range(600)]
    assert len(Suite.from_records(rows, id="id")) == 600


def test_splits_that_records_name_must_not_share_a_case():
    rows = [{"input": "same", "split": side} for side in ("train", "test")]
    with pytest.raises(SuiteError, match="training and held-out"):
        Suite.from_records(rows)


def test_a_line_that_is_nested_without_end_is_named(tmp_path):
    file = tmp_path / "deep.jsonl"
    file.write_text('{"input": "fine"}\n{"input": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    with pytest.raises(SuiteError, match=r"deep\.jsonl:2"):
        Suite.from_jsonl(file, minimum_cases=1)


@pytest.mark.parametrize(
    "copy",
    ["what  is it?", "What is it? ", "WHAT IS IT?", "what\u00a0is it?",
     [{"role": "user", "content": "what is it?"}]],
)  # fmt: skip
def test_a_copy_that_is_only_written_otherwise_is_a_copy(copy):
    rows = [{"input": "what is it?", "split": "train"}, {"input": copy, "split": "test"}]
    with pytest.raises(SuiteError, match=r"copies: 1,"):
        Suite.from_records(rows)


@pytest.mark.parametrize("shares", [{"training": float("nan"), "held-out": 0.5}, {"training": 1.5}])
def test_shares_must_be_shares(shares):
    with pytest.raises(SuiteError, match="add up to 1"):
        Suite.from_records([{"input": "a"}], shares=shares)


def test_a_csv_file_that_cannot_be_read_is_named_with_its_line(tmp_path):
    file = tmp_path / "odd.csv"
    file.write_bytes(b"input,expected\na,b\n" + b"caf\xe9,b\n")
    with pytest.raises(SuiteError, match=r"odd\.csv"):
        Suite.from_csv(file)


@given(st.integers(1, 60), st.integers(2, 20))
def test_cases_are_spread_over_the_training_cases_in_their_order(size, wanted):
    rows = [
        {"input": f"question {n}", "expected": f"{n}", "split": "training"} for n in range(size)
    ]
    suite = Suite.from_records(rows, minimum_cases=1)
    numbers = [int(case.expected) for case in suite.spread(wanted)]
    assert len(numbers) == min(size, wanted)
    assert (numbers[0], numbers[-1]) == (0, size - 1)
    gaps = {later - earlier for earlier, later in itertools.pairwise(numbers)}
    assert not gaps or (min(gaps) > 0 and max(gaps) - min(gaps) <= 1)


def test_an_empty_cell_names_no_measure():
    rows = [{"input": f"question {n}", "measures": "" if n else "exact"} for n in range(20)]
    cases = list(Suite.from_records(rows, measures="measures").cases(Split.VALIDATION))
    assert {case.measures for case in cases} == {(), ("exact",)}


@pytest.mark.parametrize(("count", "split"), [(25, Split.VALIDATION), (45, Split.TRAINING)])
def test_the_first_split_of_a_small_suite_is_validation(count, split):
    suite = Suite.from_records([{"input": f"question {n}"} for n in range(count)])
    assert suite.first_split() is split
