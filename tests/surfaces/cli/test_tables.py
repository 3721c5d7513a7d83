"""Summaries of evaluations and trainings on a terminal, which no text of a model controls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sparring.contracts.specs import Frozen
from sparring.surfaces.cli.tables import print_json, printable, show_summary, show_training
from tests.summaries import completing
from tests.surfaces.cli.terminal import EVAL, TRAIN, summary_of


def shown(show: Any, summary: dict[str, Any]) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        completing(show)(summary, console)
    return capture.get()


def lines_with(text: str, word: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if word in line]


@given(st.text())
def test_printable_text_controls_no_terminal_and_keeps_its_lines(text: str) -> None:
    told = printable(text)
    assert all(each.isprintable() or each in "\n\t" for each in told)
    assert told.count("\n") == text.count("\n")
    assert printable(told) == told


def test_a_control_character_is_shown_by_its_number() -> None:
    assert printable("a\x1b[2Jb\u202ec\r") == "a\\x1b[2Jb\\x202ec\\x0d"


class Said(Frozen):
    text: str


@pytest.mark.parametrize("value", [Said(text="\x1b[2J é\n"), {"text": "\x1b[2J é\n"}])
def test_json_is_one_line_of_ascii(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    print_json(value)
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert printed.count("\n") == 1
    assert json.loads(printed) == {"text": "\x1b[2J é\n"}


def test_an_evaluation_shows_measures_endings_and_reasons() -> None:
    text = shown(show_summary, summary_of(EVAL))
    assert "tiny on 3 validation cases × 1, temperature 0.8" in text
    assert lines_with(text, "got_in")[0].startswith("got_in 0.0% 0.0% … 56.1% ●────")
    assert lines_with(text, "endings") == ["endings 2 answered, 1 unparsable_call"]
    assert lines_with(text, "3 ×") == ["3 × like 0 calls, where one was needed"]
    assert "why rollouts ended without an answer" in text
    assert "sparring rollout list 77fe" in text
    assert "unscored" not in text
    assert "sandbox" not in text


def test_an_evaluation_that_could_not_judge_says_so() -> None:
    summary = summary_of(EVAL)
    measure = summary["measures"]["got_in"]
    measure |= {"judged": 0, "cannot_tell": 3, "pass_rate": None, "weight": 0}
    changed = {"reward": None, "unscored": 3, "parse_rate": None, "unsandboxed": True, "seconds": 0}
    text = shown(show_summary, summary | changed | {"hung_tools": ["find", "find"]})
    assert "got_in could not judge any rollout" in text
    assert "got_in – – shown 0 3" in lines_with(text, "got_in")
    assert lines_with(text, "reward") == ["reward –"]
    assert lines_with(text, "unscored") == ["unscored 3 of 3"]
    assert lines_with(text, "hung tools") == ["hung tools 2 find"]
    assert "ran without a sandbox" in text


def test_a_training_shows_its_last_step_its_validations_and_its_weights() -> None:
    text = shown(show_training, summary_of(TRAIN))
    assert "tiny: 2 steps of 2 cases × 2 rollouts" in text
    assert lines_with(text, "last step") == ["last step loss +0.000, reward 0.000"]
    assert lines_with(text, "got_in") == ["got_in 0.0% passed"]
    assert lines_with(text, "validation at step 2") == [
        "validation at step 2 reward 0.000 on 2 cases"
    ]
    assert lines_with(text, "weights") == ["weights step-2, the best on validation (0.000)"]
    assert lines_with(text, "time") == ["time 7 s for 2 steps"]


def test_a_training_tells_what_could_not_be_scored_and_where_it_began() -> None:
    summary = summary_of(TRAIN)
    first = summary["validation"][0] | {"rollouts": 4, "unscored": 0.25}
    changed = {"warm_start": {"demonstrations": 12}, "validation": [first], "best_score": None}
    changed |= {"last": {}, "links": {"wandb": "https://x\x1b"}}
    text = shown(show_training, summary | changed)
    assert lines_with(text, "validation") == [
        "validation at step 0 (after the warm start) reward 0.000 on 3 cases; "
        "1 more could not be scored"
    ]
    assert lines_with(text, "warm start ") == ["warm start 12 demonstrations"]
    assert lines_with(text, "weights") == ["weights step-2"]
    assert lines_with(text, "wandb") == ["wandb https://x\\x1b"]
    assert "last step" not in text
