"""The typed keyword arguments of the Python API."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest

from sparring.api.options import LearnOptions, PlayOptions, ServerOptions, ShipOptions, TrainOptions
from sparring.contracts.kinds import ShipSpec
from sparring.contracts.specs import EndpointSpec, PlaySettings
from sparring.contracts.training import TrainSettings
from sparring.operations.shipping import StartShip

ROOT = Path(__file__).resolve().parents[2]
USER_FILE = """
from agents import Agent
from sparring import Suite, audit, check, evaluate, prove, ship, train
from sparring.errors import SplitTooSmall
from sparring.measures import exact

agent = Agent(name="a")
suite = Suite.from_jsonl("cases.jsonl", input="question", expected="answer")
checked = check(agent, suite, [exact()], dry_steps=1, learning_rate=1e-4)
if checked.estimate is not None:
    print(checked.estimate.hours.value)
audit(agent, suite, [exact()], measure_timeout=5.0)
try:
    result = train(agent, suite, [exact()], max_steps=5, lora={"r": 8}, warm_start="demos.jsonl")
except SplitTooSmall as error:
    raise SystemExit(error.exit_code) from error
evaluate(agent, suite, [exact()], model="tiny", temperature=0.5)
print(prove(result, picked_from=2).verdict)
ship(result, "model", forms=["merged"], validation_cases=8)
"""
MISTAKES = {
    "max_steps=5": "max_step=5",
    "lora=": "loora=",
    "temperature=0.5": 'temperature="warm"',
    'expected="answer"': 'expcted="answer"',
    "dry_steps=1": "dry_step=1",
    "learning_rate=1e-4": "learning_rat=1e-4",
    "measure_timeout=5.0": "measure_timout=5.0",
    "picked_from=2": "piked_from=2",
    "validation_cases=8": "validation_case=8",
    'forms=["merged"]': 'forms=["zip"]',
    "estimate.hours": "estimate.hour",
    "import exact": "import exakt",
    "import SplitTooSmall": "import SplitToSmall",
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


def test_the_options_of_a_shipment_are_what_its_command_takes() -> None:
    own = {"run", "to", "trial", "unproven", "accept_changes"}  # arguments of ship(), or no folder
    assert set(ShipOptions.__annotations__) == set(StartShip.model_fields) - own
    assert set(ShipOptions.__annotations__) <= set(ShipSpec.model_fields)


def test_a_server_has_the_fields_of_an_endpoint() -> None:
    assert set(ServerOptions.__annotations__) == set(EndpointSpec.model_fields)


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
