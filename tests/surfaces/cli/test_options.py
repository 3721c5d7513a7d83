"""Options are declared once, and the defaults that their help texts name are the settings'."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from sparring.contracts.specs import PlaySettings
from sparring.contracts.training import TrainSettings
from sparring.surfaces.cli import options


def declared() -> dict[str, Any]:
    found = {name: get_args(value) for name, value in vars(options).items() if name[0].isupper()}
    return {name: given[1] for name, given in found.items() if len(given) == 2}


def default_in(name: str) -> str:
    found = re.search(r"default: ([^;,.]+(?:\.\d+)?)", declared()[name].help)
    assert found, name
    return found[1]


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("Temperature", "temperature"),
        ("MaxCompletionLength", "max_completion_length"),
        ("ToolRounds", "tool_rounds"),
        ("InFlight", "rollouts_at_once"),
        ("ToolSeconds", "tool_seconds"),
        ("EvalRollouts", "num_generations"),
    ],
)
def test_a_default_of_playing_is_that_of_the_setting(option: str, field: str) -> None:
    assert float(default_in(option)) == getattr(PlaySettings(), field)


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("Temperature", "temperature"),
        ("MaxCompletionLength", "max_completion_length"),
        ("ToolRounds", "tool_rounds"),
        ("CasesPerBatch", "cases_per_batch"),
        ("GradientAccumulationSteps", "gradient_accumulation_steps"),
        ("GroupSize", "num_generations"),
        ("CheckpointSteps", "checkpoint_steps"),
    ],
)
def test_a_default_of_training_is_that_of_the_setting(option: str, field: str) -> None:
    assert float(default_in(option)) == TrainSettings.model_fields[field].default


def test_every_option_says_what_it_is_for() -> None:
    for name, option in declared().items():
        assert option.help, name
        assert option.help.endswith("."), name
