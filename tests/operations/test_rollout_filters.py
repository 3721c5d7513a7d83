"""A record matches a filter exactly if it fulfils every condition."""

from __future__ import annotations

from typing import Any

import pytest

from sparring.operations.rollout_filters import RecordFilter, texts_of
from sparring.run_folder.files import dump_line
from sparring.run_folder.records import to_record
from tests.surfaces.web.viewed import played

RIGHT = to_record(played("lamps", 0, 0, is_right=True))
WRONG = to_record(played("lamps", 0, 1, is_right=False))


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        ({}, (True, True)),
        ({"case": "lamps"}, (True, True)),
        ({"case": "lamp"}, (False, False)),
        ({"question": "HOW MANY"}, (True, True)),
        ({"question": "how few"}, (False, False)),
        ({"verdict": "passed"}, (True, False)),
        ({"verdict": "failed"}, (False, True)),
        ({"verdict": "failed", "measure": "numeric"}, (False, True)),
        ({"verdict": "unscored"}, (False, False)),
        ({"measure": "other"}, (False, False)),
        ({"tool": "count"}, (True, True)),
        ({"tool": "cou"}, (False, False)),
        ({"text": "LUMP"}, (False, True)),
        ({"text": "look it up"}, (True, True)),
        ({"text": "no number in"}, (False, True)),
        ({"min_advantage": 0.0}, (True, False)),
        ({"max_advantage": 0.0, "text": "lump"}, (False, True)),
    ],
)
def test_filters(wanted: dict[str, Any], matches: tuple[bool, bool]) -> None:
    chosen = RecordFilter(**wanted)
    assert (chosen.matches(RIGHT), chosen.matches(WRONG)) == matches
    assert chosen.needs_no_record is (not wanted)


def test_a_rollout_that_one_of_two_measures_failed_has_not_passed() -> None:
    both = {**WRONG, "judgements": [*RIGHT["judgements"], *WRONG["judgements"]]}
    assert not RecordFilter(verdict="passed").matches(both)
    assert RecordFilter(verdict="failed").matches(both)


def test_a_rollout_that_no_measure_judged_is_unscored() -> None:
    bare = to_record(played("lamps", 0, 0, is_right=True, judgements=(), advantage=None))
    assert RecordFilter(verdict="unscored").matches(bare)
    assert not RecordFilter(min_advantage=-9.0).matches(bare)


def test_a_question_that_is_shown_as_json_is_found_as_it_is_shown() -> None:
    asked = [{"role": "user", "content": {"ok": True}}]
    line = dump_line({"case": {"input": asked}}).lower()
    for shown in ('"ok": true', '"content": {"ok"', '"role": "user", "content"'):
        assert all(needle in line for needle in RecordFilter(question=shown).needles())
    assert RecordFilter(question="How many lamps").needles() == [b"how many lamps"]


def test_a_search_reads_messages_thinking_calls_and_reasons() -> None:
    text = " ".join(texts_of(RIGHT))
    for part in ("How many lamps", "I look it up.", "count", '"lamp"', "the last number is 12"):
        assert part in text
