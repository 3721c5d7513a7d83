"""The app gets the answers of whoever may see them, under the keys by which it looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.operations.app_answers import AppAnswer, AppAnswers
from sparring.operations.operation import Caller, Role
from tests.surfaces.web.viewed import HIDDEN, SECRET, TRAINING, make_secret, make_training


@pytest.fixture
def owner(tmp_path: Path) -> Caller:
    make_training(tmp_path / "runs", steps=3)
    make_secret(tmp_path / "runs")
    return Caller(Role.OWNER, tmp_path / "runs", folder=tmp_path, outer_operation="run.report")


def test_a_key_has_the_arguments_sorted_and_without_spaces() -> None:
    answer = AppAnswer("rollout.show", {"run": "shöp", "rollout": "a.0"}, {})
    assert answer.key == 'rollout.show {"rollout":"a.0","run":"shöp"}'


def test_an_error_is_no_answer(owner: Caller) -> None:
    assert AppAnswers(owner, has_held_out=True).ask("run.show", {"run": "nothing"}) is None


@pytest.mark.parametrize("has_held_out", [False, True])
def test_answers_that_could_quote_a_held_out_case_are_those_of_a_viewer(
    owner: Caller, has_held_out: bool
) -> None:
    answers = AppAnswers(owner, has_held_out=has_held_out)
    found = str([each.content for each in answers.about(SECRET)])
    assert (HIDDEN in found) is has_held_out


def test_results_are_quoted_only_on_request(owner: Caller) -> None:
    answers = AppAnswers(owner, has_held_out=False)
    shown = {each.name: each for each in answers.about(SECRET, quotes_results=True)}
    assert shown["run.results"].content["summary"]["note"] == HIDDEN
    assert HIDDEN not in str(shown["run.show"].content)


def test_pages_are_numbered_from_the_oldest_that_is_shown(
    owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparring.operations.app_answers._MAX_ROLLOUTS", 7)
    monkeypatch.setattr("sparring.operations.app_answers._PAGE", 4)
    answers = AppAnswers(owner, has_held_out=False)
    first, second = answers.pages({"run": TRAINING})
    assert first.given == {"run": TRAINING, "count": 4}
    assert second.given == {"run": TRAINING, "count": 4, "start": 4}
    assert (first.content["total"], first.content["next"]) == (7, 4)
    assert (second.content["total"], second.content["next"]) == (7, None)
    lines = [line["id"] for page in (first, second) for line in page.content["rollouts"]]
    assert lines[0] == "lamps.1.1"
    assert lines[-1] == "lamps.2.3"
