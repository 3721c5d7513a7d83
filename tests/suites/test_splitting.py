"""A case's split follows from its id alone, and digests ignore how an input is written."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.contracts.cases import Split
from sparring.contracts.errors import SuiteError
from sparring.suites.splitting import (
    DEFAULT_SHARES,
    CopyDetector,
    Splitter,
    input_digest,
    json_line,
    normal,
    question_digest,
)

IDS = [f"case {number}" for number in range(2000)]
text = st.text(st.characters(exclude_categories=["Cs"]))
shares = st.tuples(st.integers(0, 10), st.integers(0, 10)).filter(lambda each: sum(each) <= 10)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


@pytest.mark.parametrize(
    ("given_shares", "expected"),
    [
        (None, DEFAULT_SHARES),
        ({"training": 0.5, "validation": 0.2, "held-out": 0.3}, None),
        ({"training": 1.0}, None),
        ({Split.HELD_OUT: 0.25, Split.TRAINING: 0.75}, None),
    ],
)
def test_each_split_gets_its_share_of_the_cases(given_shares: Any, expected: Any) -> None:
    splitter = Splitter.of(given_shares)
    counts = Counter(map(splitter.side, IDS))
    wanted = expected or given_shares
    for split in Split:
        share = wanted.get(split, 0.0)
        assert splitter.share(split) == pytest.approx(share)
        assert counts[split] / len(IDS) == pytest.approx(share, abs=0.04)
        assert bool(counts[split]) == bool(share)


def test_the_split_of_an_id_is_the_same_in_every_version() -> None:
    splitter = Splitter.of(None)
    sides = [splitter.side(case_id) for case_id in ("0", "1", "2", "ä")]
    assert sides == [Split.VALIDATION, Split.TRAINING, Split.HELD_OUT, Split.TRAINING]


@given(shares, st.integers(0, 10))
def test_moving_a_share_from_validation_to_training_moves_no_held_out_case(
    tenths: tuple[int, int], kept: int
) -> None:
    held_out, validation = tenths[0] / 10, tenths[1] / 10
    before = Splitter(held_out, validation)
    after = Splitter(held_out, min(kept / 10, validation))
    moves = {(before.side(each), after.side(each)) for each in IDS[:200]}
    assert moves <= {(split, split) for split in Split} | {(Split.VALIDATION, Split.TRAINING)}


@pytest.mark.parametrize(
    ("given_shares", "message"),
    [
        ({"train": 1.0}, "`shares` has unknown splits: train; the splits are training,"),
        ({"training": 0.5}, "add up to 1; the sum is 0.5: {'training': 0.5}"),
        ({"training": 1.5, "held-out": -0.5}, "between 0 and 1 and add up to 1; the sum is 1:"),
        ({"training": float("nan")}, "add up to 1; the sum is nan"),
    ],
)
def test_shares_that_are_no_shares_are_refused(given_shares: Any, message: str) -> None:
    with pytest.raises(SuiteError) as refused:
        Splitter.of(given_shares)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "written",
    [
        "What is  it?",
        " what is it?\n",
        [user("What is it?")],
        [{"role": "system", "content": "Be brief."}, user("WHAT IS IT?")],
        [user("Hello"), assistant("Hi"), user("what\u00a0is it?")],
        [user("what is it?"), assistant("Let me see.")],
    ],
)
def test_the_question_of_an_input_is_its_last_user_message(written: Any) -> None:
    assert question_digest(written) == question_digest("what is it?")


@pytest.mark.parametrize(
    "written", ["What was it?", [user("Who?")], [assistant("what is it?")], [user(None)], []]
)
def test_other_questions_have_other_digests(written: Any) -> None:
    assert question_digest(written) != question_digest("what is it?")


@given(text)
def test_normal_content_stays_as_it_is(content: str) -> None:
    once = normal(content)
    assert once == normal(f"  {content}\t")
    assert normal([user(content)]) == once
    assert once == " ".join(once.split())


def test_content_is_normalized_at_every_level() -> None:
    assert normal("Ｆull  Width") == "full width"
    assert normal({1: ("A ", {"B": "C  d"}), "n": 3}) == {"1": ["a", {"B": "c d"}], "n": 3}
    assert normal([user("A"), user("B")]) == [user("a"), user("b")]
    assert normal([{**user("A"), "name": "x"}]) == [{**user("a"), "name": "x"}]


def test_equal_inputs_have_equal_ids_whatever_the_order_of_their_keys() -> None:
    one, two = {"role": "user", "content": "ä"}, {"content": "ä", "role": "user"}
    assert input_digest([one]) == input_digest([two])
    assert input_digest("a") != input_digest("A") != input_digest(["A"])
    assert len(input_digest(object)) == 16


def test_the_id_of_an_input_is_the_same_in_every_version() -> None:
    assert input_digest("question 1") == "e5465d1d1e547228"


def detector(*cases: tuple[str, Split]) -> CopyDetector:
    found = CopyDetector({"id"})
    for number, (text, split) in enumerate(cases):
        found.add({"input": text, "id": number}, text, None, split)
    return found


def test_a_copy_in_another_split_is_refused_with_the_splits() -> None:
    copies = detector(("What is it?", Split.TRAINING), ("what  is it? ", Split.HELD_OUT))
    with pytest.raises(SuiteError, match=r"copies: 1, for example in training and held-out"):
        copies.refuse_copies()


def test_copies_in_one_split_and_different_cases_are_fine() -> None:
    detector(("a", Split.TRAINING), ("A", Split.TRAINING), ("b", Split.HELD_OUT)).refuse_copies()


def test_the_order_of_keys_does_not_matter() -> None:
    assert json_line({"a": 1, "b": 2}) == json_line({"b": 2, "a": 1})


def test_keys_that_are_not_text_are_refused() -> None:
    with pytest.raises(SuiteError, match="keys are not all strings"):
        json_line({(1, 2): 3})
