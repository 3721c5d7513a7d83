"""The typed keyword arguments of the Python API."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest

from sparring.api.options import LearnOptions, PlayOptions, TrainOptions
from sparring.contracts.specs import PlaySettings
from sparring.contracts.training import TrainSettings

ROOT = Path(__file__).resolve().parents[2]
USER_FILE = """
from agents import Agent
from sparring import Suite, evaluate, exact, train

agent = Agent(name="a")
suite = Suite.from_jsonl("cases.jsonl", input="question", expected="answer")
train(agent, suite, [exact()], max_steps=5, lora={"r": 8}, warm_start="demos.jsonl")
evaluate(agent, suite, [exact()], model="tiny", temperature=0.5)
"""
MISTAKES = {
    "max_steps=5": "max_step=5",
    "lora=": "loora=",
    "temperature=0.5": 'temperature="warm"',
    'expected="answer"': 'expcted="answer"',
}


@pytest.mark.parametrize(
    ("options", "settings"), [(PlayOptions, PlaySettings), (LearnOptions, TrainSettings)]
)
def test_every_setting_is_an_option_and_the_other_way_round(options: type, settings: type) -> None:
    named = {name for each in options.__mro__ for name in vars(each).get("__annotations__", {})}
    assert set(options.__annotations__) | named == set(settings.model_fields)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "settings"), [(PlayOptions, PlaySettings), (LearnOptions, TrainSettings)]
)
def test_an_option_has_the_type_of_its_setting(options: type, settings: type) -> None:
    """Tables, lists and short forms are wider in Python, where a validator narrows them."""
    fields: dict[str, Any] = settings.model_fields  # type: ignore[attr-defined]
    compared = 0
    for name, declared in options.__annotations__.items():
        kind = fields[name].annotation if name in fields else None
        parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        plain = (int, float, bool, str, NoneType)
        if kind and all(part in plain or get_origin(part) is Literal for part in parts):
            assert eval(declared.__forward_arg__, {"Literal": Literal}) == kind, name
            compared += 1
    assert compared >= 15


def test_the_options_of_train_are_those_of_the_trainer() -> None:
    import inspect

    from sparring import Trainer

    parameters = inspect.signature(Trainer).parameters.values()
    own = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert own == set(TrainOptions.__annotations__) - set(LearnOptions.__annotations__)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One run of mypy over the file as it should be, and over one copy with each mistake."""
    place = tmp_path_factory.mktemp("user")
    (place / "right.py").write_text(USER_FILE)
    for number, (right, wrong) in enumerate(MISTAKES.items()):
        assert right in USER_FILE
        (place / f"wrong_{number}.py").write_text(USER_FILE.replace(right, wrong))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", place],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.nightly
def test_a_type_checker_accepts_a_right_call(checked: str) -> None:
    assert "right.py" not in checked


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(len(MISTAKES)), ids=MISTAKES.values())
def test_a_type_checker_finds_a_mistake(number: int, checked: str) -> None:
    assert f"wrong_{number}.py" in checked, checked
