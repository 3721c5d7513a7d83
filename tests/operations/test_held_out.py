"""Of runs on held-out cases, operators see numbers and no text that could quote a case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.operations.held_out import figures_of, is_held_out
from sparring.run_folder import RunFolder

SECRET = "the quoted case"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(SECRET),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["value", "flips", "note", "case"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(["value", "causes", "note", "answer"]), VALUES))
def test_no_text_under_an_unlisted_name_is_shown_however_deep_it_is(
    summary: dict[str, Any],
) -> None:
    assert SECRET not in json.dumps(figures_of(summary))


def test_hidden_tables_are_hidden_with_their_numbers() -> None:
    summary = {"reward": 0.5, "flips": {"c1": 1}, "still_fails": [3], "causes": 2}
    assert figures_of(summary) == {"reward": 0.5}


def test_a_number_that_is_zero_or_false_is_shown() -> None:
    assert figures_of({"passed": 0, "is_grave": False, "gain": None}) == {
        "passed": 0,
        "is_grave": False,
    }


def test_a_run_of_an_unknown_kind_is_taken_to_play_held_out_cases(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "one")
    folder.create({"format": 1, "kind": "of tomorrow"})
    assert is_held_out(folder)


@pytest.mark.parametrize(
    ("kind", "split", "hidden"),
    [
        ("prove", "held-out", True),
        ("eval", "held-out", True),
        ("eval", "Held-Out", True),
        ("prove", None, True),
        ("eval", ["held-out"], True),
        ("eval", "validation", False),
        ("eval", "training", False),
        ("train", None, False),
    ],
)
def test_a_run_that_does_not_say_otherwise_is_taken_to_play_held_out_cases(
    tmp_path: Path, kind: str, split: Any, hidden: bool
) -> None:
    folder = RunFolder(tmp_path / "one")
    folder.create({"format": 1, "kind": kind, "split": split})
    assert is_held_out(folder) is hidden


def test_figures_of_held_out_cases_are_shown_and_texts_are_not() -> None:
    quoted = "expected 'the secret'"
    summary = {
        "verdict": "better",
        "sentence": "reward 0.1 → 0.2",
        "reward": {"value": 0.1, "why": quoted},
        "audit": [{"measure": "m", "fault": "cannot tell", "message": quoted, "is_grave": True}],
        "measures": {"m": {"value": 0.5, "reasons_for_failing": [{"reason": quoted}]}},
        "flips": [{"case": "c", "before": 0.0}],
        "tomorrow": [quoted, {"more": quoted}],
        "regressed": ["m"],
    }
    shown = figures_of(summary)
    assert quoted not in str(shown)
    assert shown["audit"] == [{"measure": "m", "fault": "cannot tell", "is_grave": True}]
    assert shown["measures"] == {"m": {"value": 0.5}}
    assert (shown["verdict"], shown["regressed"]) == ("better", ["m"])
    assert "flips" not in shown
